"""The nodes as placement reads them, in name order, and a log of those that changed."""

from __future__ import annotations

import bisect
from operator import attrgetter
from typing import TYPE_CHECKING

from fairlead.engine.allocator.candidates import Candidates, candidates
from fairlead.engine.inventory.changes import ChangeLog

if TYPE_CHECKING:
    from fairlead.engine.allocator.requests import CompiledRequest
    from fairlead.engine.inventory.node_devices import NodeDevices
    from fairlead.engine.inventory.nodes import NodeInfo
    from fairlead.engine.inventory.selectors import Selectors

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
