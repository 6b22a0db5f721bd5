"""Sums of what was counted on the nodes for one kind of request, and the gangs that hold most of it, kept up to date as nodes change.

Example: of 500 nodes two have changed since the last decision: their former counts are subtracted, their new ones added. One of 500 running
gangs has ended: its claim is taken off its gang's sum, and the eight largest are read off the order that the sums are kept in.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sized
from typing import Any, NamedTuple, TypeVar

from fairlead.engine.explain.nodes import NodeRefusals
from fairlead.engine.inventory.changes import ChangeLog
from fairlead.engine.placement.model import CandidateNode
from fairlead.engine.types.reasons import Holder, Rejection

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


K = TypeVar("K", bound="Sized")

KEPT_MAX = 100_000  # results of one node, over all kinds of request
KINDS_MIN = 4  # kinds of request whose results are kept in any case


class RequestCounts:
    """The cluster's devices for one request of one shape: how many are free, and how many each rejection removed."""

    def __init__(self) -> None:
        self.devices = 0
        self.free = 0
        self.full = 0  # free on nodes that have no room left for the pods, and
        self.away = 0  # free on nodes that would take them and take none now: these do not count as free
        self.best = 0  # most free on one node
        self.nodes = 0  # nodes with at least one free
        self.removed: dict[Rejection, int] = {}
        # By claim UID, or gang id for this decision's; without those of `cluster`.
        self.holders: dict[str, int] = {}
        self.cluster: LargestHolders | None = None
        self.elsewhere: Iterable[NodeCounts] = ()  # of `cluster`, on nodes that the pods may not use
        self.detail = ""
        self.incomplete = False
        self.shown: tuple[Holder, ...] | None = None  # the largest holders, once computed

    def add(self, node: CandidateNode, counts: NodeCounts, refusals: NodeRefusals) -> None:
        if node not in refusals.willing:
            self.full += counts.free if node in refusals.full else 0
            self.away += counts.free if node in refusals.away else 0
            counts = counts.refused()
        self.devices += counts.devices
        for why, number in counts.removed.items():
            self.removed[why] = self.removed.get(why, 0) + number
        for holder, devices in counts.holders.items() if refusals.may_take(node) else ():
            self.holders[holder] = self.holders.get(holder, 0) + devices
        self.incomplete = self.incomplete or bool(counts.removed.get(Rejection.POOL))
        if counts.free:
            self.free += counts.free
            self.nodes += 1
            self.best = max(self.best, counts.free)

    def largest(self, count: int, owners: ClaimOwners, queues: Mapping[str, str]) -> tuple[Holder, ...]:
        """The gangs that hold most. `queues` are those of this decision's gangs, by id."""
        if self.shown is None:
            own: dict[Owner, int] = {}
            for holders, sign in ((self.holders, 1), *((each.holders, -1) for each in self.elsewhere)):
                for holder, devices in holders.items():
                    known = (holder, queues[holder]) if holder in queues else UNKNOWN
                    owner = owners.by_claim.get(holder, known)
                    own[owner] = own.get(owner, 0) + sign * devices
            most = (self.cluster or LargestHolders({})).largest(count, owners, own)
            self.shown = tuple(Holder(gang=gang, queue=queue, devices=devices) for devices, (gang, queue) in most)
        return self.shown


class NodeCounts:
    """The share of one node in the RequestCounts, pods' needs besides devices aside."""

    __slots__ = ("detail", "devices", "free", "holders", "removed")

    def __init__(self) -> None:
        self.devices = 0
        self.free = 0
        self.removed: dict[Rejection, int] = {}
        self.holders: dict[str, int] = {}
        self.detail = ""

    def refused(self) -> NodeCounts:
        """The same where the node does not take the pods: its free devices are of no use to them."""
        counts = NodeCounts()
        counts.devices, counts.holders, counts.detail = self.devices, self.holders, self.detail
        counts.removed = dict(self.removed)
        if self.free:
            counts.removed[Rejection.NODE] = counts.removed.get(Rejection.NODE, 0) + self.free
        return counts


