"""Backoff of gangs whose admission failed: how long they are not requested, and which nodes they avoid.

Each failure in a row doubles the wait. Nodes to which a gang did not bind are avoided for `AVOID_S`, and its age is kept
when its pods are recreated. In memory only: a new leader starts without backoff. Reads no clock: `now` is an argument.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from random import Random

from fairlead.controller.book.book import Book
from fairlead.controller.book.gang_state import Backoff, GangState
from fairlead.controller.commit.refusals import Refusals
from fairlead.controller.gangs.membership.gangs import GangId
from fairlead.kube import limits

AVOID_S = 600.0
BACKOFF = limits.Backoff(base_s=1.0, max_s=120.0)


class GangBackoffs:
    def __init__(self, book: Book, random: Random) -> None:
        self._book = book
        self._random = random
        self.refusals = Refusals()
        self._expired_at = 0.0
        self._known = book.all(GangState.backoff)

    def note_failure(
        self, gang: GangId, why: str, *, now: float, nodes: Iterable[str] = (), created: float | None = None
    ) -> None:
        """`nodes` are to be avoided; `created` is the gang's age, when its pods are evicted."""
        backoff = self._book[gang].backoff = self.get(gang)
        backoff.why = why
        backoff.until = now + BACKOFF.delay(backoff.failures, self._random)
        backoff.failures += 1
        for node in nodes:
            backoff.avoid[node] = now + AVOID_S
        if created is not None:
            backoff.queued_since = created if backoff.queued_since is None else min(created, backoff.queued_since)

    def get(self, gang: GangId) -> Backoff:
        """An empty one when nothing is known of the gang."""
        return self._known.get(gang) or Backoff()

    def reset(self, gang: GangId) -> None:
        """The gang runs."""
        self._book[gang].backoff = None

    def active(self, gang: GangId, now: float) -> bool:
        return self.get(gang).until > now

    def next_end(self) -> float | None:
        """When the next backoff, or time of a refused node, is over; unix seconds."""
        ends = [backoff.until for backoff in self._known.values() if backoff.until]
        refused = self.refusals.next_end(self._expired_at)
        return min((*ends, *(() if refused is None else (refused,))), default=None)

    def expire(self, now: float, existing: Container[GangId]) -> list[GangId]:
        """The gangs whose backoff is over now, or a node's time. Drops expired nodes, and gangs that are gone and have nothing left."""
        over: list[GangId] = self.refusals.expire(self._expired_at, now)
        self._expired_at = now
        for gang, backoff in list(self._known.items()):
            backoff.avoid = {node: until for node, until in backoff.avoid.items() if until > now}
            if backoff.until and backoff.until <= now:
                backoff.until = 0.0
                over.append(gang)
            if not backoff.until and not backoff.avoid and gang not in existing:
                self.reset(gang)
        return over
