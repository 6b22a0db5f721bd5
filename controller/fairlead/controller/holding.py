"""The gangs that hold devices, in the order of the snapshot, kept by change: what stays as it is costs nothing.

A gang that is built anew and holds the same as before stays the same object, and the snapshot says which gangs came and went
since the one before, so that the engine looks at those only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from fairlead.controller.book.book import Book
from fairlead.controller.book.gang_state import GangState
from fairlead.controller.gangs.membership.gangs import GangId
from fairlead.engine.types.gangs import RunningGang, RunningSequence


class Holding:
    def __init__(self, book: Book) -> None:
        self._book = book
        self._gangs = book.all(GangState.holding)
        self._instead: Mapping[GangId, RunningGang] = {}  # at the last call of `all`
        self._changed: set[GangId] = set()  # since that call
        self._ids: list[str] = []  # of what that call returned
        self._list: list[RunningGang] = []
        self._all = RunningSequence.after(None, ())

    def get(self, gang_id: GangId) -> RunningGang | None:
        return self._gangs.get(gang_id)

    def set(self, gang_id: GangId, running: RunningGang | None) -> None:
        """What the gang holds from now on; None: nothing."""
        if running == self._gangs.get(gang_id):
            return
        self._changed.add(gang_id)
        self._book[gang_id].holding = running

    def all(self, instead: Mapping[GangId, RunningGang]) -> RunningSequence:
        """In order of ids; of some gangs what they hold `instead`, also where they held nothing."""
        changed = self._changed | self._instead.keys() | instead.keys()
        self._changed, self._instead = set(), instead
        gone: list[RunningGang] = []
        new: list[RunningGang] = []
        for key, gang_id in sorted(("/".join(gang_id), gang_id) for gang_id in changed):
            at = bisect_left(self._ids, key)
            before = self._list[at] if at < len(self._ids) and self._ids[at] == key else None
            running = instead.get(gang_id) or self._gangs.get(gang_id)
            if running == before:
                continue
            if before is not None:
                gone.append(before)
            if running is not None:
                new.append(running)
            self._put(at, key, before, running)
        if gone or new:
            self._all = RunningSequence.after(self._all, self._list, gone=gone, new=new)
        return self._all

    def _put(self, at: int, key: str, before: RunningGang | None, running: RunningGang | None) -> None:
        if running is None:
            del self._ids[at], self._list[at]
        elif before is None:
            self._ids.insert(at, key)
            self._list.insert(at, running)
        else:
            self._list[at] = running
