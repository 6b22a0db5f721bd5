"""When a decision would come out differently although nothing changed but the time.

Exists so that the loop can sleep: a victim's min-runtime passes, a disruption budget fills again, a gang has waited long
enough for a reservation. Pure. Counts only what is still to come, so it never wakes twice for the same moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fairlead.api.gang import duration_s
from fairlead.controller.disruption import recent
from fairlead.controller.model import Plan, QueueSpec, Snapshot
from fairlead.kube import timestamps


def next_turn(snapshot: Snapshot, plan: Plan, *, now: float, refills: Iterable[float] = ()) -> float | None:
    """Unix seconds; None when time changes nothing. Only gangs that wait make time matter."""
    if not plan.waiting:
        return None
    waiting = {entry.id for entry in plan.waiting}
    times = [gang.created + snapshot.reserve_after_s for gang in snapshot.gangs if gang.id in waiting]
    runtimes = min_runtimes(snapshot.queues)
    default = max(runtimes.values(), default=0.0)
    for gang in snapshot.running:
        runtime = gang.min_runtime_s
        if runtime is None:
            runtime = default if gang.queue is None else runtimes.get(gang.queue, 0.0)
        if runtime:
            times.append(gang.started + runtime)
    times.extend(refills)
    return min((time for time in times if time > now), default=None)


def min_runtimes(queues: Sequence[QueueSpec]) -> dict[str, float]:
    """Each queue's min-runtime: its own, else what the nearest queue above it says, else none."""
    by_name = {queue.name: queue for queue in queues}
    found: dict[str, float] = {}
    for queue in queues:
        seen: set[str] = set()
        step: QueueSpec | None = queue
        while step is not None and step.name not in seen and step.min_runtime_s is None:
            seen.add(step.name)
            step = by_name.get(step.parent or "")
        found[queue.name] = (step.min_runtime_s if step is not None else None) or 0.0
    return found


def refill(spec: Mapping[str, Any], times: Iterable[str], *, now: float) -> float | None:
    """When the oldest eviction leaves the window of a queue's disruption budget."""
    counted = recent(spec, times, now=now)
    if not counted:
        return None
    return timestamps.parse(counted[0]) + duration_s(spec["disruptionBudget"].get("window") or "1h")
