"""The status of Queue and Flavor objects, from the plan, the problems found, budgets, and past usage; and events of budgets.

Shows the numbers that decisions use. Equal to the status before when nothing changed but the time. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from fairlead.api.durations import hours_text
from fairlead.api.queue import FLAVORS_MAX
from fairlead.api.queues import OPEN
from fairlead.controller.gangs.conditions import condition
from fairlead.controller.spending import BudgetNow
from fairlead.controller.watch.scheduled import QueueNow
from fairlead.engine.queues.usage_history import RememberedUsage
from fairlead.engine.types.plan import FlavorTotal, QueueUse
from fairlead.engine.types.reasons import Code
from fairlead.engine.types.settings import Problem
from fairlead.engine.types.values import BYTES_FROM, Amount, text
from fairlead.kube import timestamps

ON_HOLD = Code.ON_HOLD.value
_TAKES = "the queue takes gangs"
_OPEN = f"{_TAKES}; it has no namespaceSelector: {OPEN}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueShown:
    """All that a Queue's status shows beside its past usage: it is written when one of these changes.

    `open_to_all`: no selector limits which namespaces may name the queue; its Ready condition says so. `hold`: which hold keeps its
    gangs from being admitted, "" where none does.
    """

    use: QueueUse
    problems: tuple[Problem, ...] = ()
    scheduled: QueueNow | None = None
    budget: BudgetNow | None = None
    open_to_all: bool = False
    hold: str = ""


def queue_status(
    shown: QueueShown, remembered: RememberedUsage | None, *, before: Mapping[str, Any], generation: int, now: float
) -> dict[str, Any]:
    use, budget, scheduled = shown.use, shown.budget, shown.scheduled
    past = {} if remembered is None else dict(remembered.parts)
    usage: list[dict[str, Any]] = [
        {
            "flavor": flavor.flavor,
            "allocated": plain(flavor.used),
            "demand": plain(flavor.demand),
            "fairShare": plain(_legible(flavor.fair_share)),
        }
        for flavor in use.flavors
    ]
    listed = {entry["flavor"] for entry in usage}
    usage += [
        {"flavor": flavor, "allocated": 0, "demand": 0, "fairShare": 0} for flavor in sorted(past.keys() - listed)
    ]
    for entry in usage:
        if entry["flavor"] in past:
            entry["pastUsage"] = past[entry["flavor"]]
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "waiting": use.waiting,
        "running": use.admitted,
        "usage": usage[:FLAVORS_MAX],
        "conditions": _with_hold(
            with_conditions(
                _with_ready(
                    shown.problems,
                    _OPEN if shown.open_to_all else _TAKES,
                    before=before,
                    generation=generation,
                    now=now,
                ),
                budget,
                before=before,
                generation=generation,
                now=now,
            ),
            shown.hold,
            generation=generation,
            now=now,
        ),
    }
    if budget is not None:
        status["budget"] = _budget(budget)
    elif "budget" in before:
        status["budget"] = None
    if scheduled is not None:
        status["schedule"] = _schedule(scheduled)
    elif "schedule" in before:
        status["schedule"] = None  # it has none any more
    if remembered is not None and remembered.at:
        status["usageTime"] = timestamps.seconds(remembered.at)
    return status


def _schedule(scheduled: QueueNow) -> dict[str, Any]:
    found: dict[str, Any] = {
        "inForce": [
            {"name": name} if until is None else {"name": name, "until": timestamps.seconds(until)}
            for name, until in scheduled.in_force
        ],
        "quotas": [
            {"flavor": quota.flavor, "deserved": plain(quota.deserved)}
            | ({} if quota.limit is None else {"limit": plain(quota.limit)})
            for quota in scheduled.quotas[:FLAVORS_MAX]
        ],
    }
    if scheduled.next_change is not None:
        found["nextChange"] = timestamps.seconds(scheduled.next_change)
    return found


def flavor_status(
    total: FlavorTotal | None,
    problems: Sequence[Problem],
    *,
    scale_ups: Sequence[float] = (),
    before: Mapping[str, Any],
    generation: int,
    now: float,
) -> dict[str, Any]:
    """`total` None: the flavor cannot be read, so its devices are not counted. `scale_ups`: seconds that the latest took."""
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "conditions": _with_ready(problems, "devices are counted", before=before, generation=generation, now=now),
    }
    if scale_ups:
        status["scaleUpSeconds"] = list(scale_ups)
    if total is not None:
        status |= {"devices": total.devices, "total": plain(total.total), "allocated": plain(total.allocated)}
    return status


def _with_ready(
    problems: Sequence[Problem], fine: str, *, before: Mapping[str, Any], generation: int, now: float
) -> list[dict[str, Any]]:
    """The conditions in `before`, with Ready as it is now."""
    old = before.get("conditions", ())
    others = [each for each in old if each.get("type") != "Ready"]
    reason = problems[0].reason if problems else "Ready"
    message = "; ".join(problem.message for problem in problems) if problems else fine
    ready = condition("Ready", not problems, reason, message, now=now, before=old)
    return [{**ready, "observedGeneration": generation}, *others]


def _with_hold(conditions: list[dict[str, Any]], hold: str, *, generation: int, now: float) -> list[dict[str, Any]]:
    """`conditions` with OnHold, which stands there from the first hold on."""
    old = next((each for each in conditions if each.get("type") == ON_HOLD), None)
    if old is None and not hold:
        return conditions
    told = ("Held", hold) if hold else ("Over", "no longer")
    new = condition(ON_HOLD, bool(hold), *told, now=now, before=conditions)
    others = (each for each in conditions if each.get("type") != ON_HOLD)
    return [*others, {**new, "observedGeneration": generation}]


def _legible(share: Amount) -> Amount:
    """A share of bytes is divided to the last one: whole Mi of it are enough to read."""
    return share if share < 1024 * BYTES_FROM else share // BYTES_FROM * BYTES_FROM


def plain(value: Amount) -> int | str:
    """As an API quantity: whole numbers as they are, bytes with a binary suffix, fractions in thousandths."""
    if isinstance(value, Fraction) and value.denominator != 1:
        return f"{round(value * 1000)}m"
    return int(value) if value < BYTES_FROM or value % 1024 else text(value)


EXHAUSTED: Final = "BudgetExhausted"
LOW: Final = "BudgetLow"
_THEN: Final = {
    "warn": "nothing is stopped",
    "noBorrow": "until then gangs are admitted within deserved only",
    "stop": "until then no gang is admitted",
}


def _budget(now: BudgetNow) -> dict[str, Any]:
    found: dict[str, Any] = {"renewsAt": timestamps.seconds(now.period.end)}
    if now.budget.flavor is None:
        found["gpuHours"] = hours_text(now.budget.limit)
    else:
        found |= {"flavor": now.budget.flavor, "hours": hours_text(now.budget.limit)}
        found |= {"unit": now.unit} if now.unit else {}
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
    old, text = before.get("conditions", ()), said(budget)
    own = (
        condition(EXHAUSTED, exhausted, reason, text, now=now, before=old),
        condition(LOW, low, "Low" if low else reason, text, now=now, before=old),
    )
    return [*others, *({**each, "observedGeneration": generation} for each in own)]


def _limit(now: BudgetNow) -> str:
    """`1000 GPU-hours`, `5000 cpu-hours`."""
    return f"{hours_text(now.budget.limit)} {now.unit or f'hours of flavor {now.budget.flavor}'}"


def said(now: BudgetNow) -> str:
    """One sentence, without figures that change from minute to minute: these are in `status.budget`."""
    limit, renews = _limit(now), timestamps.seconds(now.period.end)
    if not now.unit:
        return (
            f"what is spent of the {limit} is not known, as that is no Flavor with measure Resource: nothing is stopped"
        )
    if now.percent is None:
        return f"what is spent of the {limit} is not known, as there is no ledger: nothing is stopped"
    if now.percent >= 100:
        return (
            f"the {limit} of the {now.budget.per} are spent; they renew at {renews}; {_THEN[now.budget.on_exhausted]}"
        )
    passed = max((each for each in now.budget.warn_at if each <= now.percent), default=None)
    more = "less than that is spent" if passed is None else f"{passed} % or more are spent"
    return f"{limit} of the {now.budget.per}, of which {more}; they renew at {renews}"


def crossed(name: str, now: BudgetNow | None, before: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Reason and message of an event for each percentage that was reached since `before`, the status's budget of then."""
    if now is None or now.percent is None or now.spent is None:
        return
    same = before is not None and before.get("renewsAt") == timestamps.seconds(now.period.end)
    last = (before or {}).get("percent") or 0 if same else 0
    limit, renews = _limit(now), timestamps.seconds(now.period.end)
    for percent in sorted(set(now.budget.warn_at) - {100}):
        if last < percent <= now.percent:
            spent = f"{hours_text(now.spent)} of {limit} of the {now.budget.per}"
            yield LOW, f"queue {name} has spent {percent} % of its budget: {spent}, which renew at {renews}"
    if last < 100 <= now.percent:
        yield EXHAUSTED, f"queue {name}: {said(now)}"
