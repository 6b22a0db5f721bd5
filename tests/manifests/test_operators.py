"""What the role fairlead-operator reaches, tried with a user who has it: holds and requests to drivers, and nothing else of those objects."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.api.queue import QueueSpec
from fairlead.kube import errors
from fairlead.kube.client import Client, Patch
from fairlead.kube.resources import QUEUES, RESOURCE_SLICES, raw
from fairlead.sandbox.install.manifests import load
from tests.webhook.test_fences import BASE, BINDINGS, Cluster, cluster, slice_

__all__ = ["cluster"]

Json = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
ABSENT = {"apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": "00000000-0000-4000-8000-000000000000"}
METADATA: tuple[Json, ...] = (
    {"labels": {"a": "b"}},
    {"ownerReferences": [ABSENT]},
    {"finalizers": ["example.com/never"]},
    {"annotations": {"gpu.fairlead.dev/withheld": "{}"}},
)


@contextlib.asynccontextmanager
async def operator(cluster: Cluster) -> AsyncIterator[tuple[Client, Client]]:
    """An administrator and olga."""
    role = {"kind": "ClusterRole", "name": "fairlead-operator", "apiGroup": RBAC}
    subject = {"kind": "User", "name": "olga", "apiGroup": RBAC}
    async with cluster.client("admin") as admin, cluster.client("olga") as olga:
        await admin.create(BINDINGS, {"metadata": {"name": "olga"}, "subjects": [subject], "roleRef": role})
        yield admin, olga


async def test_an_operator_holds_queues_and_changes_nothing_else_of_them(cluster: Cluster) -> None:
    spec = {"flavors": [{"flavor": "gpu", "deserved": 8}], "namespaceSelector": {}}
    async with operator(cluster) as (admin, olga):
        await admin.create(raw(QUEUES), {"metadata": {"name": "red"}, "spec": spec})
        await olga.patch(raw(QUEUES), "red", {"spec": {"hold": {"reason": "fans", "by": "olga"}}})
        await olga.patch(raw(QUEUES), "red", {"spec": {"hold": None}})
        for change in (
            {"flavors": [{"flavor": "gpu", "deserved": 1000}]},
            {"namespaceSelector": {"matchLabels": {"mine": "yes"}}},
            {"parent": "blue"},
            {"priority": 1000},
            {"hold": {"reason": "x"}, "weight": 3, "strategy": "spread"},
        ):
            with pytest.raises(errors.Forbidden, match=r"writes spec\.hold only"):
                await olga.patch(raw(QUEUES), "red", {"spec": change})
        for metadata in METADATA:
            with pytest.raises(errors.Forbidden, match="not metadata"):
                await olga.patch(raw(QUEUES), "red", {"metadata": metadata})
        applied = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "new"}, "spec": {}}
        with pytest.raises(errors.Forbidden):
            await olga.patch(raw(QUEUES), "new", applied, kind=Patch.APPLY, field_manager="o", force=True)
        await admin.patch(raw(QUEUES), "red", {"spec": {"priority": 5}, "metadata": {"labels": {"a": "b"}}})


async def test_an_operator_asks_drivers_for_repairs_and_changes_nothing_else_of_slices(cluster: Cluster) -> None:
    async with operator(cluster) as (admin, olga):
        made = await admin.create(raw(RESOURCE_SLICES), slice_("n1"))
        name = made["metadata"]["name"]
        asked = {"metadata": {"annotations": {"request.repair.fairlead.dev/gpu-0": "{}"}}}
        await olga.patch(raw(RESOURCE_SLICES), name, asked)
        await olga.patch(raw(RESOURCE_SLICES), name, {"metadata": {"annotations": dict.fromkeys(asked)}})
        changes: tuple[Json, ...] = (
            {"spec": {"devices": []}},
            {"spec": {"devices": [{"name": "gpu-0", "attributes": {"productName": {"string": "H200"}}}]}},
            {"spec": {"pool": {"generation": 9}}},
            *({"metadata": each} for each in METADATA),
        )
        for change in changes:
            with pytest.raises(errors.ApiError, match=r"annotations request\.repair\.fairlead\.dev"):
                await olga.patch(raw(RESOURCE_SLICES), name, change)
        await admin.patch(raw(RESOURCE_SLICES), name, {"metadata": {"labels": {"a": "b"}}})


def test_the_policy_names_every_field_of_a_queue_but_the_hold() -> None:
    """A new field of the API that is missing there would be an operator's to write."""
    (policy,) = (
        each
        for each in load(BASE)
        if (each["kind"], each["metadata"]["name"]) == ("ValidatingAdmissionPolicy", "fairlead-operator-queues")
    )
    text = policy["spec"]["validations"][1]["expression"]
    fields = {field.alias or name for name, field in QueueSpec.model_fields.items()} - {"hold"}
    assert {f"object.spec.?{name} == oldObject.spec.?{name}" for name in fields} == set(
        text.replace("\n", " ").split(" && ")
    )
