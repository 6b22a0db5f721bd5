"""Queues' disruption budgets: how many gangs of a queue may still be evicted for others.

Counts the eviction times in the Queue's status, and those just begun, which the watched status may not show yet.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from fairlead.controller.commit.eviction_writes import Writer
from fairlead.controller.gangs.evictions import disruption
from fairlead.controller.watch.caches import Caches
from fairlead.engine.types.settings import QueueSpec
from fairlead.kube import timestamps


class QueueBudgets:
    def __init__(self, writer: Writer, caches: Caches) -> None:
        self._writer = writer
        self._caches = caches
        self._begun: dict[str, tuple[str, ...]] = {}  # eviction times by queue

    def with_evictions_left(self, queues: Sequence[QueueSpec], now: float) -> tuple[QueueSpec, ...]:
        """The queues, each with `evictions_left` of its budget."""
        found = []
        for queue in queues:
            raw = self._caches.queues.get(queue.name) or {}
            left = disruption.evictions_left(raw.get("spec") or {}, self._times(queue.name), now=now)
            found.append(queue if left == queue.evictions_left else replace(queue, evictions_left=left))
        return tuple(found)

    def next_refill(self, now: float) -> float | None:
        """Unix seconds at which the first budget allows one eviction more."""
        refills = (
            disruption.next_refill(spec, self._times(raw["metadata"]["name"]), now=now)
            for raw in self._caches.queues.all()
            if (spec := raw.get("spec") or {}).get("disruptionBudget")
        )
        return min((at for at in refills if at is not None), default=None)

    async def note_eviction(self, queue: str, now: float) -> None:
        """Writes into the Queue's status that a gang of it is evicted now, if the queue has a budget."""
        raw = self._caches.queues.get(queue)
        if raw is None or not (raw.get("spec") or {}).get("disruptionBudget"):
            return
        self._begun[queue] = (*self._begun.get(queue, ()), timestamps.micro(now))
        times = disruption.times_in_window(raw["spec"], self._times(queue), now=now)
        self._begun[queue] = tuple(time for time in self._begun[queue] if time in times)
        await self._writer.note_eviction_times(queue, times)

    def _times(self, queue: str) -> tuple[str, ...]:
        raw = self._caches.queues.get(queue) or {}
        written = (raw.get("status") or {}).get("evictions") or ()
        return (*written, *(time for time in self._begun.get(queue, ()) if time not in written))
