"""The gangs that hold devices, in the order of the snapshot, kept by change: a run of the loop sorts none of those that stay as they are.

A gang that is built anew and holds the same as before stays the same object, so that the engine need not look at it again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping

from fairlead.controller.gangs.gangs import GangId
from fairlead.engine.types.gangs import RunningGang


class Holding:
    def __init__(self) -> None:
        self._gangs: dict[str, RunningGang] = {}  # by id
        self._ids: list[str] = []  # sorted
        self._all: tuple[RunningGang, ...] | None = ()

    def get(self, gang_id: GangId) -> RunningGang | None:
        return self._gangs.get("/".join(gang_id))

    def set(self, gang_id: GangId, running: RunningGang | None) -> None:
        """What the gang holds from now on; None: nothing."""
        key = "/".join(gang_id)
        before = self._gangs.get(key)
        if running == before:
            return
        self._all = None
        if running is None:
            del self._gangs[key]
            del self._ids[bisect_left(self._ids, key)]
            return
        if before is None:
            insort(self._ids, key)
        self._gangs[key] = running

    def all(self, instead: Mapping[GangId, RunningGang]) -> tuple[RunningGang, ...]:
        """In order of ids; of some gangs what they hold `instead`, also where they held nothing."""
        if not instead:
            if self._all is None:
                self._all = tuple(map(self._gangs.__getitem__, self._ids))
            return self._all
        gangs = self._gangs | {running.id: running for running in instead.values()}
        ids = self._ids
        if len(gangs) > len(ids):
            ids = sorted([*ids, *(gangs.keys() - self._gangs.keys())])  # nearly sorted: in linear time
        return tuple(map(gangs.__getitem__, ids))
