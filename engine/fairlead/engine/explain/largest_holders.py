"""Which gangs hold most of the devices that one kind of request could have, kept up to date as claims come and go.

Example: of 500 running gangs one has ended since the last decision: its claim is taken off its gang's sum, and the eight
largest are read off the order that the sums are kept in.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fairlead.engine.inventory.changes import ChangeLog

Owner = tuple[str, str]  # gang, queue
UNKNOWN: Owner = ("", "")


class ClaimOwners(NamedTuple):
    """The owners of claims by UID, and the log of those of which the owner may have changed."""

    by_claim: Mapping[str, Owner]
    changes: ChangeLog[str]


class LargestHolders:
    """The largest holders of the devices that `holders` counts by claim UID, a mapping that others keep up to date. Memory only."""

    def __init__(self, holders: Mapping[str, int]) -> None:
        self._holders = holders
        self._stale: set[str] | None = None  # UIDs of claims whose devices may have changed; None: all
        self._owners: ClaimOwners | None = None
        self._cursor = 0  # of the log of owners
        self._counted: dict[str, tuple[Owner, int]] = {}  # by claim UID
        self._sums: dict[Owner, int] = {}
        self._order: dict[int, list[Owner]] = {}  # by number of devices: sorted

    def changed(self, uid: str) -> None:
        """The claim holds more or fewer of the devices than before."""
        if self._stale is not None:
            self._stale.add(uid)
            if len(self._stale) > len(self._counted) + 1000:
                self._stale = None

    def largest(self, count: int, owners: ClaimOwners, more: Mapping[Owner, int]) -> list[tuple[int, Owner]]:
        """So many of them with their devices, most first, then by name; `more` are devices that only this answer counts, negative where
        it counts fewer.
        """
        self._catch_up(owners)
        sums = ((owner, self._sums.get(owner, 0) + devices) for owner, devices in more.items())
        found = [(-devices, owner) for owner, devices in sums if devices > 0]
        wanted = count + len(found)
        for devices in sorted(self._order, reverse=True):
            if len(found) >= wanted:
                break
            for owner in self._order[devices]:
                if owner not in more:
                    found.append((-devices, owner))
                    if len(found) >= wanted:
                        break
        return [(-devices, owner) for devices, owner in heapq.nsmallest(count, found)]

    def _catch_up(self, owners: ClaimOwners) -> None:
        given = None if self._owners is None else self._owners.changes
        handed = owners.changes.since(self._cursor) if given is owners.changes else None
        self._owners, self._cursor = owners, owners.changes.cursor
        stale: Iterable[str]
        if handed is None or self._stale is None:
            self._counted.clear()
            self._sums.clear()
            self._order.clear()
            stale = self._holders
        else:
            stale = self._stale.union(handed)
        for uid in stale:
            self._count(uid, owners)
        self._stale = set()

    def _count(self, uid: str, owners: ClaimOwners) -> None:
        before, devices = self._counted.pop(uid, None), self._holders.get(uid, 0)
        now = (owners.by_claim.get(uid, UNKNOWN), devices) if devices else None
        if now is not None:
            self._counted[uid] = now
        if now == before:
            return
        if before is not None:
            self._add(before[0], -before[1])
        if now is not None:
            self._add(*now)

    def _add(self, owner: Owner, devices: int) -> None:
        before = self._sums.pop(owner, 0)
        if before:
            level = self._order[before]
            del level[bisect_left(level, owner)]
            if not level:
                del self._order[before]
        if before + devices:
            self._sums[owner] = before + devices
            insort(self._order.setdefault(before + devices, []), owner)
