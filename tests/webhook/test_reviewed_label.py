"""Who forges, omits or changes the label by which an apiserver sends pods and claims to the webhook gets no further than without it.

Tried as who has `*` in a namespace, in each way that the API has. A pod without the label is also one that was there before the webhook
wrote any: what the webhook would refuse of it, the policy on pods refuses.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from fairlead.api import names
from fairlead.kube import errors
from fairlead.kube.client import Client, Patch
from fairlead.kube.resources import (
    DEVICE_CLASSES,
    JOBS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    raw,
)
from tests.support.kubernetes import of_this_run
from tests.support.tenants import OWNER, bind_tenants
from tests.webhook.conftest import SERVICE_ACCOUNTS, Cluster, served

pytestmark = pytest.mark.asyncio(loop_scope="module")
Json = dict[str, Any]
ML = "ml"
VALUES = [names.REVIEWED_TEMPLATE, names.REVIEWED_POD, "forged"]
GATE: Json = {"schedulingGates": [{"name": names.ADMISSION_GATE}]}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """With pods of before: `waiting`, gated, and `running`, whose gate is gone; neither has the label."""
    async with served(tmp_path_factory.mktemp("c"), of_this_run()) as made:
        await bind_tenants(made.admin)
        for name, gate in (("waiting", GATE), ("running", {})):
            await made.admin.create(raw(PODS), pod(name, annotations={names.GANG: "g"}, **gate))
        nic = {"selectors": [{"cel": {"expression": "device.driver == 'nic.example.com'"}}]}
        await made.admin.create(raw(DEVICE_CLASSES), {"metadata": {"name": "nic.example.com"}, "spec": nic})
        async with made.webhook():
            for name, driver in (("one", names.GPU_CLASS), ("nic", "nic.example.com")):
                spec: Json = {
                    "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": driver}}]}}
                }
                body = {"metadata": {"name": name, "namespace": ML}, "spec": spec}
                await made.admin.create(raw(RESOURCE_CLAIM_TEMPLATES), body)
            yield made


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def tenant(cluster: Cluster) -> AsyncIterator[Client]:
    async with Client.connect(cluster.kubeconfig(OWNER)) as client:
        yield client


def pod(
    name: str, *, labels: Json | None = None, annotations: Json | None = None, namespace: str = ML, **spec: Any
) -> Json:
    limits = spec.pop("limits", {})
    containers = [{"name": "c", "image": "busybox", "resources": {"limits": limits, "requests": limits}}]
    metadata = {"name": name, "namespace": namespace, "labels": labels or {}, "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"containers": containers, **spec}}


def gates(stored: Json) -> list[str]:
    return [each["name"] for each in stored["spec"].get("schedulingGates") or ()]


@pytest.mark.parametrize("value", [None, *VALUES])
@pytest.mark.parametrize("how", ["limit", "template"])
async def test_a_new_pod_is_gated_whatever_it_says(tenant: Client, how: str, value: str | None) -> None:
    labels = {} if value is None else {names.REVIEWED: value}
    claims = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}
    spec: Json = {"limits": {names.LEGACY_GPU: 1}} if how == "limit" else claims
    stored = await tenant.create(raw(PODS), pod(f"new-{how}-{value}".lower(), labels=labels, **spec))
    assert gates(stored) == [names.ADMISSION_GATE]
    assert stored["metadata"]["labels"][names.REVIEWED] == (value or names.REVIEWED_POD)


WRITES = ["merge", "strategic", "json", "replace", "apply"]


async def write(client: Client, name: str, how: str, change: Json, *, subresource: str = "") -> Json:
    """Metadata of the pod with these labels or annotations (None: without one), written in that way."""
    stored = await client.get(raw(PODS), name, ML)
    kept = {
        where: {
            k: v for k, v in {**(stored["metadata"].get(where) or {}), **change.get(where, {})}.items() if v is not None
        }
        for where in ("labels", "annotations")
    }
    if how == "replace":
        body = {**stored, "metadata": {**stored["metadata"], **kept}}
        return await client.replace(raw(PODS), body, subresource=subresource)
    if how == "json":
        operations = [{"op": "add", "path": f"/metadata/{where}", "value": value} for where, value in kept.items()]
        return await client.patch(raw(PODS), name, operations, namespace=ML, kind=Patch.JSON, subresource=subresource)
    kind = {"merge": Patch.MERGE, "strategic": Patch.STRATEGIC, "apply": Patch.APPLY}[how]
    more: Json = {"field_manager": "mallory", "force": True} if how == "apply" else {}
    return await client.patch(
        raw(PODS), name, {"metadata": change}, namespace=ML, kind=kind, subresource=subresource, **more
    )


@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize("subresource", ["", "status"])
@pytest.mark.parametrize("name", ["waiting", "running"])
async def test_of_a_pod_of_before_our_keys_are_fixed(tenant: Client, name: str, subresource: str, how: str) -> None:
    for where in ("labels", "annotations"):
        for key in (names.REVIEWED, names.EVICTION, names.GANG, names.QUEUE):
            with pytest.raises((errors.Forbidden, errors.Invalid), match=r"fairlead\.dev|fixed|only"):
                await write(tenant, name, how, {where: {key: "x"}}, subresource=subresource)
    if how not in {"apply", "strategic"}:  # what another has written is not taken away by those
        with pytest.raises(errors.Forbidden):
            await write(tenant, name, how, {"annotations": {names.GANG: None}}, subresource=subresource)
    await write(tenant, name, how, {"annotations": {"example.com/mine": how}}, subresource=subresource)


async def test_of_a_pod_of_before_the_gate_stays_and_the_controller_takes_it_off(
    cluster: Cluster, tenant: Client
) -> None:
    await cluster.admin.create(raw(PODS), pod("old", **GATE))
    # As it was stored before there was a label: only its own account may release it.
    stored = await cluster.admin.get(raw(PODS), "old", ML)
    assert names.REVIEWED not in (stored["metadata"].get("labels") or {})
    without = [{"op": "remove", "path": "/spec/schedulingGates"}]
    with pytest.raises(errors.Forbidden, match="only the Fairlead controller removes"):
        await tenant.patch(raw(PODS), "old", without, namespace=ML, kind=Patch.JSON)
    with pytest.raises(errors.Forbidden, match="only the Fairlead controller removes"):
        await tenant.replace(raw(PODS), {**stored, "spec": {**stored["spec"], "schedulingGates": []}})
    config = cluster.kubeconfig(names.CONTROLLER_USER, SERVICE_ACCOUNTS)
    async with Client.connect(config) as controller:
        released = await controller.patch(raw(PODS), "old", without, namespace=ML, kind=Patch.JSON)
    assert gates(released) == []


@pytest.mark.parametrize("how", WRITES)
async def test_a_pod_that_was_admitted_keeps_its_label_and_gate(tenant: Client, how: str) -> None:
    name = f"kept-{how}"
    await tenant.create(raw(PODS), pod(name, limits={names.LEGACY_GPU: 1}))
    for subresource in ("", "status"):
        with pytest.raises(errors.Forbidden, match="fairlead"):
            await write(tenant, name, how, {"labels": {names.REVIEWED: "other"}}, subresource=subresource)
        if how not in {"apply", "strategic"}:
            with pytest.raises(errors.Forbidden, match="fairlead"):
                await write(tenant, name, how, {"labels": {names.REVIEWED: None}}, subresource=subresource)
    for operations in (
        [{"op": "remove", "path": "/spec/schedulingGates"}],
        [{"op": "remove", "path": "/spec/schedulingGates"}, {"op": "remove", "path": "/metadata/labels"}],
    ):
        with pytest.raises(errors.Forbidden, match=r"only the Fairlead controller removes|is written once"):
            await tenant.patch(raw(PODS), name, operations, namespace=ML, kind=Patch.JSON)


async def test_ephemeral_containers_and_bindings_do_not_carry_it(tenant: Client) -> None:
    await tenant.create(raw(PODS), pod("debugged"))
    debug = {"name": "debug", "image": "busybox", "targetContainerName": "c"}
    body = {"metadata": {"labels": {names.REVIEWED: "pod"}}, "spec": {"ephemeralContainers": [debug]}}
    with contextlib.suppress(errors.Invalid):  # the sandbox stores no container that is added
        await tenant.patch(
            raw(PODS), "debugged", body, namespace=ML, kind=Patch.STRATEGIC, subresource="ephemeralcontainers"
        )
    stored = await tenant.get(raw(PODS), "debugged", ML)
    assert names.REVIEWED not in (stored["metadata"].get("labels") or {})
    target = {"apiVersion": "v1", "kind": "Node", "name": "n"}
    binding = {"metadata": {"name": "debugged", "labels": {names.REVIEWED: "pod"}}, "target": target}
    with pytest.raises(errors.Forbidden, match="only the Fairlead controller"):
        await tenant.request(
            "POST", PODS.path(ML, "debugged", "binding"), body={"apiVersion": "v1", "kind": "Binding", **binding}
        )


async def test_a_claim_that_says_the_controller_made_it_is_reviewed(tenant: Client) -> None:
    spec: Json = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": names.GPU_CLASS}}]}}
    spec["devices"]["config"] = [{"opaque": {"driver": names.DRIVER, "parameters": {"kind": "Nonsense"}}}]
    for labels in ({}, {names.MANAGED_BY: names.MANAGED_BY_VALUE}):
        body = {"metadata": {"name": "c", "namespace": ML, "labels": labels}, "spec": spec}
        with pytest.raises(errors.ApiError, match="denied the request"):
            await tenant.create(raw(RESOURCE_CLAIMS), body)


async def test_pods_of_a_reviewed_job_are_labelled_by_its_template(tenant: Client) -> None:
    template = {"spec": {**pod("x", limits={names.LEGACY_GPU: 1})["spec"], "restartPolicy": "Never"}}
    job = {"metadata": {"name": "j", "namespace": ML}, "spec": {"template": template}}
    stored = await tenant.create(raw(JOBS), job)
    assert stored["spec"]["template"]["metadata"]["labels"][names.REVIEWED] == names.REVIEWED_TEMPLATE
