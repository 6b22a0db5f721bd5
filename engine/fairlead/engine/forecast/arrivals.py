"""What may be submitted meanwhile: each hour of the future is like an hour of the past, drawn anew for each sample.

Without it a forecast is too early wherever later gangs go first: those of higher priority, and those of queues that use less than their
share. An hour that is the same of the day is drawn where the past has one, else any hour. Times within the hour stay as they were.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from msgspec.structs import replace

from fairlead.engine.types.references import PodRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fairlead.engine.forecast.draws import Draws
    from fairlead.engine.types.gangs import GangRequest

HOUR_S = 3600.0
DAY_S = 86_400.0


class Arrivals:
    """`past`: gangs as they were first requested, by `created`; `since`: from when on all of them are known, unix seconds."""

    def __init__(self, past: Iterable[GangRequest], *, since: float, now: float) -> None:
        self._past = sorted((gang for gang in past if since <= gang.created <= now), key=lambda each: each.created)
        self._at = [gang.created for gang in self._past]
        self._since = since
        self._now = now

    def __bool__(self) -> bool:
        return bool(self._past) and self._now - self._since >= HOUR_S

    def drawn(self, draws: Draws) -> Iterator[GangRequest]:
        """In order of time, without end where there is a past; none where there is not an hour of it."""
        for at, number, gang in self._drawn(draws):
            yield _renamed(gang, number, at)

    def times(self, draws: Draws) -> Iterator[tuple[float, GangRequest]]:
        """When they come, and the gangs of the past that they are like: a tenth of the cost, for what needs no names."""
        return ((at, gang) for at, _, gang in self._drawn(draws))

    def _drawn(self, draws: Draws) -> Iterator[tuple[float, str, GangRequest]]:
        if not self or draws.middle:
            return
        hour = 0
        while True:
            begin = self._now + hour * HOUR_S
            source = self._source(begin, draws.uniform("arrivals", hour))
            first, last = bisect_left(self._at, source), bisect_left(self._at, source + HOUR_S)
            for number in range(first, last):
                gang = self._past[number]
                yield begin + gang.created - source, f"{hour}-{number - first}", gang
            hour += 1

    def _source(self, begin: float, uniform: float) -> float:
        """Where in the past the hour is taken from."""
        days = int((begin - self._since) // DAY_S)
        first_day = max(1, -int(-(begin + HOUR_S - self._now) // DAY_S))
        if days >= first_day:
            day = first_day + int(uniform * (days - first_day + 1))
            return begin - day * DAY_S
        return self._since + uniform * (self._now - HOUR_S - self._since)


def _renamed(gang: GangRequest, number: str, at: float) -> GangRequest:
    """Another of its kind: of the same name but for a number, so that its run time is drawn like its own."""
    suffix = f"~{number}"
    name = f"{gang.name}{suffix}"
    return replace(
        gang,
        name=name,
        uid=f"{gang.uid}{suffix}",
        created=at,
        members=tuple(
            replace(
                member,
                pod=PodRef(member.pod.namespace, f"{member.pod.name}{suffix}", f"{member.pod.uid}{suffix}"),
                claims=tuple(f"{key}{suffix}" for key in member.claims),
            )
            for member in gang.members
        ),
        claims=tuple(
            replace(claim, key=f"{claim.key}{suffix}", name=f"{claim.name}{suffix}", allocation=None)
            for claim in gang.claims
        ),
        placed_nodes=(),
        placed_claims=(),
        placed_members=(),
        kept=(),
        preemptor=False,
        replaces=False,
    )