class ClusterCounts:
    """The sum of all nodes' counts for one kind of request, kept by change. Memory only."""

    def __init__(self) -> None:
        self.cursor = -1  # of the log of changed nodes
        self.nodes: dict[CandidateNode, NodeCounts] = {}
        self.devices = 0
        self.free: dict[CandidateNode, int] = {}  # devices that are free there, where there are any
        self.removed: dict[Rejection, int] = {}
        self.holders: dict[str, int] = {}
        self.largest = LargestHolders(self.holders)
        self.details: dict[str, str] = {}  # by name of node
        self.special: list[CandidateNode] = []  # nodes that were left out last

    def __len__(self) -> int:
        return len(self.nodes)

    def put(self, node: CandidateNode, counts: NodeCounts | None) -> None:
        """The node's counts from here on; None: it does not count."""
        before = self.nodes.pop(node, None)
        if before is not None:
            self._add(node, before, -1)
        if counts is not None:
            self.nodes[node] = counts
            self._add(node, counts, 1)

    def _add(self, node: CandidateNode, counts: NodeCounts, times: int) -> None:
        self.devices += times * counts.devices
        _note(self.free, node, times * counts.free)
        for why, number in counts.removed.items():
            _note(self.removed, why, times * number)
        for holder, devices in counts.holders.items():
            _note(self.holders, holder, times * devices)
            self.largest.changed(holder)
        if counts.detail and times > 0:
            self.details[node.name] = counts.detail
        elif counts.detail:
            del self.details[node.name]

    def total(self, others: Mapping[CandidateNode, NodeCounts], refusals: NodeRefusals) -> RequestCounts:
        """For pods that these nodes refuse; with the counts of other nodes."""
        counts = RequestCounts()
        counts.devices = self.devices
        counts.removed = dict(self.removed)
        reachable = [free for node, free in self.free.items() if node in refusals.willing]
        counts.free, counts.nodes, counts.best = sum(reachable), len(reachable), max(reachable, default=0)
        refused = sum(self.free.values()) - counts.free if len(reachable) < len(self.free) else 0
        if refused:
            counts.removed[Rejection.NODE] = counts.removed.get(Rejection.NODE, 0) + refused
            counts.full = sum(self.free.get(node, 0) for node in refusals.full)
            counts.away = sum(self.free.get(node, 0) for node in refusals.away)
        counts.cluster = self.largest
        counts.elsewhere = (each for node, each in self.nodes.items() if not refusals.may_take(node))
        counts.incomplete = bool(self.removed.get(Rejection.POOL))
        for node, each in others.items():
            counts.add(node, each, refusals)
        details = self.details | {node.name: each.detail for node, each in others.items() if each.detail}
        counts.detail = details[min(details)] if details else ""
        return counts


def _note(sums: dict[Any, int], key: Any, number: int) -> None:
    """Add to a sum; one that is 0 is left out."""
    value = sums.get(key, 0) + number
    if value:
        sums[key] = value
    else:
        sums.pop(key, None)


class KnownCounts:
    """What was found on each node, by kind of request, kept from decision to decision. Memory only."""

    def __init__(self) -> None:
        self._known: dict[object, Any] = {}

    def of(self, kind: object, nodes: int, make: Callable[[], K]) -> K:
        """The kinds that were asked for longest ago go first."""
        found: K | None = self._known.pop(kind, None)
        if found is None or len(found) > 2 * nodes:  # of nodes that are gone
            found = make()
        kinds_max = max(KINDS_MIN, KEPT_MAX // max(1, nodes))
        while len(self._known) >= kinds_max:
            del self._known[next(iter(self._known))]
        self._known[kind] = found
        return found

    def renew(self, kind: object, fresh: K) -> K:
        self._known[kind] = fresh
        return fresh
