"""The queues as a decision sees them: quotas by schedule, corrected by past use, with what is left of budgets. And what it says of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlead.controller.commit.evictor import QueueBudgets
from fairlead.controller.spending import BudgetNow, SpendingBudgets
from fairlead.controller.watch.caches import Caches
from fairlead.controller.watch.scheduled import Scheduled, ScheduledQuotas
from fairlead.engine.queues.usage_history import UsageHistory
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.settings import QueueSpec


class QueueInputs:
    """`due`: when time alone may change the next decision, unix seconds."""

    def __init__(self, caches: Caches, budgets: QueueBudgets, usage: UsageHistory, spending: SpendingBudgets) -> None:
        self.due: float | None = None
        self._caches = caches
        self._budgets = budgets
        self._usage = usage
        self._spending = spending
        self._scheduled = ScheduledQuotas()

    def scheduled(self, now: float) -> Scheduled:
        """The queues with the quotas of now, by their schedules."""
        return self._scheduled.at(self._caches.rules.settings(), now)

    @property
    def spent(self) -> Mapping[str, BudgetNow]:
        """By queue, of those with a budget."""
        return self._spending.by_queue

    def queues(self, now: float) -> tuple[QueueSpec, ...]:
        settings = self._caches.rules.settings()
        queues = self.scheduled(now).queues
        self._usage.restore(settings.remembered)
        self._spending.update(settings.queues, settings.budgets, settings.said, now, settings.counted_resources)
        queues = self._spending.with_budgets(self._usage.with_past_usage(queues, now))
        return self._budgets.with_evictions_left(queues, now)

    def note(self, plan: Plan, now: float) -> None:
        """What the decision states of queues, and when it may change by itself."""
        self._spending.note(plan.queues, now)
        due = (self._budgets.next_refill(now), self.scheduled(now).due, self._spending.due, plan.due)
        self.due = min((at for at in due if at is not None), default=None)
        self._usage.note(self._caches.rules.settings().queues, plan.queues, plan.flavors, now)

    def take_due(self, now: float) -> bool:
        """Whether that time has come; it is dropped."""
        come = self.due is not None and self.due <= now
        if come:
            self.due = None
        return come

    def used_otherwise(self, now: float) -> Iterable[str]:
        """Queues whose past usage differs enough from their status to be written."""
        return self._usage.tick(now)
