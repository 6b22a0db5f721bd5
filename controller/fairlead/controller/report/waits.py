"""How long gangs wait for their devices: from their creation until they run, or until they are gone without having run.

Creation is that of the gang's oldest pod, or of the gang that was evicted before it: the wait that `fairlead report` and forecasts
count, too. A gang that ran before this replica led is never counted.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from fairlead.controller.book.book import Book
from fairlead.controller.book.gang_state import GangState, Wait
from fairlead.controller.gangs.membership.gangs import GangId


class Waits:
    def __init__(self, book: Book) -> None:
        self._book = book
        self._waits = book.all(GangState.wait)

    def waits(self, gang: GangId, queue: str, created: float) -> None:
        """The gang does not run yet."""
        self._book[gang].wait = Wait(queue, created)

    def known(self, gang: GangId) -> bool:
        """Whether it is known to wait. Its queue and creation are those of when it began to."""
        return gang in self._waits

    def ended(self, gang: GangId) -> Wait | None:
        """It runs, or is gone. None: it did not wait, or that was said before."""
        return self._book.take(gang, GangState.wait)

    def oldest(self, *, but: Container[GangId] = ()) -> Mapping[str, float]:
        """By queue, since when the gang waits that has waited longest; `but` are those that do not count."""
        found: dict[str, float] = {}
        for gang, (queue, at) in self._waits.items():
            if gang not in but:
                found[queue] = min(at, found.get(queue, at))
        return found
