"""Where the budget ends a simulation: when the gangs that are left start, as gangs of their queue end one after the other.

A queue keeps the devices that it holds: the first gang of its line starts when as many of them have come free as it asks for, the next one
after it, and so on; each then holds them for as long as it runs. What is submitted meanwhile joins the line by priority and age.
Coarse: takes the queues' shares as they are, lets no gang pass another, and has no account of where devices are. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead.engine.types.gangs import GangRequest

Place = tuple[int, float, str, int]  # in a line; the last makes it unique


def at_pace(
    left: Iterable[GangRequest],
    *,
    now: float,
    until: float,
    queue_of: Callable[[GangRequest], str],
    devices_of: Callable[[GangRequest], int],
    run_s_of: Callable[[GangRequest], float],
    running: Mapping[str, Sequence[tuple[float, int]]],
    coming: Iterable[tuple[float, GangRequest]] = (),
) -> dict[str, float]:
    """Start by gang id, unix seconds, of those that start before `until`. `running`: of the gangs of each queue when they end, and how
    many devices they hold. `coming`: in order of time, what is submitted when; it may go on beyond `until`.

    A queue that holds nothing counts with an equal part of what every other gang holds, and where no gang runs nothing comes free; a
    gang that asks for more than its queue holds starts when all that it holds has come free.
    """
    lines: dict[str, list[GangRequest]] = {}
    for gang in left:
        lines.setdefault(queue_of(gang), []).append(gang)
    if not lines or not any(running.values()):
        return {}
    arrivals: dict[str, list[tuple[float, GangRequest]]] = {}
    for at, gang in coming:
        if at > until:
            break
        arrivals.setdefault(queue_of(gang), []).append((at, gang))
    everywhere = [(end, devices / len(lines)) for each in running.values() for end, devices in each]
    starts: dict[str, float] = {}
    for queue, line in lines.items():
        pace = _Pace(list(running.get(queue, ())) or list(everywhere), now, devices_of, run_s_of)
        starts |= pace.starts(line, arrivals.get(queue, ()), until)
    return starts


class _Pace:
    """The pace of one queue. `ends`: of its gangs, with the devices that they hold."""

    def __init__(
        self,
        ends: list[tuple[float, float]],
        now: float,
        devices_of: Callable[[GangRequest], int],
        run_s_of: Callable[[GangRequest], float],
    ) -> None:
        heapify(ends)
        self._ends = ends
        self._held = sum(devices for _, devices in ends)
        self._free = 0.0
        self._now = now
        self._devices_of = devices_of
        self._run_s_of = run_s_of

    def starts(
        self, line: Sequence[GangRequest], arrivals: Sequence[tuple[float, GangRequest]], until: float
    ) -> dict[str, float]:
        waiting = [(_place(gang, gang.created, number), gang) for number, gang in enumerate(line)]
        heapify(waiting)
        wanted, starts = {gang.id for gang in line}, {}
        come = 0
        while True:
            for gang in self._begin(waiting):
                if gang.id in wanted:
                    wanted.remove(gang.id)
                    starts[gang.id] = self._now
            end = self._ends[0][0] if self._ends else inf
            arrival = arrivals[come][0] if come < len(arrivals) else inf
            if not wanted or min(end, arrival) > until:
                return starts
            self._now = max(self._now, min(end, arrival))
            if end <= arrival:
                self._free += heappop(self._ends)[1]
            else:
                gang = arrivals[come][1]
                come += 1
                heappush(waiting, (_place(gang, arrival, -come), gang))

    def _begin(self, waiting: list[tuple[Place, GangRequest]]) -> Iterable[GangRequest]:
        """What starts now, in order; the first that does not fit lets none pass."""
        while waiting:
            devices = min(float(self._devices_of(waiting[0][1])), self._held)
            if self._free < devices and self._ends:
                return
            gang = heappop(waiting)[1]
            self._free -= devices
            heappush(self._ends, (self._now + self._run_s_of(gang), devices))
            yield gang


def _place(gang: GangRequest, created: float, number: int) -> Place:
    return (-gang.priority, created, gang.uid, number)
