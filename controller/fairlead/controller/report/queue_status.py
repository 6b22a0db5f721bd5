"""What is said of Queues and Flavors: their status, from the plan, the problems found, and what is remembered.

Exists so that `kubectl get queues,flavors` and `fairlead queues` tell what decisions go by. Pure: equal to the status written
before when nothing changed but the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from fairlead.api.queue import FLAVORS_MAX
from fairlead.engine.queues.usage_history import RememberedUsage
from fairlead.engine.types.model import Amount, FlavorTotal, Problem, QueueUse
from fairlead.kube import timestamps

MESSAGE_MAX = 4096


def queue_status(
    use: QueueUse,
    remembered: RememberedUsage | None,
    problems: Sequence[Problem],
    *,
    before: Mapping[str, Any],
    generation: int,
    now: float,
) -> dict[str, Any]:
    past = {} if remembered is None else dict(remembered.parts)
    usage: list[dict[str, Any]] = [
        {
            "flavor": flavor.flavor,
            "allocated": plain(flavor.used),
            "demand": plain(flavor.demand),
            "fairShare": plain(flavor.fair_share),
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
        "conditions": _with_ready(problems, "the queue takes gangs", before=before, generation=generation, now=now),
    }
    if remembered is not None and remembered.at:
        status["usageTime"] = timestamps.seconds(remembered.at)
    return status


def flavor_status(
    total: FlavorTotal | None, problems: Sequence[Problem], *, before: Mapping[str, Any], generation: int, now: float
) -> dict[str, Any]:
    """`total` None: the flavor cannot be read, nothing is known of it."""
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "conditions": _with_ready(problems, "devices are counted", before=before, generation=generation, now=now),
    }
    if total is not None:
        status |= {"devices": total.devices, "total": plain(total.total), "allocated": plain(total.allocated)}
    return status


def _with_ready(
    problems: Sequence[Problem], fine: str, *, before: Mapping[str, Any], generation: int, now: float
) -> list[dict[str, Any]]:
    """The conditions there were, with Ready as it is now."""
    others = [condition for condition in before.get("conditions", ()) if condition.get("type") != "Ready"]
    old = next((condition for condition in before.get("conditions", ()) if condition.get("type") == "Ready"), None)
    status = "False" if problems else "True"
    since = old["lastTransitionTime"] if old and old.get("status") == status else timestamps.seconds(now)
    ready = {
        "type": "Ready",
        "status": status,
        "reason": problems[0].reason if problems else "Ready",
        "message": "; ".join(problem.message for problem in problems)[:MESSAGE_MAX] if problems else fine,
        "observedGeneration": generation,
        "lastTransitionTime": since,
    }
    return [ready, *others]


def plain(value: Amount) -> int | str:
    """A quantity of the API: whole numbers as they are, parts in thousandths."""
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else f"{round(value * 1000)}m"
    return value
