"""When each gang is to be looked at though nothing changed. Asking for the next costs the same however many there are. Pure."""

from __future__ import annotations

import heapq

from fairlead.controller.book.book import Book
from fairlead.controller.book.gang_state import GangState
from fairlead.controller.gangs.membership.gangs import GangId

OUTDATED_MAX = 1000  # entries beyond those that count, until they are dropped


class Deadlines:
    def __init__(self, book: Book) -> None:
        self._book = book
        self._at = book.all(GangState.deadline)
        self._heap: list[tuple[float, GangId]] = []  # also what was dropped or replaced

    def set(self, gang_id: GangId, at: float) -> None:
        """The earliest of several counts."""
        if at >= self._at.get(gang_id, float("inf")):
            return
        self._book[gang_id].deadline = at
        heapq.heappush(self._heap, (at, gang_id))
        if len(self._heap) > 2 * len(self._at) + OUTDATED_MAX:
            self._heap = [(when, each) for each, when in self._at.items()]
            heapq.heapify(self._heap)

    def drop(self, gang_id: GangId) -> None:
        self._book[gang_id].deadline = None

    def next(self) -> float | None:
        """The first of all."""
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: float) -> list[GangId]:
        """The gangs whose deadline has come; it is dropped."""
        due: list[GangId] = []
        while (at := self.next()) is not None and at <= now:
            _, gang_id = heapq.heappop(self._heap)
            self.drop(gang_id)
            due.append(gang_id)
        return due
