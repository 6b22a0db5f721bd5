"""A queue's budget in its status, conditions and events. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from fairlead.api.hours import hours_text
from fairlead.controller.gangs.conditions import condition, with_transition_time
from fairlead.controller.spending.budgets import BudgetNow
from fairlead.kube import timestamps

EXHAUSTED: Final = "BudgetExhausted"
LOW: Final = "BudgetLow"
_THEN: Final = {
    "warn": "nothing is stopped",
    "noBorrow": "until then gangs are admitted within deserved only",
    "stop": "until then no gang is admitted",
}


def shown(now: BudgetNow) -> dict[str, Any]:
    found: dict[str, Any] = {
        "gpuHours": hours_text(now.budget.limit),
        "renewsAt": timestamps.seconds(now.period.end),
    }
    if now.spent is not None:
        found |= {"spent": hours_text(now.spent), "percent": now.percent}
    return found


def with_conditions(
    conditions: Sequence[dict[str, Any]],
    budget: BudgetNow | None,
    *,
    before: Mapping[str, Any],
    generation: int,
    now: float,
) -> list[dict[str, Any]]:
    """`conditions` with those of the budget, which are none where there is no budget."""
    others = [each for each in conditions if each.get("type") not in {EXHAUSTED, LOW}]
    if budget is None:
        return others
    percent = budget.percent
    exhausted = percent is not None and percent >= 100
    low = percent is not None and not exhausted and percent >= min(budget.budget.warn_at, default=100)
    reason = "SpentNotKnown" if percent is None else "Exhausted" if exhausted else "WithinBudget"
    own = (
        condition(EXHAUSTED, exhausted, reason, said(budget), now=now),
        condition(LOW, low, "Low" if low else reason, said(budget), now=now),
    )
    old = before.get("conditions", ())
    return [*others, *({**with_transition_time(each, old), "observedGeneration": generation} for each in own)]


def said(now: BudgetNow) -> str:
    """One sentence, without figures that change from minute to minute: these are in `status.budget`."""
    limit, renews = hours_text(now.budget.limit), timestamps.seconds(now.period.end)
    if now.percent is None:
        return f"what is spent of the {limit} GPU-hours is not known, as there is no ledger: nothing is stopped"
    if now.percent >= 100:
        return f"the {limit} GPU-hours of the {now.budget.per} are spent; they renew at {renews}; {_THEN[now.budget.on_exhausted]}"
    passed = max((each for each in now.budget.warn_at if each <= now.percent), default=None)
    more = "less than that is spent" if passed is None else f"{passed} % or more are spent"
    return f"{limit} GPU-hours of the {now.budget.per}, of which {more}; they renew at {renews}"


def crossed(name: str, now: BudgetNow | None, before: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Reason and message of an event for each percentage that was reached since `before`, the status's budget of then."""
    if now is None or now.percent is None or now.spent is None:
        return
    same = before is not None and before.get("renewsAt") == timestamps.seconds(now.period.end)
    last = (before or {}).get("percent") or 0 if same else 0
    limit, renews = hours_text(now.budget.limit), timestamps.seconds(now.period.end)
    for percent in sorted(set(now.budget.warn_at) - {100}):
        if last < percent <= now.percent:
            spent = f"{hours_text(now.spent)} of {limit} GPU-hours of the {now.budget.per}"
            yield LOW, f"queue {name} has spent {percent} % of its budget: {spent}, which renew at {renews}"
    if last < 100 <= now.percent:
        yield EXHAUSTED, f"queue {name}: {said(now)}"
