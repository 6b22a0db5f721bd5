"""The budgets of queues as they are now: what is spent of each in its period, for the engine's facts and for Queue status.

What a queue spent is the sum of the ledger, for it and the queues below it, and what they have held since that sum was counted.
Where the ledger does not know, what Queue status says of this period counts, which is never too much. The sum is asked for every
`ASK_S`, sooner where it was not answered; in between the moment of exhaustion is predicted from what the queue holds, so a budget
is enforced when it is exhausted and not at the next sum. Facts are the same objects until something of that changes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from msgspec.structs import replace

from fairlead.api.budget import Budget, Period, period
from fairlead.api.resource_units import GPU_HOURS, hours_unit, in_units
from fairlead.engine.types.plan import QueueUse
from fairlead.engine.types.settings import BudgetState, QueueSpec
from fairlead.engine.types.values import Amount
from fairlead.kube.timestamps import HOUR_US, microseconds

ASK_S = 60.0
UNANSWERED_S = 2.0  # a ledger sums a period that it has not been asked for; then twice as long, up to ASK_S
SHOWN_PARTS = 1000  # of a budget: the status is written when one more of them is spent


class Spent(NamedTuple):
    """Hours, counted until this moment (unix microseconds). What is held after it is the reader's to add."""

    hours: Fraction
    until_us: int


Spending = Callable[[str, int, str | None], Spent | None]
"""What the gangs of a queue itself, without those of queues below, spent from a moment (unix microseconds) on: GPU-hours, or of a flavor.

A whole GPU that is held for an hour is 1, whether busy or idle; a partition counts as its share of the GPU. Devices count that a Flavor
takes, all devices where there are no Flavors. Of a Flavor with measure Resource what pods requested counts. A queue of which nothing is recorded has spent 0. None: not known, and then its budget
stops no gang. Called in the controller's loop, for each queue with a budget about once a minute: it must answer from memory, or within
a millisecond or two.
"""


def not_known(queue: str, since_us: int, flavor: str | None) -> Spent | None:
    """Without a ledger."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetNow:
    """A budget as Queue status shows it. `spent`: None where that is not known; a moment old, as statuses are not written for each second."""

    budget: Budget
    period: Period
    spent: Fraction | None
    unit: str = GPU_HOURS  # "": its flavor counts no resource of pods

    @property
    def percent(self) -> int | None:
        return None if self.spent is None else int(100 * self.spent / self.budget.limit)


class Said(NamedTuple):
    """What a Queue's status says: hours that were spent of the period that ends then (unix seconds), of a flavor or of GPUs."""

    spent: Fraction
    renews_at: float
    flavor: str | None = None


@dataclass(slots=True)
class _Account:
    """What one queue with a budget has spent."""

    budget: Budget
    period: Period
    below: tuple[str, ...]  # the queue itself, and those below it
    resource: str | None  # that its flavor counts; None: GPU-hours, or no such flavor
    asked: float
    sum: Spent | None
    state: BudgetState
    shown: BudgetNow
    unanswered: int = 0  # times in a row

    @property
    def ask_at(self) -> float:
        wait_s = min(ASK_S, UNANSWERED_S * 2 ** (self.unanswered - 1)) if self.unanswered else ASK_S
        return self.asked + wait_s

    def count(self, held: HeldAmount, now: float) -> None:
        """Anew, of what it has held since the sum."""
        spent = _counted(self.sum, held, self.period, now)
        self.state = _state(self.budget, self.period, spent, held.amount, now, self.shown.unit)
        shown = BudgetNow(budget=self.budget, period=self.period, spent=spent, unit=self.shown.unit)
        self.shown = _shown(self.shown, shown)

    def held(self, use: QueueUse) -> Amount:
        """Of what it counts."""
        if self.budget.flavor is None:
            return use.gpus
        held = next((each.used for each in use.flavors if each.flavor == self.budget.flavor), 0)
        return in_units(self.resource or "", Fraction(held))


