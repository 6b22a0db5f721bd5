"""Since when kube-scheduler has tried the released pods of each gang.

The time in which a released pod must bind (`--gang-timeout`) counts from its claims' allocation. While kube-scheduler does not
run, nothing binds and nothing is wrong with the node, so that time does not count: a released pod keeps the PodScheduled condition
of a gated one (reason SchedulingGated, written by the apiserver) until the scheduler tries it.
Example: released at 0 s, scheduler back at 600 s, tried and refused at 601 s: with a timeout of 120 s rolled back at 721 s.

Keeps no more than this process saw; after a change of leaders a pod that was tried before counts from its allocation.
"""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.controller.gangs.membership.gangs import Gang, GangId

NEVER = float("inf")


class BindClock:
    def __init__(self) -> None:
        self._tried: dict[GangId, dict[str, float]] = {}

    def update(self, gang: Gang, now: float) -> Mapping[str, float]:
        """By pod UID, unix seconds of the first try, `NEVER` before it; without entry where it was tried from the start."""
        before = self._tried.pop(gang.id, {})
        tried: dict[str, float] = {}
        for member in gang.released:
            if member.bound:
                continue
            if not member.tried:
                tried[member.uid] = NEVER
            elif member.uid in before:
                tried[member.uid] = min(before[member.uid], now)
        if tried:
            self._tried[gang.id] = tried
        return tried

    def forget(self, gang: GangId) -> None:
        self._tried.pop(gang, None)
