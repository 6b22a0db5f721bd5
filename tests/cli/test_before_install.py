"""`fairlead doctor --before-install`: of a cluster that has all, nothing; of each fault, on the sandbox, that fault with a next step."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from typer.testing import Result

from fairlead.api import names
from fairlead.cli.health.doctor import diagnosis
from fairlead.cli.health.doctor.diagnosis import BEFORE_INSTALL, diagnose
from fairlead.cli.health.doctor.finding import Stops
from fairlead.cli.health.reading import INSTALL_RIGHTS
from fairlead.cli.health.seen import Listed, Seen
from fairlead.kube import resources
from fairlead.kube.resources import CRDS, NAMESPACES, NODES, Raw, Resource, raw
from fairlead.sandbox import files
from fairlead.sandbox.cluster import Cluster, ClusterOptions
from fairlead.sandbox.install import manifests
from tests.support import health
from tests.support.commands import invoke
from tests.support.engine.objects import gpu, slice_of
from tests.support.sandbox import View

ROOT = Path(__file__).parents[2]
LABELS = {names.IGNORE_LABEL: "true", "pod-security.kubernetes.io/enforce": "privileged"}
NVIDIA = "gpu.nvidia.com"


class Fault(NamedTuple):
    """What is added to a cluster that has all. `said`: a part of what is printed."""

    code: str
    stops: str
    said: str
    objects: tuple[Raw, ...] = ()
    nodes: tuple[Raw, ...] = ()
    unlabelled: bool = False  # the namespace is there, without its labels
    also: tuple[str, ...] = ()  # other codes that follow


def node(
    name: str, *, labels: dict[str, str], runtime: str = "containerd://2.1.0", gpus: str = "", kubelet: str = "v1.36.2"
) -> Raw:
    made = health.node(name)
    made["metadata"]["labels"] = labels
    made["status"]["nodeInfo"] |= {"containerRuntimeVersion": runtime, "kubeletVersion": kubelet}
    made["status"]["allocatable"] |= {names.LEGACY_GPU: gpus} if gpus else {}
    return made


def crd(plural: str, group: str, kind: str) -> Raw:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}, "versions": [version]},
    }  # fmt: skip


def daemon(name: str, image: str) -> Raw:
    labels = {"app": name}
    container = {"name": "main", "image": image}
    return {
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": "gpu-operator"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}},
    }  # fmt: skip


def bound_pod() -> Raw:
    container = {"name": "main", "image": "busybox:1.37", "resources": {"limits": {names.LEGACY_GPU: "1"}}}
    meta = {"name": "old", "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"nodeName": "plugin-0", "terminationGracePeriodSeconds": 0, "containers": [container]},
    }


GPU = {"nvidia.com/gpu.present": "true"}
OTHER_SLICE = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", **slice_of("gpu-0", [gpu(0)])[0]}
OTHER_SLICE["spec"]["driver"] = NVIDIA
CLASS = {
    "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": NVIDIA},
    "spec": {"extendedResourceName": names.LEGACY_GPU, "selectors": [{"cel": {"expression": f"device.driver == '{NVIDIA}'"}}]},
}  # fmt: skip
FAULTS = (
    Fault("RuntimeWithoutCDI", "some", "containerd://1.7.2", nodes=(node("old-0", labels=GPU, runtime="containerd://1.7.2"),)),
    Fault("KubeletTooOld", "some", "v1.33.1", nodes=(node("old-1", labels=GPU, kubelet="v1.33.1"),)),
    Fault("GpuNodesWithoutLabel", "some", "kubectl label node NODE fairlead.dev/gpu=true", nodes=(node("bare-0", labels={}, gpus="4"),), also=("DevicePluginRuns",)),
    Fault("DevicePluginRuns", "some", "pods default/old", (bound_pod(), daemon("nvidia-device-plugin-daemonset", "nvcr.io/nvidia/k8s-device-plugin:v0.17.0")), (node("plugin-0", labels=GPU, gpus="8"),)),
    Fault("OtherGpuDriver", "some", f"managedDrivers=[{NVIDIA}] and driver.enabled=false", (OTHER_SLICE, CLASS)),
    Fault("NamespaceLabels", "everything", "kubectl label namespace fairlead-system", unlabelled=True),
    Fault("DriverInContainer", "nothing", "driver.driverRoot=/run/nvidia/driver", (daemon("nvidia-driver-daemonset", "nvcr.io/nvidia/driver:570.86.15-ubuntu22.04"),)),
    Fault("NamespacesLeftOut", "nothing", "legacy", ({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "legacy", "labels": {names.IGNORE_LABEL: ""}}},)),
    Fault("CertManagerIsThere", "nothing", "certManager.enabled=true", (crd("certificates", "cert-manager.io", "Certificate"),)),
    Fault("AlreadyInstalled", "nothing", "without --before-install", (crd("gangs", "fairlead.dev", "Gang"),)),
)  # fmt: skip


async def call(made: Cluster, *words: str, user: str = "admin") -> Result:
    given = ["doctor", "--before-install", *words, "--kubeconfig", str(made.kubeconfig(user))]
    return await asyncio.to_thread(invoke, given, env={"COLUMNS": "200"})


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def bare(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Kubernetes without Fairlead, with one GPU node and the labelled namespace."""
    async with Cluster(ClusterOptions(workdir=tmp_path_factory.mktemp("c"), run_programs=False, install=False)) as made:
        await made.apply(
            [
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
                for name, labels in ((names.NAMESPACE, LABELS), ("gpu-operator", {}))
            ]
        )
        await add_node(made, node("gpu-0", labels=GPU))
        yield made