class SpendingBudgets:
    """The budgets of queues in one term of leadership."""

    def __init__(self, spent: Spending) -> None:
        self._spent = spent
        self._accounts: dict[str, _Account] = {}
        self._held: dict[str, HeldAmount] = {}
        self._given: dict[str, tuple[QueueSpec, BudgetState, QueueSpec]] = {}

    def note(self, uses: Iterable[QueueUse], now: float) -> None:
        """What the queues hold from now on, with those below them."""
        for use in uses:
            account = self._accounts.get(use.name)
            if account is not None and self._held[use.name].note(account.held(use), microseconds(now)):
                account.count(self._held[use.name], now)

    def update(
        self,
        queues: Sequence[QueueSpec],
        budgets: Mapping[str, Budget],
        said: Mapping[str, Said],
        now: float,
        resources: Mapping[str, str],
    ) -> None:
        """`budgets`: by queue, of those that have one; `said`: what their statuses say of them; `resources`: by flavor that counts pods.

        Before `with_budgets`, `by_queue` and `due`, which are of that moment.
        """
        for name in [name for name in self._accounts if name not in budgets]:
            del self._accounts[name]
            self._held.pop(name, None)
        if budgets:
            below = _below(queues)
            for name, budget in budgets.items():
                resource = resources.get(budget.flavor or "")
                self._update(name, budget, below.get(name, (name,)), said.get(name), now, resource)

    def with_budgets(self, queues: tuple[QueueSpec, ...]) -> tuple[QueueSpec, ...]:
        """The queues, each with what is spent of its budget; the same object for the same queue and state."""
        return tuple(self._with_budget(queue) for queue in queues) if self._accounts else queues

    @property
    def by_queue(self) -> dict[str, BudgetNow]:
        return {name: account.shown for name, account in self._accounts.items()}

    @property
    def due(self) -> float | None:
        """Unix seconds: when to update though nothing else happens. None without budgets."""
        found = [account.period.end for account in self._accounts.values()]
        found += [at for each in self._accounts.values() if (at := each.state.exhausts_at) is not None]
        found += [
            account.ask_at
            for name, account in self._accounts.items()
            if self._held[name].amount or account.ask_at - account.asked < ASK_S
        ]
        return min(found, default=None)

    def _update(
        self, name: str, budget: Budget, below: tuple[str, ...], said: Said | None, now: float, resource: str | None
    ) -> None:
        account = self._accounts.get(name)
        if account is not None and (account.budget.flavor, account.resource) != (budget.flavor, resource):
            del self._held[name]  # it was of something else
            account = None
        held = self._held.setdefault(name, HeldAmount())
        if account is None or (account.budget, account.below) != (budget, below) or not _within(account.period, now):
            account = None
        if account is None or not account.asked <= now < account.ask_at:
            of = period(budget.per, budget.time_zone, now) if account is None else account.period
            counted = budget.flavor is None or resource is not None
            found = (
                _together([self._spent(each, microseconds(of.start), budget.flavor) for each in below])
                if counted
                else None
            )
            unanswered = 0
            if found is None:
                unanswered = min(16, 1 if account is None else account.unanswered + 1)
                found = None if account is None else account.sum
            if found is None and counted and said is not None and said[1:] == (of.end, budget.flavor):
                found = Spent(said.spent, microseconds(now))
            spent = _counted(found, held, of, now)
            unit = GPU_HOURS if budget.flavor is None else "" if resource is None else hours_unit(resource)
            state = _state(budget, of, spent, held.amount, now, unit)
            before = None if account is None else account.shown
            shown = _shown(before, BudgetNow(budget=budget, period=of, spent=spent, unit=unit))
            self._accounts[name] = _Account(
                budget=budget,
                period=of,
                below=below,
                resource=resource,
                asked=now,
                sum=found,
                state=state,
                shown=shown,
                unanswered=unanswered,
            )
        elif account.state.exhausts_at is not None and now >= account.state.exhausts_at:
            account.count(held, now)  # what was predicted can be counted

    def _with_budget(self, queue: QueueSpec) -> QueueSpec:
        account = self._accounts.get(queue.name)
        if account is None:
            return queue
        known = self._given.get(queue.name)
        if known is None or known[0] is not queue or known[1] is not account.state:
            known = self._given[queue.name] = (queue, account.state, replace(queue, budget=account.state))
        return known[2]


