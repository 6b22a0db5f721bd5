"""What went wrong with gangs, and for how long they are left alone after it.

Exists so that a gang that fails again and again costs ever less, avoids the nodes on which it failed, and keeps its age
when its pods are made anew. In memory only: a new leader starts without grudges. Reads no clock: `now` is given.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from fairlead.controller.gangs.gangs import GangId
from fairlead.kube.limits import Backoff

AVOID_S = 600.0
BACKOFF = Backoff(base_s=1.0, max_s=120.0)


@dataclass(slots=True)
class GangBackoff:
    why: str = ""
    failures: int = 0
    until: float = 0.0
    avoid: dict[str, float] = field(default_factory=dict)  # node: until when
    created: float | None = None  # of the gang that was rolled back


class GangBackoffs:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._known: dict[GangId, GangBackoff] = {}

    def note(
        self, gang: GangId, why: str, *, now: float, nodes: Iterable[str] = (), created: float | None = None
    ) -> None:
        """It failed again: it rests, twice as long each time."""
        setback = self._known.setdefault(gang, GangBackoff())
        setback.why = why
        setback.until = now + BACKOFF.delay(setback.failures, self._random)
        setback.failures += 1
        for node in nodes:
            setback.avoid[node] = now + AVOID_S
        if created is not None:
            setback.created = created if setback.created is None else min(created, setback.created)

    def get(self, gang: GangId) -> GangBackoff:
        """What is known of the gang; an empty one when nothing is."""
        return self._known.get(gang) or GangBackoff()

    def forget(self, gang: GangId) -> None:
        self._known.pop(gang, None)

    def resting(self, gang: GangId, now: float) -> bool:
        return self.get(gang).until > now

    def due(self) -> float | None:
        """When the next rest is over; unix seconds."""
        return min((setback.until for setback in self._known.values() if setback.until), default=None)

    def expire(self, now: float, living: Iterable[GangId]) -> list[GangId]:
        """The gangs whose rest is over. Forgets nodes after a while, and gangs that are gone once nothing is left to know."""
        rested: list[GangId] = []
        exist = set(living)
        for gang, setback in list(self._known.items()):
            setback.avoid = {node: until for node, until in setback.avoid.items() if until > now}
            if setback.until and setback.until <= now:
                setback.until = 0.0
                rested.append(gang)
            if not setback.until and not setback.avoid and gang not in exist:
                del self._known[gang]
        return rested
