"""The nodes as placement reads them, with a log of those that changed; and where a gang's units are placed on them, or how far that got."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from fairlead.engine.allocator.candidates import Candidates, candidates
from fairlead.engine.allocator.requests import CompiledRequest
from fairlead.engine.allocator.result import Pick, SearchResult, SearchStatus
from fairlead.engine.inventory.changes import ChangeLog
from fairlead.engine.inventory.nodes import NodeInfo
from fairlead.engine.inventory.pool import NodeDevices
from fairlead.engine.inventory.selectors import Selectors
from fairlead.engine.placement.shapes import PlacementUnit
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.reasons import NodeShortage

_by_name = attrgetter("name")


class CandidateNode:
    """One node with its devices. Kept as long as there is a node of that name."""

    __slots__ = ("changes", "devices", "info", "name")

    def __init__(self, info: NodeInfo, devices: NodeDevices) -> None:
        self.name = info.name
        self.info = info
        self.devices = devices
        self.changes = 0  # how often its devices or its room changed

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
        self.roster = 0  # grows when nodes come or go
        self._network_attached: set[CandidateNode] = set()

    @property
    def has_network_attached(self) -> bool:
        """Whether some node reaches devices that are not its own."""
        return bool(self._network_attached)

    def changed(self, node: CandidateNode) -> None:
        """Devices or room of this node were taken or released."""
        node.changes += 1
        self.log.note(node)

    def put(self, info: NodeInfo, devices: NodeDevices) -> None:
        """A node came or may have changed."""
        node = self.by_name.get(info.name)
        if node is None:
            node = self.by_name[info.name] = CandidateNode(info, devices)
            bisect.insort(self.all, node, key=_by_name)
            self.membership += 1
            self.roster += 1
        elif node.info is not info or node.devices is not devices:
            node.info, node.devices = info, devices
            self.membership += 1
        if devices.local_only:
            self._network_attached.discard(node)
        else:
            self._network_attached.add(node)
        self.changed(node)

    def remove(self, name: str) -> None:
        node = self.by_name.pop(name, None)
        if node is not None:
            del self.all[bisect.bisect_left(self.all, name, key=_by_name)]
            self._network_attached.discard(node)
            self.membership += 1
            self.roster += 1
            self.log.note(node)

    def candidates(self, node: CandidateNode, request: CompiledRequest) -> Candidates:
        return candidates(node.devices, request.filter, self.selectors)


@dataclass(slots=True, eq=False)
class UnitPlacement:
    unit: PlacementUnit
    node: CandidateNode
    picks: list[list[Pick]]
    fixed: bool = False  # other units depend on these very devices


@dataclass(slots=True)
class PlacementResult:
    """`placed` is the whole gang or empty. When empty: how far placement got, and what stopped it."""

    status: SearchStatus
    placed: list[UnitPlacement] = field(default_factory=list)
    members_placed: int = 0  # before it gave up
    unplaced: PlacementUnit | None = None  # the unit that fits no node
    closest: CandidateNode | None = None
    short: SearchResult | None = None
    beside: tuple[NodeShortage, ...] = ()  # nodes that terms about other pods ruled out for `unplaced` then
    rule: str = ""  # the annotation without whose rule it has a place: MODELS, ALIGN
    starved: bool = False  # its namespace had no steps left: no verdict on equal gangs of others


def better(best: PlacementResult, other: PlacementResult) -> PlacementResult:
    """The more informative of two failures: an undecided one, else the one that got further."""
    if other.status is SearchStatus.BUDGET_ENDED and best.status is not SearchStatus.BUDGET_ENDED:
        return other
    if best.status is SearchStatus.BUDGET_ENDED and other.status is not SearchStatus.BUDGET_ENDED:
        return best
    return other if other.members_placed > best.members_placed or best.unplaced is None else best


class NodeScope(NamedTuple):
    """Which nodes a gang may use, and which of them first."""

    spread: bool = False  # the emptiest node first; else the fullest that fits
    avoid: frozenset[str] = frozenset()  # names of nodes that come last
    among: TopologyDomain | None = None  # None: all nodes
    refused: frozenset[str] = frozenset()  # names of nodes that are not used

    @classmethod
    def of(cls, gang: GangRequest, *, spread: bool, among: TopologyDomain | None = None) -> NodeScope:
        refused = frozenset([each.node for each in gang.refused]) if gang.refused else _NONE
        return cls(spread, frozenset(gang.avoid), among, refused)


_NONE: frozenset[str] = frozenset()


class TopologyDomain:
    """Some of the nodes: those of one topology domain, or of a few. Compared by identity."""

    __slots__ = ("name", "nodes")

    def __init__(self, name: str, nodes: Sequence[CandidateNode]) -> None:
        self.name = name
        self.nodes = nodes
