"""The scheduler's cache of what is in use: requests per node, devices per claim, assumed and nominated pods, allocations.

A cycle does not add up all pods again, and a pod that is being bound already counts. The loop reports changes; no I/O.
Invariant: an assumption ends when the informers show the object as assumed, or when it is forgotten.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping

from fairlead.sandbox.objects import (
    Obj,
    is_deleting,
    name_of,
    node_name_of,
    phase_of,
    results_of,
    spec_of,
    status_of,
    uid_of,
)
from fairlead.sandbox.resource_amounts import pod_requests
from fairlead.sandbox.scheduler.fit import NodeInfo
from fairlead.sandbox.scheduler.neighbours import required_terms
from fairlead.sandbox.scheduler.pools import DeviceKey


class Cache:
    def __init__(self) -> None:
        self.nodes: dict[str, NodeInfo] = {}
        self.allocated: collections.Counter[DeviceKey] = collections.Counter()
        self.repelling: set[str] = set()  # UIDs of placed pods with required anti-affinity
        self._placed: dict[str, tuple[str, Mapping[str, int], Obj]] = {}  # by pod UID
        self._nominated: dict[str, tuple[str, int, Mapping[str, int]]] = {}  # by pod UID: node, priority, requests
        self._assumed: set[str] = set()
        self._devices: dict[str, tuple[DeviceKey, ...]] = {}  # by claim UID
        self._in_flight: dict[str, tuple[DeviceKey, ...]] = {}

    # -- nodes and pods --------------------------------------------------------------------------------------------

    def set_node(self, node: Obj) -> None:
        name = name_of(node)
        info = self.nodes.get(name)
        if info is not None:
            info.node = node
            return
        info = self.nodes[name] = NodeInfo(node=node)
        for uid, (where, requests, pod) in self._placed.items():
            if where == name:
                info.add(requests)
                info.objects[uid] = pod
        for uid, (where, priority, requests) in self._nominated.items():
            if where == name:
                info.nominated[uid] = (priority, requests)

    def drop_node(self, name: str) -> None:
        self.nodes.pop(name, None)

    def set_pod(self, pod: Obj) -> None:
        """A pod as the apiserver has it. A finished pod uses nothing."""
        uid, node = uid_of(pod), node_name_of(pod)
        self._nominate(pod)
        if not node and uid in self._assumed:
            return
        self._assumed.discard(uid)
        known = self._placed.get(uid)
        ended = phase_of(pod) in {"Succeeded", "Failed"}
        if known is not None and known[0] == node and not ended:
            self._placed[uid] = (node, known[1], pod)
            if node in self.nodes:
                self.nodes[node].objects[uid] = pod
            return
        self._remove(uid)
        if node and not ended:
            self._put(pod, node)

    def drop_pod(self, uid: str) -> None:
        self._assumed.discard(uid)
        self._withdraw(uid)
        self._remove(uid)

    def _nominate(self, pod: Obj) -> None:
        """Room is kept for a pod that waits, gated or not, on the node of its `status.nominatedNodeName`."""
        self._withdraw(uid_of(pod))
        node = str(status_of(pod).get("nominatedNodeName") or "")
        if not node or node_name_of(pod) or is_deleting(pod) or phase_of(pod) in {"Succeeded", "Failed"}:
            return
        priority, requests = int(spec_of(pod).get("priority") or 0), pod_requests(pod)
        self._nominated[uid_of(pod)] = (node, priority, requests)
        if node in self.nodes:
            self.nodes[node].nominated[uid_of(pod)] = (priority, requests)

    def _withdraw(self, uid: str) -> None:
        known = self._nominated.pop(uid, None)
        if known is not None and known[0] in self.nodes:
            self.nodes[known[0]].nominated.pop(uid, None)

    def assume(self, pod: Obj, node: str) -> None:
        self._remove(uid_of(pod))
        self._put(pod, node)
        self._assumed.add(uid_of(pod))

    def forget(self, pod: Obj) -> None:
        """The pod was not bound after all."""
        if uid_of(pod) in self._assumed:
            self._assumed.discard(uid_of(pod))
            self._remove(uid_of(pod))

    def is_assumed(self, pod: Obj) -> bool:
        return uid_of(pod) in self._assumed

    def _put(self, pod: Obj, node: str) -> None:
        uid, requests = uid_of(pod), pod_requests(pod)
        self._placed[uid] = (node, requests, pod)
        if any(required_terms(pod, "podAntiAffinity")):
            self.repelling.add(uid)
        if node in self.nodes:
            self.nodes[node].add(requests)
            self.nodes[node].objects[uid] = pod

    def _remove(self, uid: str) -> None:
        placed = self._placed.pop(uid, None)
        self.repelling.discard(uid)
        if placed is not None and placed[0] in self.nodes:
            self.nodes[placed[0]].add(placed[1], -1)
            self.nodes[placed[0]].objects.pop(uid, None)

    # -- claims ----------------------------------------------------------------------------------------------------

    def set_claim(self, claim: Obj) -> None:
        uid = uid_of(claim)
        self._count(self._devices.pop(uid, ()), -1)
        keys = _devices(results_of(claim))
        if keys:
            self._devices[uid] = keys
            self._count(keys, 1)
            self.drop_allocation(uid)

    def drop_claim(self, uid: str) -> None:
        self._count(self._devices.pop(uid, ()), -1)
        self.drop_allocation(uid)

    def assume_allocation(self, claim: Obj, allocation: Obj) -> None:
        keys = _devices(allocation["devices"]["results"])
        self._in_flight[uid_of(claim)] = keys
        self._count(keys, 1)

    def drop_allocation(self, uid: str) -> None:
        self._count(self._in_flight.pop(uid, ()), -1)

    def is_in_flight(self, claim: Obj) -> bool:
        return uid_of(claim) in self._in_flight

    def _count(self, keys: Iterable[DeviceKey], by: int) -> None:
        for key in keys:
            self.allocated[key] += by
            if self.allocated[key] <= 0:
                del self.allocated[key]


def _devices(results: Iterable[Mapping[str, object]]) -> tuple[DeviceKey, ...]:
    """The devices that an allocation occupies; admin access occupies none."""
    return tuple(
        (str(each["driver"]), str(each["pool"]), str(each["device"])) for each in results if not each.get("adminAccess")
    )
