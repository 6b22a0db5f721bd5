"""The tables of devices, nodes and holders, kept current change by change; no I/O.

A change costs what it touches: a claim its devices, a pod its node and the claims that are reserved for it, a gang its claims. A cluster
has many pods that no page names: they count against their node, and of them only the name is kept (`lean`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from fairlead.api import foreign, names
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.node_table import NodeTable
from fairlead.engine.types.pods import Workload
from fairlead.kube.containment import computed
from fairlead.kube.core import Node, Pod
from fairlead.kube.device_usage import DeviceId, DeviceUsage, usage_of
from fairlead.kube.informer import Change
from fairlead.kube.nulls import convert
from fairlead.kube.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from fairlead.kube.resources import Raw
from fairlead.kube.spec_key import spec_key
from fairlead.ui.model.facts import Hardware, Holder
from fairlead.ui.model.holders import UsualRequests, evicting, holder, lately, queue_of


class WatchedTables:
    """Subscribe `on_slice`, `on_node`, … to the informers; `hardware` is what they add up to."""

    def __init__(self, stored_pod: Callable[[str], Raw | None]) -> None:
        """`stored_pod`: what is kept of a pod, by namespace/name (`lean`)."""
        self._stored_pod = stored_pod
        self.inventory = Inventory()
        self.nodes = NodeTable()
        self.classes: dict[str, DeviceClass] = {}
        self.pods: dict[str, Raw] = {}  # by UID, those that concern Fairlead
        self._claims: dict[str, ResourceClaim] = {}  # allocated ones, by UID
        self._of_pod: dict[str, set[str]] = {}  # UIDs of claims, by UID of the pod that they are reserved for
        self._of_gang: dict[str, set[str]] = {}  # UIDs of claims, by namespace/name
        self._holders: dict[str, Holder] = {}
        self._queues: dict[tuple[str, str], str] = {}  # of gangs
        self._evicting: frozenset[str] = frozenset()  # gangs
        self._kept: dict[str, tuple[str, ...]] = {}  # nodes that are kept free, by gang
        self._usage: dict[str, dict[DeviceId, DeviceUsage]] = {}  # by claim
        self._usual = UsualRequests()
        self._workload: Workload | None = None

    def hardware(self, *, now: float) -> Hardware:
        """`now`: unix seconds; a device is idle while its driver said so lately."""
        return Hardware(
            inventory=self.inventory,
            nodes=self.nodes,
            classes=self.classes,
            workload=self._usual_now(),
            holders=dict(self._holders),
            usage=lately(self._usage.items(), now=now),
            reserved={node: gang for gang in sorted(self._kept) for node in self._kept[gang]},
            evicting=self._evicting,
        )

    # ------------------------------------------------------------------------------------------------- changes

    def on_slice(self, change: Change[ResourceSlice]) -> None:
        if change.new is None:
            self.inventory.drop_slice(change.object.metadata.name)
        else:
            self.inventory.set_slice(change.new)

    def on_taint_rule(self, change: Change[DeviceTaintRule]) -> None:
        if change.new is None:
            self.inventory.drop_taint_rule(change.key)
        else:
            self.inventory.set_taint_rule(change.new)

    def on_node(self, change: Change[Node]) -> None:
        if change.new is None:
            self.nodes.drop_node(change.key)
        else:
            self.nodes.set_node(change.new)

    def on_class(self, change: Change[DeviceClass]) -> None:
        self.classes = {name: each for name, each in self.classes.items() if name != change.key}
        if change.new is not None:
            self.classes[change.key] = change.new

    def on_claim(self, change: Change[ResourceClaim]) -> None:
        claim, uid = change.object, change.object.metadata.uid
        if change.new is None:
            self._usual.drop_claim(claim.metadata.namespace, claim.metadata.name)
        else:
            self._usual.set_claim(claim)
        for each in self._claims[uid].status.reserved_for if uid in self._claims else ():
            _discard(self._of_pod, each.uid, uid)
        if change.new is None or claim.status.allocation is None:
            self.inventory.drop_claim(uid)
            self._claims.pop(uid, None)
            self._usage.pop(uid, None)
            _discard(self._of_gang, self._holders.pop(uid, Holder()).gang, uid)
            return
        self.inventory.set_claim(claim)
        self._claims[uid] = claim
        for each in claim.status.reserved_for:
            self._of_pod.setdefault(each.uid, set()).add(uid)
        written = usage_of(claim)
        if written:
            self._usage[uid] = written
        else:
            self._usage.pop(uid, None)
        self._hold(uid)

    def on_pod(self, change: Change[Raw]) -> None:
        uid = str(change.object["metadata"].get("uid", ""))
        if change.new is None:
            self.nodes.drop_pod(uid)
            self._usual.drop_pod(uid)
            self.pods.pop(uid, None)
        else:
            self._count(uid, change.new)
            kept = self._stored_pod(change.key) if concerns(change.new) else None
            if kept is None:
                self.pods.pop(uid, None)
            else:
                self.pods[uid] = kept
        for claim in tuple(self._of_pod.get(uid, ())):
            self._hold(claim)

    def on_gang(self, change: Change[Raw]) -> None:
        meta = change.object["metadata"]
        key = (str(meta.get("namespace", "")), str(meta["name"]))
        queue = "" if change.new is None else queue_of(change.new)
        if change.new is None:
            self._queues.pop(key, None)
        elif self._queues.get(key) != queue:
            self._queues[key] = queue
        for claim in tuple(self._of_gang.get("/".join(key), ())):
            self._hold(claim)
        status = {} if change.new is None else change.new.get("status") or {}
        self._evicting -= {"/".join(key)}
        if computed(partial(evicting, status), lambda _: False):
            self._evicting |= {"/".join(key)}
        nodes = tuple(map(str, status.get("reservedNodes") or ()))
        self._kept.pop("/".join(key), None)
        if nodes:
            self._kept["/".join(key)] = nodes

    # ------------------------------------------------------------------------------------------------- internal

    def _count(self, uid: str, raw: Raw) -> None:
        """Every pod counts against its node. One that is not of the API's form does not."""
        try:
            pod: Pod = convert(raw, Pod)
        except msgspec.ValidationError:
            self.nodes.drop_pod(uid)
            self._usual.drop_pod(uid)
            return
        self.nodes.set_pod(pod)
        self._usual.set_pod(pod)

    def _hold(self, uid: str) -> None:
        """What holds an allocated claim now."""
        before = self._holders.get(uid)
        found = computed(partial(holder, self._claims[uid], self.pods, self._queues), lambda _: Holder())
        if found == before:
            return
        if before is not None:
            _discard(self._of_gang, before.gang, uid)
        self._holders[uid] = found
        self._of_gang.setdefault(found.gang, set()).add(uid)

    def _usual_now(self) -> Workload | None:
        """The same object while the same requests are usual, whatever their number."""
        found, known = self._usual.workload(), self._workload
        if found is None or known is None or _requests(found) != _requests(known):
            self._workload = found
        return self._workload


