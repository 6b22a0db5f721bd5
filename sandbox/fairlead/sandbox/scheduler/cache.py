"""What the scheduler remembers from one cycle to the next: what is in use, and which pods wait.

A cycle does not add up all pods again, and a pod that is being bound already counts: an assumption ends when the informers show the
object as assumed, or when it is forgotten. Of pods that wait, active ones come by priority, then age; an unschedulable one costs nothing
while the cluster does not change, and is tried at most once per backoff (1 s doubling to 10 s) while it does; a gated one leaves the
queue, and its next change adds it again. No I/O.
Source: kubernetes pkg/scheduler/backend/queue/scheduling_queue.go, without its per-plugin hints.
"""

from __future__ import annotations

import asyncio
import collections
import heapq
import itertools
from collections.abc import Iterable, Mapping

from fairlead.kube.limits import Clock
from fairlead.sandbox.node_fit import pod_requests
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


class PodQueue:
    def __init__(self, *, clock: Clock, backoff_s: tuple[float, float]) -> None:
        self._clock = clock
        self._first_s, self._max_s = backoff_s
        self._heap: list[tuple[int, int, str]] = []
        self._active: dict[str, int] = {}  # key -> sequence of its live heap entry
        self._unschedulable: dict[str, float] = {}  # key -> not before
        self._backoff: dict[str, float] = {}  # unschedulable, and something changed since -> due
        self._failed: dict[str, float] = {}  # an error and no verdict -> due, whatever changes
        self._attempts: dict[str, int] = {}
        self._priority: dict[str, int] = {}
        self._age: dict[str, int] = {}
        self._sequence = itertools.count()
        self._wake = asyncio.Event()

    def add(self, key: str, *, priority: int = 0) -> None:
        """Make the pod active: it is new, or it changed. One that failed by an error waits until it is due all the same.

        Upstream pops pods before their backoff is over where nothing else is active (SchedulerPopFromBackoffQ), but none
        that failed by an error: those have a queue of their own (podErrorBackoffQ of backend/queue/backoff_queue.go).
        """
        self._priority[key] = priority
        self._age.setdefault(key, next(self._sequence))
        if key in self._failed:
            return
        self._unschedulable.pop(key, None)
        self._backoff.pop(key, None)
        if key not in self._active:
            self._active[key] = self._age[key]
            heapq.heappush(self._heap, (-priority, self._age[key], key))
        self._wake.set()

    def drop(self, key: str) -> None:
        waiting = (self._unschedulable, self._backoff, self._failed)
        for each in (self._active, *waiting, self._attempts, self._priority, self._age):
            each.pop(key, None)

    bound = drop

    def unschedulable(self, key: str, *, retry: bool = False) -> None:
        """The pod could not be scheduled. `retry`: because of an error, so it is tried again even when nothing changes."""
        attempts = self._attempts[key] = self._attempts.get(key, 0) + 1
        due_s = self._clock() + min(self._max_s, self._first_s * 2.0 ** (attempts - 1))
        (self._failed if retry else self._unschedulable)[key] = due_s
        self._wake.set()

    def something_changed(self) -> None:
        """Every unschedulable pod may fit now: each is tried again once its backoff is over."""
        if self._unschedulable:
            self._backoff |= self._unschedulable
            self._unschedulable.clear()
            self._wake.set()

    async def get(self) -> str:
        while True:
            wait_s = self._promote()
            while self._heap:
                _, _, key = heapq.heappop(self._heap)
                if self._active.pop(key, None) is not None:
                    return key
            self._wake.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _promote(self) -> float | None:
        """Make active what is due; seconds until the next is due, None if nothing waits."""
        now_s = self._clock()
        for waiting in (self._backoff, self._failed):
            for key in [key for key, due_s in waiting.items() if due_s <= now_s]:
                del waiting[key]
                self.add(key, priority=self._priority.get(key, 0))
        due = [*self._backoff.values(), *self._failed.values()]
        return min(due) - now_s if due else None
