"""What the programs' accounts may write, tried with their tokens: the protocol passes, every other kind of write is refused."""

import copy
from pathlib import Path
from typing import Any

import pytest

from fairlead.api import names
from fairlead.kube import errors
from fairlead.kube.client import Patch
from fairlead.kube.resources import MUTATING_WEBHOOKS, PODS, VALIDATING_WEBHOOKS, raw
from fairlead.webhook.registration import registrar
from fairlead.webhook.registration.configurations import Target
from tests.webhook.test_fences import GROUPS, Cluster, cluster  # noqa: F401

Json = dict[str, Any]
OTHER_GATE = "example.com/other"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PIN = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
PINNED = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [PIN]}]}}}
TOLERATION = {"key": "x", "operator": "Exists"}


def pod(name: str = "p") -> Json:
    gates = [{"name": names.ADMISSION_GATE}, {"name": OTHER_GATE}]
    return {
        "metadata": {
            "name": name,
            "namespace": "ml",
            "labels": {"app": "x"},
            "annotations": {"example.com/a": "1", names.GANG: "g"},
        },
        "spec": {
            "schedulingGates": gates,
            "containers": [{"name": "main", "image": "busybox"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
        },
    }


def replaced(path: str, value: Any, op: str = "replace") -> list[Json]:
    return [{"op": op, "path": path, "value": value}]


RELEASE: list[Json] = [
    {"op": "add", "path": "/spec/affinity", "value": PINNED},
    {"op": "remove", "path": "/spec/schedulingGates/0"},
]
CONDITION = {"type": names.ADMITTED_CONDITION, "status": "False", "reason": "TakenBack", "message": "x"}
FOREIGN: dict[str, tuple[list[Json], str]] = {
    "image": (replaced("/spec/containers/0/image", "evil"), "change its spec"),
    "toleration": (replaced("/spec/tolerations/-", TOLERATION, "add"), "change its spec"),
    "node selector": (replaced("/spec/nodeSelector", {"a": "b"}, "add"), "change its spec"),
    "deadline": (replaced("/spec/activeDeadlineSeconds", 1, "add"), "change its spec"),
    "label": (replaced("/metadata/labels/app", "y"), "change its labels"),
    "new label": (replaced("/metadata/labels/other", "y", "add"), "change its labels"),
    "finalizer": (
        replaced("/metadata/finalizers", ["example.com/f"], "add"),
        "change its labels, finalizers or owners",
    ),
    "owner": (
        replaced("/metadata/ownerReferences", [{"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "u"}], "add"),
        "finalizers or owners",
    ),
    "annotation": (replaced("/metadata/annotations/example.com~1a", "2"), "change annotations other than fairlead.dev"),
    "annotation gone": ([{"op": "remove", "path": "/metadata/annotations/example.com~1a"}], "change annotations"),
    "annotation added": (replaced("/metadata/annotations/example.com~1b", "2", "add"), "change annotations"),
    "foreign gate": ([{"op": "remove", "path": "/spec/schedulingGates/1"}], "scheduling gates other than"),
    "pin alone": (replaced("/spec/affinity", PINNED, "add"), "without removing the gate"),
}
FOREIGN_STATUS: dict[str, tuple[Json, str]] = {
    "phase": ({"status": {"phase": "Succeeded"}}, "change its status"),
    "address": ({"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}}, "change its status"),
    "nomination": ({"status": {"nominatedNodeName": "n1"}}, "change its status"),
    "containers": (
        {"status": {"containerStatuses": [{"name": "main", "ready": True, "restartCount": 0, "image": "", "imageID": ""}]}},
        "change its status",
    ),
    "condition": ({"status": {"conditions": [CONDITION | {"type": "Ready", "status": "True"}]}}, "change conditions"),
    "label": ({"metadata": {"labels": {"app": "y"}}}, "change its labels"),
    "annotation": ({"metadata": {"annotations": {"example.com/a": "2"}}}, "change annotations"),
}  # fmt: skip


async def test_the_controller_may_do_to_pods_what_the_protocol_needs(cluster: Cluster) -> None:  # noqa: F811
    async with cluster.client("admin") as admin, cluster.client(names.CONTROLLER_USER, *GROUPS) as ours:
        made = await admin.create(raw(PODS), pod())
        for body in (
            {"metadata": {"annotations": {names.CLAIMS_CORRECTED: "now"}}},
            {"metadata": {"annotations": {names.EVICT_AT: "x"}}, "status": {"conditions": [CONDITION]}},
            {"metadata": {"annotations": {names.EVICT_AT: None}}},
            {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]}},
            {"status": {"conditions": [CONDITION | {"type": "DisruptionTarget", "status": "True"}]}},
        ):
            made = await ours.patch(raw(PODS), "p", body, namespace="ml", kind=Patch.STRATEGIC, subresource="status")
        assert {each["type"] for each in made["status"]["conditions"]} >= {names.ADMITTED_CONDITION, "DisruptionTarget"}
        released = await ours.patch(raw(PODS), "p", RELEASE, namespace="ml", kind=Patch.JSON)
        assert released["spec"]["schedulingGates"] == [{"name": OTHER_GATE}]
        assert released["spec"]["affinity"] == PINNED
        await ours.delete(PODS, "p", "ml")


async def test_the_controller_may_take_back_a_nomination_of_a_pod_at_its_gate_and_of_no_other(cluster: Cluster) -> None:  # noqa: F811
    """Left by a controller that was run with --nominate-nodes; to set one needs the chart's value."""
    nominated = {"status": {"nominatedNodeName": "n1"}}
    none = {"status": {"nominatedNodeName": None}}
    async with cluster.client("admin") as admin, cluster.client(names.CONTROLLER_USER, *GROUPS) as ours:
        for name, gates in (("gated", [{"name": names.ADMISSION_GATE}]), ("free", [])):
            body = pod(name)
            body["spec"]["schedulingGates"] = gates
            await admin.create(raw(PODS), body)
            await admin.patch(raw(PODS), name, nominated, namespace="ml", kind=Patch.STRATEGIC, subresource="status")
        taken = await ours.patch(raw(PODS), "gated", none, namespace="ml", kind=Patch.STRATEGIC, subresource="status")
        assert "nominatedNodeName" not in taken["status"]
        with pytest.raises(errors.Forbidden, match="change its status"):
            await ours.patch(raw(PODS), "free", none, namespace="ml", kind=Patch.STRATEGIC, subresource="status")


async def test_the_controller_and_it_alone_may_not_change_anything_else_of_a_pod(cluster: Cluster) -> None:  # noqa: F811
    async with cluster.client("admin") as admin, cluster.client(names.CONTROLLER_USER, *GROUPS) as ours:
        await admin.create(raw(PODS), pod())
        for kind, (operations, message) in FOREIGN.items():
            released = [] if kind in {"foreign gate", "pin alone"} else [[*operations, *RELEASE]]
            for together in (operations, *released):
                with pytest.raises(errors.Forbidden, match=f"pod ml/p: the Fairlead controller may not .*{message}"):
                    await ours.patch(raw(PODS), "p", together, namespace="ml", kind=Patch.JSON)
        for body, message in FOREIGN_STATUS.values():
            with pytest.raises(errors.Forbidden, match=f"pod ml/p: the Fairlead controller may not .*{message}"):
                await ours.patch(raw(PODS), "p", body, namespace="ml", kind=Patch.STRATEGIC, subresource="status")
        with pytest.raises(errors.Forbidden):
            await ours.create(raw(PODS), pod("made"))
        for operations, _ in FOREIGN.values():
            if operations[0]["path"] != "/spec/schedulingGates/1":
                await admin.patch(raw(PODS), "p", operations, namespace="ml", kind=Patch.JSON)


async def test_the_webhook_may_write_its_own_two_configurations_and_no_other(cluster: Cluster, tmp_path: Path) -> None:  # noqa: F811
    target = Target(bundle="QQ==", url="https://127.0.0.1:1")
    async with cluster.client("admin") as admin, cluster.client(names.WEBHOOK_USER, *GROUPS) as webhook:
        assert await registrar.ensure(webhook, target)
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            ours = await admin.get(resource, "fairlead")
            evil = {key: copy.deepcopy(value) for key, value in ours.items() if key != "metadata"}
            only = "the Fairlead webhook may write only the configurations named fairlead"
            with pytest.raises(errors.Forbidden, match=f"{resource.kind} evil: {only}"):
                await webhook.create(resource, evil | {"metadata": {"name": "evil"}})
            with pytest.raises(errors.Forbidden, match=only):
                await webhook.create(resource, evil | {"metadata": {"generateName": "fairlead"}})
            await admin.create(resource, evil | {"metadata": {"name": "others"}})
            for attempt in (
                webhook.replace(resource, evil | {"metadata": {"name": "others"}}),
                webhook.patch(resource, "others", {"webhooks": []}),
                webhook.delete(resource, "others"),
                webhook.delete(resource, "fairlead"),
            ):
                with pytest.raises(errors.Forbidden):
                    await attempt
            for rule in (
                {"apiGroups": ["*"], "resources": ["pods"]},
                {"apiGroups": [""], "resources": ["*"]},
                {"apiGroups": [""], "resources": ["*/*"]},
                {"apiGroups": [""], "resources": ["secrets"]},
                {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"]},
            ):
                spied = copy.deepcopy(await admin.get(resource, "fairlead"))
                spied["webhooks"][0]["rules"] = [{"apiVersions": ["*"], "operations": ["CREATE"], **rule}]
                with pytest.raises(errors.Forbidden, match="may not have itself called for all resources, secrets"):
                    await webhook.replace(resource, spied)
            await admin.delete(resource, "fairlead")
        assert await registrar.ensure(webhook, target), "deleted by another client, they are made again"
