"""What is due though nothing changed: gangs' deadlines, the end of their backoffs and held places, and garbage collection."""

from __future__ import annotations

from fairlead.controller.book.book import Book
from fairlead.controller.commit import claim_reconciler
from fairlead.controller.commit.backoff import GangBackoffs
from fairlead.controller.commit.gang_tasks import GangTasks
from fairlead.controller.commit.move_places import Moves
from fairlead.controller.deadlines import Deadlines
from fairlead.controller.watch.caches import Caches


class Due:
    """Times are unix seconds; `now`: when the term begins."""

    def __init__(
        self, caches: Caches, book: Book, tasks: GangTasks, backoffs: GangBackoffs, moves: Moves, *, now: float
    ) -> None:
        self.deadlines = Deadlines(book)
        self._caches = caches
        self._tasks = tasks
        self._backoffs = backoffs
        self._moves = moves
        self._sweep_at = now + claim_reconciler.SWEEP_S

    def next(self) -> float:
        others = (
            self.deadlines.next(), self._backoffs.next_end(), self._tasks.settled_at(), self._moves.next_end(),
        )  # fmt: skip
        return min((self._sweep_at, *(at for at in others if at is not None)))

    def expire(self, now: float) -> None:
        """Gangs whose deadline or backoff has passed are to be reconciled again."""
        triggers = self._caches.triggers
        self._tasks.settle_due(now)
        triggers.gangs(self.deadlines.take_due(now))
        if self._moves.expire(now):
            triggers.decide()
        for gang_id in self._backoffs.expire(now, self._caches.gangs):
            triggers.decide(urgent=True)
            triggers.gang(gang_id)

    def take_sweep(self, now: float) -> bool:
        """Whether garbage is to be collected now."""
        come = now >= self._sweep_at
        if come:
            self._sweep_at = now + claim_reconciler.SWEEP_S
        return come
