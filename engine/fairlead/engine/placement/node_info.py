"""For one shape, the nodes that might take it, best first: a heap that follows the ledger.

Exists so that placing a pod costs a look at the best node, not at all nodes. What it offers is likely, not certain: the
allocator has the last word. Keeps: an entry is as of its node's latest change; nodes that changed since are looked at again
before anything is offered.
Scores are tuples of whole numbers, low is better, ending in the node's place by name: total, so decisions repeat.
"""

from __future__ import annotations

import bisect
import heapq
from typing import TYPE_CHECKING

from fairlead.engine.allocator.candidates import Candidates, candidates
from fairlead.engine.inventory import node_selector as nodes_selector
from fairlead.engine.inventory.changes import ChangeLog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead.engine.allocator.requests import CompiledRequest
    from fairlead.engine.inventory.inventory import NodeDevices
    from fairlead.engine.inventory.ledger import Ledger
    from fairlead.engine.inventory.nodes import NodeInfo
    from fairlead.engine.inventory.selectors import Selectors
    from fairlead.engine.placement.fragmentation import FragmentationScore
    from fairlead.engine.placement.shapes import UnitShape

Score = tuple[bool, int, int, int, int, int, str]


class CandidateNode:
    """One node, as placement sees it. Lives as long as a node of that name does."""

    __slots__ = ("changes", "devices", "name", "node")

    def __init__(self, node: NodeInfo, devices: NodeDevices) -> None:
        self.name = node.name
        self.node = node
        self.devices = devices
        self.changes = 0  # how often anything was taken or given back here

    def __repr__(self) -> str:
        return f"CandidateNode({self.name})"


class NodeSnapshot:
    """All nodes, in name order, and a log of those that changed: in the cluster, or by the decision being made."""

    def __init__(self, selectors: Selectors) -> None:
        self.selectors = selectors
        self.all: list[CandidateNode] = []
        self.by_name: dict[str, CandidateNode] = {}
        self.log: ChangeLog[CandidateNode] = ChangeLog()
        self.membership = 0  # grows when nodes come, go, or change what they are or publish
        self._roaming: set[CandidateNode] = set()

    @property
    def roaming(self) -> bool:
        """Whether some node reaches devices that are not its own."""
        return bool(self._roaming)

    def changed(self, site: CandidateNode) -> None:
        """Devices or room of this node were taken or given back."""
        site.changes += 1
        self.log.note(site)

    def put(self, node: NodeInfo, devices: NodeDevices) -> None:
        """A node came, or is to be looked at again."""
        site = self.by_name.get(node.name)
        if site is None:
            site = self.by_name[node.name] = CandidateNode(node, devices)
            bisect.insort(self.all, site, key=_name)
            self.membership += 1
        elif site.node is not node or site.devices is not devices:
            site.node, site.devices = node, devices
            self.membership += 1
        if devices.local_only:
            self._roaming.discard(site)
        else:
            self._roaming.add(site)
        self.changed(site)

    def remove(self, name: str) -> None:
        site = self.by_name.pop(name, None)
        if site is not None:
            del self.all[bisect.bisect_left(self.all, name, key=_name)]
            self._roaming.discard(site)
            self.membership += 1
            self.log.note(site)

    def candidates(self, site: CandidateNode, ask: CompiledRequest) -> Candidates:
        return candidates(site.devices, ask.filter, self.selectors)


def _name(site: CandidateNode) -> str:
    return site.name


