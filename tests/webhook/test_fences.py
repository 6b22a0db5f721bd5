"""The two policies of manifests/base hold on an apiserver: which users allocate our devices, and which announce them."""

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.api import names
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import CLUSTER_ROLES, EVENTS, RESOURCE_CLAIMS, RESOURCE_SLICES, raw
from fairlead.sandbox.apiserver.server import ApiServer
from fairlead.sandbox.install.apply import Applier
from fairlead.sandbox.install.manifests import load

Json = dict[str, Any]
BASE = Path(__file__).parents[2] / "manifests" / "base"
BINDINGS = dataclasses.replace(CLUSTER_ROLES, plural="clusterrolebindings", kind="ClusterRoleBinding")
SCHEDULER = "system:kube-scheduler"
GROUPS = ("system:serviceaccounts", f"system:serviceaccounts:{names.NAMESPACE}", "system:authenticated")


class Cluster:
    def __init__(self, server: ApiServer, workdir: Path) -> None:
        self.server = server
        self.workdir = workdir

    @contextlib.asynccontextmanager
    async def client(self, user: str, *groups: str, node: str | None = None) -> AsyncIterator[Client]:
        path = self.workdir / f"{user.replace(':', '-')}-{node}"
        extra = None if node is None else {"authentication.kubernetes.io/node-name": [node]}
        path.write_text(self.server.kubeconfig(user, groups=groups, extra=extra))
        async with Client.connect(path) as client:
            yield client


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with ApiServer(workdir=tmp_path) as server:
        made = Cluster(server, tmp_path)
        async with made.client("admin") as admin:
            await Applier(admin).apply(load(BASE))
            await Applier(admin).apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}])
        yield made


async def claim(client: Client, name: str = "c") -> Json:
    request = {"name": "gpu", "exactly": {"deviceClassName": names.GPU_CLASS}}
    spec = {"devices": {"requests": [request]}}
    return await client.create(raw(RESOURCE_CLAIMS), {"metadata": {"name": name, "namespace": "ml"}, "spec": spec})


def allocated(made: Json, driver: str | None) -> Json:
    result = {"request": "gpu", "driver": driver, "pool": "n1", "device": "gpu-0"}
    status = {} if driver is None else {"allocation": {"devices": {"results": [result]}}}
    return made | {"status": status}


async def written(controller: Client, status: Json) -> Json:
    """As the controller writes it: its role has `patch` and no `update`."""
    body = {"status": status}
    return await controller.patch(raw(RESOURCE_CLAIMS), "c", body, namespace="ml", subresource="status")


async def test_kube_scheduler_neither_gives_our_devices_out_nor_takes_them_back(cluster: Cluster) -> None:
    controller = cluster.client(names.CONTROLLER_USER, *GROUPS)
    async with cluster.client("admin") as admin, cluster.client(SCHEDULER) as scheduler, controller as ours:
        made = await claim(admin)
        with pytest.raises(errors.ApiError, match="allocated by the Fairlead controller"):
            await scheduler.replace(raw(RESOURCE_CLAIMS), allocated(made, names.DRIVER), subresource="status")
        made = await written(ours, allocated(made, names.DRIVER)["status"])
        with pytest.raises(errors.ApiError, match="taken back by the Fairlead controller, or by the claim controller"):
            await scheduler.replace(raw(RESOURCE_CLAIMS), allocated(made, None), subresource="status")
        reserved = {"resource": "pods", "name": "p", "uid": "1"}
        made = made | {"status": made["status"] | {"reservedFor": [reserved]}}
        made = await scheduler.replace(raw(RESOURCE_CLAIMS), made, subresource="status")
        assert made["status"]["reservedFor"] == [reserved], "it may reserve what we allocated"
        await written(ours, {"allocation": None, "reservedFor": None})