def _within(of: Period, now: float) -> bool:
    return of.start <= now < of.end


def _counted(known: Spent | None, held: HeldAmount, of: Period, now: float) -> Fraction | None:
    """The sum, and what is held since, within the period."""
    return (
        None
        if known is None
        else known.hours + held.between(max(known.until_us, microseconds(of.start)), microseconds(now))
    )


def _together(sums: Sequence[Spent | None]) -> Spent | None:
    """All of them, as of the first; None where one is not known."""
    known = [each for each in sums if each is not None]
    if len(known) < len(sums):
        return None
    return Spent(sum((each.hours for each in known), Fraction(0)), min(each.until_us for each in known))


def _state(budget: Budget, of: Period, spent: Fraction | None, held: Amount, now: float, unit: str) -> BudgetState:
    exhausts_at = None
    if spent is not None and spent < budget.limit and held and budget.on_exhausted != "warn":
        left_us = (budget.limit - spent) * HOUR_US / Fraction(held)
        exhausts_at = ceil(now * 1000 + left_us / 1000) / 1000
    return BudgetState(
        on_exhausted=budget.on_exhausted,
        limit=budget.limit,
        spent=spent,
        renews_at=of.end,
        exhausts_at=exhausts_at,
        unit=unit,
    )


def _shown(before: BudgetNow | None, now: BudgetNow) -> BudgetNow:
    """`before`, where hardly more is spent."""
    if before is None or (before.budget, before.period, before.unit) != (now.budget, now.period, now.unit):
        return now
    if before.spent is None or now.spent is None:
        return now if before.spent is not now.spent else before
    parts = [int(SHOWN_PARTS * spent / now.budget.limit) for spent in (before.spent, now.spent)]
    return before if parts[0] == parts[1] else now


def _below(queues: Sequence[QueueSpec]) -> dict[str, tuple[str, ...]]:
    """By name, the queue and all below it, sorted. A loop of parents ends where it began."""
    parents = {queue.name: queue.parent for queue in queues}
    found: dict[str, set[str]] = {name: {name} for name in parents}
    for name, parent in parents.items():
        above, seen = parent, {name}
        while above in found and above not in seen:
            found[above].add(name)
            seen.add(above)
            above = parents[above]
    return {name: tuple(sorted(below)) for name, below in found.items()}


POINTS_MAX = 4096


class HeldAmount:
    """Hours of what one queue holds. Points of a line: hours held since the first `note`, which rises evenly from one point to the next."""

    def __init__(self) -> None:
        self.amount: Amount = 0  # from the last point on
        self._latest = 0  # unix microseconds, of all notes
        self._times: list[int] = []  # unix microseconds
        self._sums: list[Fraction] = []

    def note(self, amount: Amount, now_us: int) -> bool:
        """It holds this from now on; whether that is new. A clock that goes back changes nothing but that."""
        at = self._latest = max(now_us, self._latest) if self._times else now_us
        if self._times and amount == self.amount:
            return False
        self._sums.append(self._until(at))
        self._times.append(at)
        self.amount = amount
        if len(self._times) > POINTS_MAX:  # the sum at each point that is left stays exact
            del self._times[1:-1:2], self._sums[1:-1:2]
        return True

    def between(self, start_us: int, end_us: int) -> Fraction:
        """Hours; nothing before the first note, of which others know."""
        return max(self._until(end_us) - self._until(start_us), Fraction(0))

    def _until(self, at_us: int) -> Fraction:
        place = bisect_right(self._times, at_us)
        if place == 0:
            return Fraction(0)
        start, begun = self._times[place - 1], self._sums[place - 1]
        if place == len(self._times):
            return begun + Fraction(self.amount) * (at_us - start) / HOUR_US
        return begun + (self._sums[place] - begun) * Fraction(at_us - start, self._times[place] - start)