def _requests(workload: Workload) -> frozenset[tuple[object, ...]]:
    return frozenset((spec_key(each.spec), each.needs) for each in workload.demands)


def _discard(index: dict[str, set[str]], key: str, uid: str) -> None:
    if key in index:
        index[key].discard(uid)
        if not index[key]:
            del index[key]


_LONG = "kubectl.kubernetes.io/last-applied-configuration"
_SPEC = ("nodeName", "schedulingGates", "schedulingGroup", "resourceClaims")
_STATUS = ("phase", "reason", "message", "conditions", "resourceClaimStatuses", "extendedResourceClaimStatus")


def lean(pod: Raw) -> Raw:
    """The metadata alone of a pod that no page names, without what writers note of themselves."""
    meta = {key: value for key, value in pod["metadata"].items() if key != "managedFields"}
    if not concerns(pod):
        kept = ("name", "namespace", "uid", "resourceVersion")
        return {"metadata": {key: meta[key] for key in kept if key in meta}}
    if _LONG in (meta.get("annotations") or {}):
        meta["annotations"] = {key: value for key, value in meta["annotations"].items() if key != _LONG}
    return {
        "metadata": meta,
        "spec": _some(pod.get("spec") or {}, _SPEC),
        "status": _some(pod.get("status") or {}, _STATUS),
    }


def concerns(pod: Raw) -> bool:
    """Whether it is in a gang, has claims, or waits for Fairlead."""
    spec, meta = pod.get("spec") or {}, pod["metadata"]
    annotations, labels = meta.get("annotations") or {}, meta.get("labels") or {}
    return bool(
        spec.get("resourceClaims")
        or names.CLAIM_SOURCES in annotations
        or (pod.get("status") or {}).get("extendedResourceClaimStatus")
        or any(gate.get("name") == names.ADMISSION_GATE for gate in spec.get("schedulingGates") or ())
        or foreign.gang_name(annotations, labels, (spec.get("schedulingGroup") or {}).get("podGroupName")) is not None
    )


def _some(found: Raw, keys: Iterable[str]) -> Raw:
    return {key: found[key] for key in keys if key in found}