@pytest.mark.parametrize("user", ["admin", "alice"])
async def test_whatever_rbac_lets_a_user_write_only_the_controller_allocates(cluster: Cluster, user: str) -> None:
    everything = {"apiGroups": ["resource.k8s.io"], "resources": ["*"], "verbs": ["*"]}
    subject = {"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}
    async with (
        cluster.client("admin") as admin,
        cluster.client(names.CONTROLLER_USER, *GROUPS) as ours,
        cluster.client(user) as client,
    ):
        made = await claim(admin)
        role = {"kind": "ClusterRole", "name": "careless", "apiGroup": "rbac.authorization.k8s.io"}
        await admin.create(CLUSTER_ROLES, {"metadata": {"name": "careless"}, "rules": [everything]})
        binding = {"metadata": {"name": "careless"}, "subjects": [subject], "roleRef": role}
        await admin.create(BINDINGS, binding)
        with pytest.raises(errors.ApiError, match="allocated by the Fairlead controller"):
            await client.replace(raw(RESOURCE_CLAIMS), allocated(made, names.DRIVER), subresource="status")
        held = await written(ours, allocated(made, names.DRIVER)["status"])
        with pytest.raises(errors.ApiError, match="taken back by the Fairlead controller"):
            await client.replace(raw(RESOURCE_CLAIMS), held | {"status": {}}, subresource="status")


async def test_the_claim_controller_takes_devices_back(cluster: Cluster) -> None:
    async with (
        cluster.client("admin") as admin,
        cluster.client(names.CONTROLLER_USER, *GROUPS) as ours,
        cluster.client("system:serviceaccount:kube-system:resource-claim-controller") as claim_controller,
    ):
        made = await claim(admin)
        held = await written(ours, allocated(made, names.DRIVER)["status"])
        freed = await claim_controller.replace(raw(RESOURCE_CLAIMS), held | {"status": {}}, subresource="status")
        assert "allocation" not in freed.get("status", {})


def slice_(node: str, driver: str = names.DRIVER) -> Json:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": [{"name": "gpu-0"}]}
    return {"metadata": {"name": f"{node}-{driver}"}, "spec": spec}


async def test_a_driver_announces_its_own_nodes_devices_under_its_own_name_only(cluster: Cluster) -> None:
    async with cluster.client(names.DRIVER_USER, *GROUPS, node="n1") as driver, cluster.client("admin") as admin:
        made = await driver.create(raw(RESOURCE_SLICES), slice_("n1"))
        await driver.replace(raw(RESOURCE_SLICES), made)
        with pytest.raises(errors.ApiError, match=r"spec\.nodeName: 'n2' is not the driver's node 'n1'"):
            await driver.create(raw(RESOURCE_SLICES), slice_("n2"))
        with pytest.raises(errors.ApiError, match=r"spec\.driver: 'nic\.example\.com' is not the driver's name"):
            await driver.create(raw(RESOURCE_SLICES), slice_("n1", "nic.example.com"))
        await admin.create(raw(RESOURCE_SLICES), slice_("n2"))
        with pytest.raises(errors.ApiError, match="'n2' is not the driver's node"):
            await driver.delete(RESOURCE_SLICES, slice_("n2")["metadata"]["name"])
        await driver.delete(RESOURCE_SLICES, made["metadata"]["name"])


async def test_a_drivers_token_takes_no_other_nodes_pool(cluster: Cluster) -> None:
    """With its own nodeName, the other's pool and a higher generation: readers key devices by pool."""
    async with cluster.client(names.DRIVER_USER, *GROUPS, node="n1") as driver, cluster.client("admin") as admin:
        await admin.create(raw(RESOURCE_SLICES), slice_("n2"))
        taking = slice_("n1")
        taking["spec"]["pool"] = {"name": "n2", "generation": 99, "resourceSliceCount": 1}
        with pytest.raises(errors.ApiError, match=r"spec\.pool\.name: 'n2' is not the driver's node 'n1'"):
            await driver.create(raw(RESOURCE_SLICES), taking)
        made = await driver.create(raw(RESOURCE_SLICES), slice_("n1"))
        moved = {**made, "spec": {**made["spec"], "pool": taking["spec"]["pool"]}}
        with pytest.raises(errors.ApiError):
            await driver.replace(raw(RESOURCE_SLICES), moved)
        body = {"spec": {"pool": taking["spec"]["pool"]}}
        with pytest.raises(errors.ApiError):
            await driver.patch(raw(RESOURCE_SLICES), made["metadata"]["name"], body)


async def test_only_controllers_take_the_finalizer_off_a_claim_that_holds_devices(cluster: Cluster) -> None:
    """Without it a deleted claim would free its devices while a container runs with them."""
    kept = [names.CLAIM_FINALIZER, "example.com/mine"]
    controller = cluster.client(names.CONTROLLER_USER, *GROUPS)
    async with cluster.client("admin") as admin, controller as ours:
        made = await claim(admin)

        async def finalizers(client: Client, wanted: list[str]) -> Json:
            body = {"metadata": {"finalizers": wanted}}
            return await client.patch(raw(RESOURCE_CLAIMS), "c", body, namespace="ml")

        await finalizers(admin, kept)
        await finalizers(admin, [])  # it holds nothing yet
        await finalizers(admin, kept)
        await written(ours, allocated(made, names.DRIVER)["status"])
        with pytest.raises(errors.ApiError, match=r"delete-protection keeps devices of gpu\.fairlead\.dev"):
            await finalizers(admin, kept[1:])
        await finalizers(admin, kept[:1])
        await finalizers(ours, [])


async def test_nobody_but_the_controller_changes_for_which_legacy_limit_a_claim_counts(cluster: Cluster) -> None:
    """Without it the claim would count for no quota on requests.nvidia.com/gpu while it has the devices."""
    controller = cluster.client(names.CONTROLLER_USER, *GROUPS)
    async with cluster.client("admin") as admin, controller as ours:
        made = await claim(admin)
        limit = {names.LEGACY_REQUEST: "fairlead-gpu-2"}
        await ours.patch(raw(RESOURCE_CLAIMS), "c", {"metadata": {"annotations": limit}}, namespace="ml")
        await written(ours, allocated(made, names.DRIVER)["status"])
        for value in (None, "fairlead-gpu-1", ""):
            body = {"metadata": {"annotations": {names.LEGACY_REQUEST: value}}}
            with pytest.raises(errors.Forbidden, match=r"fairlead\.dev/legacy-request.*leave it as it is"):
                await admin.patch(raw(RESOURCE_CLAIMS), "c", body, namespace="ml")
            after = await admin.patch(raw(RESOURCE_CLAIMS), "c", body, namespace="ml", subresource="status")
            assert after["metadata"]["annotations"] == limit, "the status subresource changes no metadata"
        await admin.patch(raw(RESOURCE_CLAIMS), "c", {"metadata": {"annotations": {"mine": "x"}}}, namespace="ml")


async def test_a_driver_writes_events_of_its_node_and_in_no_other_namespace(cluster: Cluster) -> None:
    said = {"reason": "x", "message": "x", "type": "Normal", "involvedObject": {"kind": "Node", "name": "n1"}}
    async with cluster.client(names.DRIVER_USER, *GROUPS, node="n1") as driver:
        await driver.create(raw(EVENTS), {"metadata": {"name": "e", "namespace": "default"}, **said})
        for namespace in ("ml", names.NAMESPACE, "kube-system"):
            about = {**said, "involvedObject": {"kind": "Pod", "name": "p", "namespace": namespace}}
            with pytest.raises(errors.Forbidden):
                await driver.create(raw(EVENTS), {"metadata": {"name": "e", "namespace": namespace}, **about})
