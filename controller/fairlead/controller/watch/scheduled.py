"""The quotas of queues with a schedule as they are at a time: what the engine gets as facts.

The same objects until the next change, so that decisions compare them quickly. Pure but for that memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from fairlead.api import schedules
from fairlead.api.queue import QueueSpec as ApiQueueSpec
from fairlead.controller.watch.settings import Settings, quotas
from fairlead.engine.types.settings import FlavorQuota, QueueSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueNow:
    """What of one queue's schedule is in force, for its status. Times in unix seconds."""

    in_force: tuple[tuple[str, float | None], ...]
    """Entries, and until when; None: it is not known."""
    next_change: float | None
    quotas: tuple[FlavorQuota, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """`queues` are all queues with the quotas of now; `due` is when they are to be computed again, unix seconds."""

    queues: tuple[QueueSpec, ...]
    by_queue: Mapping[str, QueueNow] = field(default_factory=dict)
    due: float | None = None


def at(settings: Settings, now: float) -> Scheduled:
    """What is in force at `now`, unix seconds."""
    by_queue: dict[str, QueueNow] = {}
    dues: list[float] = []
    for name, spec in settings.scheduled.items():
        found = schedules.at(spec.schedule, now)
        by_queue[name] = QueueNow(
            in_force=tuple((each.entry.name, each.until) for each in found.in_force),
            next_change=found.change if found.known else None,
            quotas=_quotas(spec, found),
        )
        dues += [] if found.change is None else [found.change]
    return Scheduled(
        queues=tuple(
            replace(queue, quotas=by_queue[queue.name].quotas, quotas_change_at=by_queue[queue.name].next_change)
            if queue.name in by_queue
            else queue
            for queue in settings.queues
        )
        if by_queue
        else settings.queues,
        by_queue=by_queue,
        due=min(dues, default=None),
    )


def _quotas(spec: ApiQueueSpec, found: schedules.Now) -> tuple[FlavorQuota, ...]:
    """Where one entry's limit meets another's deserved above it, the limit counts."""
    return tuple(
        replace(quota, deserved=quota.limit) if quota.limit is not None and quota.limit < quota.deserved else quota
        for quota in quotas(schedules.quotas(spec.flavors, [each.entry for each in found.in_force]))
    )


class ScheduledQuotas:
    """Remembers the last answer."""

    def __init__(self) -> None:
        self._of: Settings | None = None
        self._asked = 0.0
        self._last: Scheduled | None = None

    def at(self, settings: Settings, now: float) -> Scheduled:
        last = self._last
        if last is None or self._of is not settings or now < self._asked or (last.due is not None and now >= last.due):
            self._of, self._asked, last = settings, now, at(settings, now)
            self._last = last
        return last
