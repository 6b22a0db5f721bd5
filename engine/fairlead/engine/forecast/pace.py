"""Where the budget ends a simulation: when the gangs that are left start, as gangs of their queue end one after the other.

A queue keeps the devices that it holds: the first gang of its line starts when as many of them have come free as it asks for, the next one
after it, and so on; each then holds them for as long as it runs. Coarse: takes the queues' shares as they are, lets no gang pass
another, and has no account of where devices are. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead.engine.types.gangs import GangRequest


def at_pace(
    left: Iterable[GangRequest],
    *,
    now: float,
    queue_of: Callable[[str], str],
    devices_of: Callable[[GangRequest], int],
    run_s_of: Callable[[GangRequest], float],
    running: Mapping[str, Sequence[tuple[float, int]]],
) -> dict[str, float]:
    """Start by gang id, unix seconds. `running`: of the gangs of each queue when they end, and how many devices they hold.

    A queue that holds nothing counts with an equal part of what every other gang holds; a gang that asks for more than its queue
    holds starts when all that it holds has come free.
    """
    lines: dict[str, list[GangRequest]] = {}
    for gang in left:
        lines.setdefault(queue_of(gang.id), []).append(gang)
    everywhere = [(end, devices / len(lines)) for each in running.values() for end, devices in each] if lines else []
    starts: dict[str, float] = {}
    for queue, line in lines.items():
        line.sort(key=lambda gang: (-gang.priority, gang.created, gang.uid))
        ends: list[tuple[float, float]] = list(running.get(queue, ())) or list(everywhere)
        heapify(ends)
        held, free, at = sum(devices for _, devices in ends), 0.0, now
        for gang in line:
            wanted = min(float(devices_of(gang)), held)
            while free < wanted and ends:
                end, devices = heappop(ends)
                at = max(at, end)
                free += devices
            starts[gang.id] = at
            free -= wanted
            heappush(ends, (at + run_s_of(gang), wanted))
    return starts