class ScoredNodes:
    """The heap of one shape over all sites, or over a scope. Stays right while sites change, see `_catch_up`."""

    def __init__(
        self,
        shape: UnitShape,
        sites: NodeSnapshot,
        ledger: Ledger,
        *,
        scope: frozenset[CandidateNode] | None = None,
        spread: bool,
        avoid: frozenset[str],
        outlook: FragmentationScore | None = None,
    ) -> None:
        self.shape = shape
        self.sites = sites
        self.ledger = ledger
        self.spread = spread
        self.avoid = avoid
        self.outlook = None if spread else outlook
        self.scope = scope
        self.preferring = [needs for needs in shape.needs if needs.preferred]
        self.among: set[CandidateNode] = set()  # sites that may take the shape when they have room
        self._stamp: dict[CandidateNode, int] = {}
        self._heap: list[tuple[Score, int, CandidateNode]] = []
        self._cursor = -1
        self._catch_up()

    def _never(self, site: CandidateNode) -> bool:
        node = site.node
        for needs in self.shape.needs:
            if node.refuses(needs) is not None:
                return True
        bound = self.shape.bound
        return bool(bound) and any(not nodes_selector.matches(selector, node.name, node.labels) for selector in bound)

    def score(self, site: CandidateNode) -> Score | None:
        """None when the node surely does not take the shape now."""
        node = site.node
        needs = self.shape.needs
        if len(needs) == 1:
            if self.ledger.node_lacks(node, needs[0]) is not None:
                return None
        elif not self._room_for_all(node):
            return None
        left = rank = 0
        for claim in self.shape.claims:
            for asks in claim.alternatives:
                spare = self._spare(site, asks)
                if spare is None:
                    return None
                rank += spare[0]
                left += spare[1]
        preference = sum([node.preference(need) for need in self.preferring])
        waste, loss = (0, 0) if self.outlook is None else self.outlook.cost(self.shape, site)
        return (node.name in self.avoid, rank, -preference, waste, loss, -left if self.spread else left, site.name)

    def _room_for_all(self, node: NodeInfo) -> bool:
        loaded = 0
        for needs in self.shape.needs:
            if self.ledger.node_lacks(node, needs) is not None:
                break
            self.ledger.load(node, needs, 1)
            loaded += 1
        for needs in self.shape.needs[:loaded]:
            self.ledger.load(node, needs, -1)
        return loaded == len(self.shape.needs)

    def _spare(self, site: CandidateNode, asks: tuple[CompiledRequest, ...]) -> tuple[int, int] | None:
        """The place of the first alternative that may do, and how many devices it would leave over."""
        for place, ask in enumerate(asks):
            found = self.sites.candidates(site, ask)
            if ask.all:
                if found.all_problem is None:
                    return place, 0
                continue
            if len(found.devices) < ask.count:
                continue
            free = self.free(ask, found)
            if free >= ask.count:
                return place, free - ask.count
        return None

    def free(self, ask: CompiledRequest, found: Candidates) -> int:
        ledger = self.ledger
        if ask.admin:
            return len(found.devices)
        if found.plain:
            taken = ledger.taken
            if ledger.empty:
                return sum(device not in taken for device in found.devices)
            if ledger.gone:
                return sum(ledger.free(device) for device in found.devices)
            return sum(device.use is None and device not in taken for device in found.devices)
        number, used = 0, ledger.used
        for device in found.devices:
            if device.use is None and device not in used and device.shared and not device.draws:
                number += device not in ledger.taken  # untouched: it was found big enough
            elif (
                ledger.free(device)
                and (not device.draws or ledger.draws_fit(device))
                and (not device.shared or ledger.room(device, found.consumption[device]))
            ):
                number += 1
        return number

    # ---------------------------------------------------------------------------------------------------- the heap

    def best(self, skip: frozenset[CandidateNode] | set[CandidateNode] = frozenset()) -> CandidateNode | None:
        """The best node now, leaving out `skip`; None when none is left."""
        self._catch_up()
        aside: list[tuple[Score, int, CandidateNode]] = []
        found: CandidateNode | None = None
        while self._heap:
            entry = self._heap[0]
            site = entry[2]
            if entry[1] != self._stamp.get(site, 0):
                heapq.heappop(self._heap)
                continue
            if site in skip:
                aside.append(heapq.heappop(self._heap))
                continue
            found = site
            break
        for entry in aside:
            heapq.heappush(self._heap, entry)
        return found

    def drop(self, site: CandidateNode) -> None:
        """The allocator said no: not again until the node changes."""
        self._stamp[site] = self._stamp.get(site, 0) + 1

    def again(self, site: CandidateNode) -> None:
        """Forget what the allocator said."""
        if site in self.among:
            stamp = self._stamp[site] = self._stamp.get(site, 0) + 1
            score = self.score(site)
            if score is not None:
                heapq.heappush(self._heap, (score, stamp, site))

    def ranked(self) -> list[CandidateNode]:
        """All nodes that might take it now, best first."""
        self._catch_up()
        return [site for _, stamp, site in sorted(self._heap, key=_by_score) if stamp == self._stamp.get(site, 0)]

    def _catch_up(self) -> None:
        """Look again at the sites that changed since the last time; at all of them where devices roam."""
        log = self.sites.log
        if self._cursor == log.cursor:
            return
        changed: Iterable[CandidateNode] | None = log.since(self._cursor)
        self._cursor = log.cursor
        if changed is None or self.sites.roaming:
            self._rebuild()
            return
        for site in dict.fromkeys(changed):
            stamp = self._stamp[site] = self._stamp.get(site, 0) + 1
            if self._eligible(site):
                self.among.add(site)
                score = self.score(site)
                if score is not None:
                    heapq.heappush(self._heap, (score, stamp, site))
            else:
                self.among.discard(site)
        if len(self._heap) > 64 + 4 * len(self.among):
            self._heap = [entry for entry in self._heap if entry[1] == self._stamp.get(entry[2], 0)]
            heapq.heapify(self._heap)

    def _eligible(self, site: CandidateNode) -> bool:
        return (
            (self.scope is None or site in self.scope)
            and self.sites.by_name.get(site.name) is site
            and not self._never(site)
        )

    def _rebuild(self) -> None:
        self.among = {site for site in (self.sites.all if self.scope is None else self.scope) if self._eligible(site)}
        self._stamp = {}
        self._heap = []
        for site in self.among:
            score = self.score(site)
            if score is not None:
                self._heap.append((score, 0, site))
        heapq.heapify(self._heap)


def _by_score(entry: tuple[Score, int, CandidateNode]) -> Score:
    return entry[0]