async def add_node(made: Cluster, found: Raw) -> None:
    async with made.client() as client:
        await client.create(raw(NODES), {"metadata": found["metadata"]})
        await client.patch(raw(NODES), found["metadata"]["name"], {"status": found["status"]}, subresource="status")


@pytest.mark.asyncio(loop_scope="module")
async def test_of_a_cluster_that_has_all_nothing_is_found_and_what_was_looked_at_is_said(bare: Cluster) -> None:
    done = await call(bare)
    assert done.exit_code == diagnosis.WELL, done.output
    first, *rest = done.stdout.splitlines()
    assert first == "Kubernetes v1.36.2; 1 GPU node: gpu-0; container runtime containerd://2.1.0"
    assert rest[0].startswith("nothing was found that stands in the way of an install")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.code)
async def test_each_fault_is_found_with_the_next_step(fault: Fault, bare: Cluster) -> None:
    async with bare.client() as client:
        for each in fault.nodes:
            await add_node(bare, each)
        made = await bare.apply(fault.objects)
        if fault.unlabelled:
            await client.patch(raw(NAMESPACES), names.NAMESPACE, {"metadata": {"labels": dict.fromkeys(LABELS)}})
        try:
            text = await call(bare)
            found = json.loads((await call(bare, "-o", "json")).stdout)["findings"]
        finally:
            for each in (*made, *fault.nodes):
                await client.delete(kind_of(each), each["metadata"]["name"], each["metadata"].get("namespace"))
            for each in made:
                await View(client).gone(kind_of(each), each["metadata"]["name"], each["metadata"].get("namespace"))
            if fault.unlabelled:
                await client.patch(raw(NAMESPACES), names.NAMESPACE, {"metadata": {"labels": LABELS}})
    assert [(each["code"], each["stops"]) for each in found][:1] == [(fault.code, fault.stops)], text.output
    assert tuple(each["code"] for each in found[1:]) == fault.also, text.output
    assert fault.said in text.stdout
    assert found[0]["nextStep"] in text.stdout
    assert text.exit_code == (diagnosis.WELL if fault.stops == "nothing" else diagnosis.FOUND)


def kind_of(obj: Raw) -> Resource[Any]:
    known = {each.kind: each for each in vars(resources).values() if isinstance(each, Resource)} | {
        "CustomResourceDefinition": CRDS
    }
    return raw(known[obj.get("kind", "Node")])


@pytest.mark.asyncio(loop_scope="module")
async def test_a_user_without_rights_is_told_which_an_install_takes(bare: Cluster) -> None:
    done = await call(bare, user="stranger")
    assert done.exit_code == diagnosis.FOUND, done.output
    assert "MayNotInstall (stops everything)" in done.stdout
    assert (
        "kubectl auth can-i create customresourcedefinitions.apiextensions.k8s.io -n fairlead-system: no" in done.stdout
    )
    assert "not looked at: you may not list nodes" in done.stdout


async def test_of_a_cluster_without_nodes_and_namespace_both_are_named(tmp_path: Path) -> None:
    async with Cluster(ClusterOptions(workdir=tmp_path, run_programs=False, install=False)) as made:
        done = json.loads((await call(made, "-o", "json")).stdout)
        assert [each["code"] for each in done["findings"]] == ["NoGpuNode", "NoNamespace"]
        first = await asyncio.to_thread(invoke, ["doctor", "-o", "json", "--kubeconfig", str(made.kubeconfig())])
        assert "fairlead doctor --before-install" in json.loads(first.stdout)["findings"][0]["nextStep"]


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"release": "v1.33.4", "groups": {"resource.k8s.io": ("v1beta1",)}}, "NoResourceAPI"),
        ({"gates": {"DynamicResourceAllocation": False}}, "FeatureGateOff"),
        ({"kubelets": {"node-0": {"featureGates": {"DynamicResourceAllocation": False}}}}, "FeatureGateOff"),
    ],
)
def test_without_dynamic_resource_allocation_that_comes_first(facts: dict[str, Any], code: str) -> None:
    first = diagnose(health.seen(health.healthy(), **facts), BEFORE_INSTALL)[0]
    assert (first.code, first.stops) == (code, Stops.EVERYTHING)


def test_of_each_kind_that_is_installed_the_right_to_create_it_is_asked() -> None:
    found = manifests.load(files.find("manifests/base"))
    groups = {(each["apiVersion"].rpartition("/")[0], each["kind"]) for each in found}
    asked = {(attributes["group"], attributes["resource"]) for _, attributes in INSTALL_RIGHTS.values()}
    plurals = {
        (
            group,
            f"{kind.lower()[:-1]}ies" if kind.endswith("y") else f"{kind.lower()}{'es' if kind.endswith('s') else 's'}",
        )
        for group, kind in groups
    }
    own = {each for each in plurals if each[0].endswith("fairlead.dev")}
    assert plurals - own == asked


def test_every_code_is_documented() -> None:
    page = (ROOT / "docs" / "start.md").read_text()
    assert [fault.code for fault in FAULTS if f"`{fault.code}`" not in page] == []


def test_what_is_no_object_is_passed_over_and_what_may_not_be_read_is_no_cause() -> None:
    odd = {key: list(health.NO_OBJECTS) for key in health.healthy()}
    assert all(each.what for each in diagnose(health.seen(odd), BEFORE_INSTALL))
    nothing = Seen(now=health.NOW, lists={kind: Listed(gap="no") for kind in health.healthy()})
    assert diagnose(nothing, BEFORE_INSTALL) == []
