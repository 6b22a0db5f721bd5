"""What else keeps a pod off a node: the pods that are there, and where its volumes are. In kube-scheduler's words."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.sandbox.node_fit import pod_requests
from fairlead.sandbox.scheduler.cycle import Placed, Snapshot, Unschedulable, decide
from fairlead.sandbox.scheduler.fit import (
    BIND_CONFLICT,
    IN_USE,
    NODE_CONFLICT,
    UNBOUND_IMMEDIATE,
    ZONE_CONFLICT,
    NodeInfo,
    Storage,
)
from fairlead.sandbox.scheduler.neighbours import (
    AFFINITY,
    ANTI_AFFINITY,
    EXISTING_ANTI_AFFINITY,
    SPREAD,
    SPREAD_LABEL,
    required_terms,
)

Obj = dict[str, Any]
ZONES = {"a1": "a", "a2": "a", "b1": "b"}
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def pod(name: str, of: Obj | None = None, *, namespace: str = "ml", deleted: bool = False, **spec: Any) -> Obj:
    meta: Obj = {"name": name, "namespace": namespace, "uid": name, "labels": of or {}}
    if deleted:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": meta, "spec": {"containers": [{"name": "main"}], **spec}, "status": {}}


def node(name: str, zone: str) -> Obj:
    meta = {"name": name, "labels": {HOST: name} | ({ZONE: zone} if zone else {})}
    return {"metadata": meta, "spec": {}, "status": {"allocatable": {"cpu": "8", "pods": "10"}}}


def term(key: str, *, app: str = "x", **more: Any) -> Obj:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}


def anti(*terms: Obj) -> Obj:
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def near(*terms: Obj) -> Obj:
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def spread(key: str, **more: Any) -> Obj:
    selector = {"matchLabels": {"app": "x"}}
    constraint = {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return {"topologySpreadConstraints": [constraint | more]}


def tried(
    subject: Obj, there: dict[str, list[Obj]], *, zones: dict[str, str] = ZONES, storage: Storage | None = None
) -> str:
    """The chosen node, or why there is none."""
    infos = {name: NodeInfo(node=node(name, zone)) for name, zone in zones.items()}
    repelling = set()
    for name, pods in there.items():
        for each in pods:
            infos[name].add(pod_requests(each))
            infos[name].objects[each["metadata"]["uid"]] = each
            if any(required_terms(each, "podAntiAffinity")):
                repelling.add(each["metadata"]["uid"])
    snapshot = Snapshot(
        nodes=infos,
        slices=tuple,
        claim=lambda _namespace, _name: None,
        device_class=lambda _: None,
        allocated=frozenset(),
        selects=lambda _expression, _candidate: True,
        repelling=repelling,
        namespace_labels=lambda name: {"team": name},
        storage=storage,
    )
    outcome = decide(subject, snapshot, pick=lambda loose: loose[0])
    if isinstance(outcome, Placed):
        return outcome.node
    assert isinstance(outcome, Unschedulable)
    return outcome.message


X = {"app": "x"}


@pytest.mark.parametrize(
    ("subject", "there", "want"),
    [
        (pod("p", X, **anti(term(ZONE))), {"a1": [pod("o", X)]}, "b1"),
        (pod("p", X, **anti(term(HOST))), {"a1": [pod("o", X)], "b1": [pod("q", X)]}, "a2"),
        (pod("p", X, **anti(term(ZONE))), {"a1": [pod("o", X)], "b1": [pod("q", X)]}, f"0/3 nodes are available: 3 {ANTI_AFFINITY}."),
        (pod("p", X, **anti(term(ZONE))), {"a1": [pod("o", X, namespace="other")]}, "a2"),
        (pod("p", X, **anti(term(ZONE, namespaces=["other"]))), {"a1": [pod("o", X, namespace="other")]}, "b1"),
        (pod("p", X, **anti(term(ZONE, namespaceSelector={}))), {"a1": [pod("o", X, namespace="other")]}, "b1"),
        (pod("p", X, **anti(term(ZONE, namespaceSelector={"matchLabels": {"team": "other"}}))), {"a1": [pod("o", X, namespace="other")]}, "b1"),
        (pod("p", {"app": "x", "v": "2"}, **anti(term(ZONE, matchLabelKeys=["v"]))), {"a1": [pod("o", {"app": "x", "v": "1"})]}, "a2"),
        (pod("p", {"app": "x", "v": "2"}, **anti(term(ZONE, mismatchLabelKeys=["v"]))), {"a1": [pod("o", {"app": "x", "v": "1"})]}, "b1"),
        (pod("p", X), {"a1": [pod("o", **anti(term(ZONE)))], "b1": [pod("q", **anti(term(ZONE)))]}, f"0/3 nodes are available: 3 {EXISTING_ANTI_AFFINITY}."),
        (pod("p", X, **near(term(ZONE))), {"b1": [pod("o", X)]}, "b1"),
        (pod("p", X, **near(term(ZONE))), {}, "a1"),
        (pod("p", **near(term(ZONE))), {}, f"0/3 nodes are available: 3 {AFFINITY}."),
        (pod("p", X, **spread(ZONE)), {"a1": [pod("o", X)]}, "b1"),
        (pod("p", X, **spread(ZONE, maxSkew=2)), {"a1": [pod("o", X)]}, "a2"),
        (pod("p", X, **spread(ZONE)), {"a1": [pod("o", X, deleted=True)]}, "a2"),
        (pod("p", X, **spread(ZONE, minDomains=3)), {"a1": [pod("o", X)], "b1": [pod("q", X)]}, f"0/3 nodes are available: 3 {SPREAD}."),
        (pod("p", X, **spread(ZONE), nodeSelector={ZONE: "a"}), {"a1": [pod("o", X)]}, "a2"),
        (pod("p", X, **spread(ZONE, nodeAffinityPolicy="Ignore"), nodeSelector={ZONE: "a"}), {"a1": [pod("o", X)]}, f"0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 {SPREAD}."),
        (pod("p", X, **spread("rack")), {}, f"0/3 nodes are available: 3 {SPREAD_LABEL}."),
    ],
)  # fmt: skip
def test_pods_that_are_there(subject: Obj, there: dict[str, list[Obj]], want: str) -> None:
    assert tried(subject, there) == want


def claim(name: str, *, volume: str = "", storage_class: str = "", modes: tuple[str, ...] = ("ReadWriteOnce",)) -> Obj:
    spec = {"accessModes": list(modes), "volumeName": volume, "storageClassName": storage_class}
    return {
        "metadata": {"name": name, "namespace": "ml"},
        "spec": spec,
        "status": {"phase": "Bound" if volume else "Pending"},
    }


def volume(name: str, zone: str, **more: Any) -> Obj:
    rule = {"key": ZONE, "operator": "In", "values": [zone]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    return {
        "metadata": {"name": name, **more.pop("metadata", {})},
        "spec": {"nodeAffinity": {"required": required}, **more},
    }


def kind(name: str, mode: str = "WaitForFirstConsumer", provisioner: str = "csi", zone: str = "") -> Obj:
    found: Obj = {"metadata": {"name": name}, "volumeBindingMode": mode, "provisioner": provisioner}
    if zone:
        found["allowedTopologies"] = [{"matchLabelExpressions": [{"key": ZONE, "values": [zone]}]}]
    return found


def storage(*objects: Obj) -> Storage:
    claims = {
        f"ml/{each['metadata']['name']}": each
        for each in objects
        if "accessModes" in each.get("spec", {}) and "status" in each
    }
    volumes = {each["metadata"]["name"]: each for each in objects if "spec" in each and "status" not in each}
    classes = {each["metadata"]["name"]: each for each in objects if "spec" not in each}
    return Storage(claim=claims.get, volume=volumes.get, volumes=volumes.values, storage_class=classes.get)


ALL = "0/3 nodes are available: 3 "
LOCAL = {"storageClassName": "local", "accessModes": ["ReadWriteOnce"]}


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        ((), f'{ALL}persistentvolumeclaim "data" not found.'),
        ((claim("data", volume="v"), volume("v", "b")), "b1"),
        ((claim("data", volume="v"), volume("v", "c")), f"{ALL}{NODE_CONFLICT}."),
        ((claim("data", volume="v"), {"metadata": {"name": "v", "labels": {ZONE: "b__c"}}, "spec": {}}), "b1"),
        ((claim("data", volume="v"), {"metadata": {"name": "v", "labels": {ZONE: "c"}}, "spec": {}}), f"{ALL}{ZONE_CONFLICT}."),
        ((claim("data", storage_class="now"), kind("now", "Immediate")), f"{ALL}{UNBOUND_IMMEDIATE}."),
        ((claim("data", storage_class="none"),), f"{ALL}{UNBOUND_IMMEDIATE}."),
        ((claim("data", storage_class="later"), kind("later")), "a1"),
        ((claim("data", storage_class="later"), kind("later", zone="b")), "b1"),
        ((claim("data", storage_class="local"), kind("local", provisioner="kubernetes.io/no-provisioner"), volume("v", "b", **LOCAL)), "b1"),
        ((claim("data", storage_class="local"), kind("local", provisioner="kubernetes.io/no-provisioner")), f"{ALL}{BIND_CONFLICT}."),
    ],
)  # fmt: skip
def test_volumes(objects: tuple[Obj, ...], want: str) -> None:
    subject = pod("p", volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}])
    assert tried(subject, {}, storage=storage(*objects)) == want


def test_a_claim_for_one_pod_is_used_by_one() -> None:
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    objects = (claim("data", storage_class="later", modes=("ReadWriteOncePod",)), kind("later"))
    assert (
        tried(pod("p", volumes=volumes), {"a1": [pod("o", volumes=volumes)]}, storage=storage(*objects))
        == f"{ALL}{IN_USE}."
    )
    assert tried(pod("p", volumes=volumes), {}, storage=storage(*objects)) == "a1"
