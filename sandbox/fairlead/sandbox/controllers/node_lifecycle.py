"""Nodes that stop: tainted when their Lease is not renewed, their pods evicted, and removed when the Node is deleted.

The decisions are pure functions above the class, which looks twice a second. As in Kubernetes a pod on an unreachable
node stays Terminating until its kubelet is back or the Node object is deleted (as a cloud provider does); then it is
removed by force. Evicts after `eviction_s` or the pod's own tolerationSeconds, whichever is less (real default: 300 s).
Source: kubernetes pkg/controller/nodelifecycle, tainteviction, podgc, 1.36.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from fairlead.kube import errors, timestamps
from fairlead.kube.client import Client, Patch
from fairlead.kube.events import EventRecorder, Regarding
from fairlead.kube.limits import Clock
from fairlead.kube.resources import LEASES, NODES, PODS, raw
from fairlead.sandbox.controllers.evictions import disrupt
from fairlead.sandbox.informers import Informers
from fairlead.sandbox.node_fit import tolerates
from fairlead.sandbox.objects import (
    Obj,
    condition,
    is_deleting,
    is_true,
    key_of,
    name_of,
    node_name_of,
    phase_of,
    spec_of,
    uid_of,
)

log = logging.getLogger(__name__)

LOOK_S: Final = 0.5
LATE_S: Final = 1.0
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
NOT_READY: Final = "node.kubernetes.io/not-ready"
LEASE_NAMESPACE: Final = "kube-node-lease"
_NODES: Final = raw(NODES)
_PODS: Final = raw(PODS)


def is_unreachable(lease: Obj | None, *, now_s: float, grace_s: float) -> bool:
    """Whether a kubelet has not renewed its Lease for longer than the grace. Without a Lease it is starting."""
    renewed = ((lease or {}).get("spec") or {}).get("renewTime")
    return renewed is not None and now_s - timestamps.parse(str(renewed)) > grace_s


def wanted_taints(node: Obj, *, unreachable: bool, now: str) -> list[Obj]:
    """The taints that the node should have: unreachable, or not-ready while its own condition says so."""
    ready = condition(node, "Ready")
    key = UNREACHABLE if unreachable else "" if ready is None or ready.get("status") == "True" else NOT_READY
    before = [dict(each) for each in spec_of(node).get("taints") or ()]
    kept = [each for each in before if each.get("key") not in {UNREACHABLE, NOT_READY} or each.get("key") == key]
    known = {(each.get("key"), each.get("effect")) for each in kept}
    if key:
        kept += [
            {"key": key, "effect": effect, "timeAdded": now}
            for effect in ("NoSchedule", "NoExecute")
            if (key, effect) not in known
        ]
    return kept


def unknown_conditions(node: Obj, *, now: str) -> list[Obj]:
    """The conditions of an unreachable node: all Unknown."""
    return [
        {
            **each,
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
            "lastTransitionTime": now if each.get("status") != "Unknown" else each.get("lastTransitionTime"),
        }
        for each in (node.get("status") or {}).get("conditions") or ()
    ]


def eviction_due_s(pod: Obj, taints: Iterable[Mapping[str, Any]], *, eviction_s: float) -> float | None:
    """When a node's NoExecute taints evict a pod (epoch seconds), None when it tolerates them without a limit."""
    due: float | None = None
    for taint in taints:
        if taint.get("effect") != "NoExecute":
            continue
        matching = [each for each in spec_of(pod).get("tolerations") or () if tolerates(each, taint)]
        if any(each.get("tolerationSeconds") is None for each in matching):
            continue
        added_s = timestamps.parse(str(taint["timeAdded"])) if taint.get("timeAdded") else 0.0
        tolerated_s = min((float(each["tolerationSeconds"]) for each in matching), default=0.0)
        at_s = added_s + min(eviction_s, tolerated_s)
        due = at_s if due is None else min(due, at_s)
    return due


class NodeLifecycle:
    """`run()` never returns; cancel it."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        events: EventRecorder,
        *,
        grace_s: float,
        eviction_s: float,
        wall: Clock = time.time,
    ) -> None:
        self._client = client
        self._events = events
        self._grace_s = grace_s
        self._eviction_s = eviction_s
        self._wall = wall
        self._nodes = informers.of(NODES)
        self._pods = informers.of(PODS)
        self._leases = informers.of(LEASES)
        self._orphans: dict[str, float] = {}
        self._trusting_until_s = 0.0

    async def run(self) -> None:
        await self._leases.synced.wait()
        looked_s = self._wall()
        while True:
            # All share one process: when this loop was delayed, so were the kubelets, and a late Lease means nothing.
            if self._wall() - looked_s > LATE_S:
                self._trusting_until_s = self._wall() + self._grace_s
            looked_s = self._wall()
            try:
                for node in self._nodes.all():
                    await self._look(node)
                await self._collect_orphans()
            except errors.ApiError as error:
                log.info("node lifecycle: %s", error)
            await asyncio.sleep(LOOK_S)

    async def _look(self, node: Obj) -> None:
        name, now_s = name_of(node), self._wall()
        lease = self._leases.get(f"{LEASE_NAMESPACE}/{name}")
        unreachable = is_unreachable(lease, now_s=now_s, grace_s=self._grace_s)
        if unreachable and is_true(node, "Ready") and now_s < self._trusting_until_s:
            return
        now = timestamps.seconds(now_s)
        if unreachable and is_true(node, "Ready"):
            log.warning("node %s: its kubelet has not renewed its Lease for %.0f s", name, self._grace_s)
            body = {"status": {"conditions": unknown_conditions(node, now=now)}}
            node = await self._client.patch(_NODES, name, body, kind=Patch.STRATEGIC, subresource="status")
            self._nodes.note(node)
            self._events.record(Regarding.of(NODES, node), "NodeNotReady", f"Node {name} status is now: NodeNotReady")
        taints = wanted_taints(node, unreachable=unreachable, now=now)
        if taints != (spec_of(node).get("taints") or []):
            metadata = {"resourceVersion": node["metadata"]["resourceVersion"]}
            node = await self._client.patch(_NODES, name, {"metadata": metadata, "spec": {"taints": taints or None}})
            self._nodes.note(node)
        if not any(each.get("effect") == "NoExecute" for each in taints):
            return
        for pod in self._pods.by_index("node", name):
            due_s = eviction_due_s(pod, taints, eviction_s=self._eviction_s)
            if (
                due_s is not None
                and due_s <= now_s
                and not is_deleting(pod)
                and phase_of(pod) not in {"Succeeded", "Failed"}
            ):
                await self._evict(pod, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")

    async def _collect_orphans(self) -> None:
        """Pods whose Node has not existed for `eviction_s` are marked failed and removed by force."""
        now_s = self._wall()
        orphans: dict[str, float] = {}
        for pod in self._pods.all():
            node = node_name_of(pod)
            if not node or self._nodes.get(node) is not None:
                continue
            since_s = orphans[uid_of(pod)] = self._orphans.get(uid_of(pod), now_s)
            if now_s - since_s >= self._eviction_s:
                await self._evict(pod, "DeletionByPodGC", "PodGC: node no longer exists", force=True)
        self._orphans = orphans

    async def _evict(self, pod: Obj, reason: str, message: str, *, force: bool = False) -> None:
        log.info("pod %s: %s", key_of(pod), message)
        await disrupt(self._client, pod, reason, message, now_s=self._wall(), force=force)
