"""Of a claim a driver writes how busy its own devices are, and nobody else writes that: the policies and the role on an apiserver."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.api import names
from fairlead.kube import errors
from fairlead.kube.client import Client, Patch
from fairlead.kube.resources import CLUSTER_ROLES, RESOURCE_CLAIMS, raw
from tests.webhook.test_fences import BINDINGS, GROUPS, Cluster, claim, cluster, written

__all__ = ["cluster"]

Json = dict[str, Any]
NIC = "nic.example.com"
OURS = {"request": "gpu", "driver": names.DRIVER, "pool": "n1", "device": "gpu-0"}
THEIRS = {"request": "gpu", "driver": NIC, "pool": "n1", "device": "nic-0"}
NODE = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}


def entry(driver: str = names.DRIVER, pool: str = "n1", device: str = "gpu-0", **data: Any) -> Json:
    return {"driver": driver, "pool": pool, "device": device, "data": data}


async def apply(client: Client, *entries: Json, manager: str = "fairlead-driver", **status: Any) -> Json:
    body = {"status": {"devices": list(entries), **status}}
    return await client.patch(
        raw(RESOURCE_CLAIMS),
        "c",
        body,
        namespace="ml",
        kind=Patch.APPLY,
        subresource="status",
        field_manager=manager,
        force=True,
    )


async def merge(client: Client, status: Json) -> Json:
    return await client.patch(raw(RESOURCE_CLAIMS), "c", {"status": status}, namespace="ml", subresource="status")


@contextlib.asynccontextmanager
async def allocated(cluster: Cluster, *results: Json, node: str = "n1") -> AsyncIterator[tuple[Client, Client]]:
    """A claim with these devices; the driver of that node, and an administrator."""
    async with (
        cluster.client("admin") as admin,
        cluster.client(names.CONTROLLER_USER, *GROUPS) as ours,
        cluster.client(names.DRIVER_USER, *GROUPS, node=node) as driver,
    ):
        await claim(admin)
        await written(ours, {"allocation": {"devices": {"results": list(results)}, "nodeSelector": NODE}})
        yield driver, admin


async def test_a_driver_writes_its_own_entries_and_leaves_those_of_others(cluster: Cluster) -> None:
    async with allocated(cluster, OURS, THEIRS) as (driver, admin):
        await apply(admin, entry(NIC, device="nic-0", up=True), manager="nic")
        for state in ("Busy", "Idle"):
            after = await apply(driver, entry(state=state))
            assert {each["device"]: each["data"] for each in after["status"]["devices"]} == {
                "gpu-0": {"state": state},
                "nic-0": {"up": True},
            }
        after = await apply(driver)
        assert [each["device"] for each in after["status"]["devices"]] == ["nic-0"]


async def test_a_driver_writes_nothing_else_of_a_claim(cluster: Cluster) -> None:
    async with allocated(cluster, OURS, THEIRS) as (driver, admin):
        await apply(admin, entry(NIC, device="nic-0", up=True), manager="nic")
        with pytest.raises(errors.ApiError, match=r"status\.devices only|resourceclaims/binding"):
            await merge(driver, {"reservedFor": [{"resource": "pods", "name": "p", "uid": "1"}]})
        with pytest.raises(
            errors.ApiError, match=r"taken back by the Fairlead controller|status\.devices only|binding"
        ):
            await merge(driver, {"allocation": None})
        with pytest.raises(
            errors.ApiError, match=r"entries of driver gpu\.fairlead\.dev and pool 'n1' only|nic\.example"
        ):
            await merge(driver, {"devices": [entry(NIC, device="nic-0", up=False)]})
        with pytest.raises(errors.Forbidden):
            await driver.patch(raw(RESOURCE_CLAIMS), "c", {"metadata": {"labels": {"a": "b"}}}, namespace="ml")
        with pytest.raises(errors.Forbidden):
            await driver.delete(RESOURCE_CLAIMS, "c", "ml")


async def test_the_policy_alone_keeps_a_driver_to_its_entries_where_kubernetes_does_not(cluster: Cluster) -> None:
    """Before 1.36 whoever may patch a claim's status may patch all of it."""
    everything = {"apiGroups": ["resource.k8s.io"], "resources": ["*"], "verbs": ["*"]}
    role = {"kind": "ClusterRole", "name": "old", "apiGroup": "rbac.authorization.k8s.io"}
    subject = {"kind": "User", "name": names.DRIVER_USER, "apiGroup": "rbac.authorization.k8s.io"}
    elsewhere = {**OURS, "pool": "n2"}
    async with allocated(cluster, OURS, elsewhere, THEIRS) as (driver, admin):
        await admin.create(CLUSTER_ROLES, {"metadata": {"name": "old"}, "rules": [everything]})
        await admin.create(BINDINGS, {"metadata": {"name": "old"}, "subjects": [subject], "roleRef": role})
        with pytest.raises(errors.ApiError, match=r"of a claim the driver writes status\.devices only"):
            await merge(driver, {"reservedFor": [{"resource": "pods", "name": "p", "uid": "1"}]})
        with pytest.raises(errors.ApiError, match=r"pool 'n1' only"):
            await apply(driver, entry(pool="n2", state="Idle"))
        with pytest.raises(errors.ApiError, match=r"pool 'n1' only"):
            await apply(driver, entry(NIC, device="nic-0", up=False))
        with pytest.raises(errors.ApiError, match="only its status"):
            await driver.patch(raw(RESOURCE_CLAIMS), "c", {"metadata": {"labels": {"a": "b"}}}, namespace="ml")
        await apply(driver, entry(state="Idle"))


async def test_a_driver_of_another_node_or_of_none_writes_nothing(cluster: Cluster) -> None:
    async with allocated(cluster, OURS, node="n2") as (driver, _):
        with pytest.raises(errors.ApiError, match=r"resourceclaims/driver|pool 'n2' only"):
            await apply(driver, entry(state="Idle"))
        async with cluster.client(names.DRIVER_USER, *GROUPS) as nowhere:
            with pytest.raises(errors.ApiError, match=r"names no node|resourceclaims/driver"):
                await apply(nowhere, entry(state="Idle"))


async def test_a_device_that_is_not_allocated_is_refused(cluster: Cluster) -> None:
    async with allocated(cluster, OURS) as (driver, _):
        with pytest.raises(errors.Invalid, match="must be an allocated device in the claim"):
            await apply(driver, entry(device="gpu-1", state="Idle"))


async def test_nobody_else_says_how_busy_a_device_is_whatever_rbac_grants(cluster: Cluster) -> None:
    async with allocated(cluster, OURS, THEIRS) as (driver, admin):
        await apply(driver, entry(state="Idle"))
        for forged in (entry(state="Busy"), None):
            with pytest.raises(errors.ApiError, match="written by the Fairlead driver alone"):
                await merge(admin, {"devices": [forged] if forged else None})
        await apply(admin, entry(NIC, device="nic-0", up=True), manager="nic")
