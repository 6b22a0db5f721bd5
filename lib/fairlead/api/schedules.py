"""Which entries of a Queue's schedule are in force at a time, and until when. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fairlead.api.queue import QueueFlavor, ScheduleEntry, with_change

_SOME_TIME = 1767225600.0  # 2026-01-01T00:00:00Z


@dataclass(frozen=True, slots=True)
class Current:
    """An entry that is in force. `until`: unix seconds; None: not known, since it starts again before it ends."""

    entry: ScheduleEntry
    until: float | None


@dataclass(frozen=True, slots=True)
class Now:
    """`change`: unix seconds at which an entry comes into force or ends, or at which that is to be asked again."""

    in_force: tuple[Current, ...] = ()
    change: float | None = None
    known: bool = True
    """Whether something changes at `change` indeed."""


def at(schedule: Sequence[ScheduleEntry], now: float) -> Now:
    """What of the schedule is in force at `now` (unix seconds), in its order."""
    in_force: list[Current] = []
    changes: list[tuple[float, bool]] = []
    for entry in schedule:
        recurrence = entry.recurrence
        span = recurrence.span(now)
        if span is None:
            start = recurrence.next_start(now)
            changes += [] if start is None else [(start, True)]
            continue
        in_force.append(Current(entry, span.end if span.known else None))
        changes.append((span.end, span.known))
    if not changes:
        return Now(tuple(in_force))
    change = min(when for when, _ in changes)
    return Now(tuple(in_force), change, any(known for when, known in changes if when == change))


def quotas(flavors: Sequence[QueueFlavor], in_force: Sequence[ScheduleEntry]) -> list[QueueFlavor]:
    """The quotas with what the entries replace, the later over the earlier. A limit may be below deserved: it then bounds that."""
    found = {quota.flavor: quota for quota in flavors}
    for entry in in_force:
        for change in entry.flavors:
            found[change.flavor] = with_change(found.get(change.flavor) or QueueFlavor(flavor=change.flavor), change)
    return list(found.values())


def always_in_force(schedule: Sequence[ScheduleEntry]) -> Iterator[str]:
    """A message per entry that starts again before it ends, again and again: its quota is that of spec.flavors."""
    for index, entry in enumerate(schedule):
        start = entry.recurrence.next_start(_SOME_TIME)
        span = None if start is None else entry.recurrence.span(start)
        if span is not None and not span.known:
            yield (
                f"spec.schedule[{index}]: {entry.name} starts again before it ends ({entry.start!r} for {entry.for_}): it is in force "
                "all the time; shorten it, or write its quota in spec.flavors"
            )
