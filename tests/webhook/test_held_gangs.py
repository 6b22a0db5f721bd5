"""A protected hold, attacked by the tenant whose gang it holds: with the garbage collector, finalizers and a namespace that goes.

The tenant has `edit` and `*` in its namespace, the verb `hold` among all. The controllers of Kubernetes run as their accounts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.kube import errors
from fairlead.kube.client import Client, Patch
from fairlead.kube.resources import CLUSTER_ROLES, GANGS, ROLE_BINDINGS, raw
from fairlead.sandbox.controllers.garbage import GarbageCollector
from fairlead.sandbox.controllers.manager import account
from tests.support.sandbox import until
from tests.webhook.test_fences import Cluster, cluster

__all__ = ["cluster"]

Json = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
ABSENT = {"apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": "00000000-0000-4000-8000-000000000000"}
REFUSED = r"metadata\.ownerReferences, metadata\.finalizers: by them a hold could be deleted with another object"
NAME = "train"


@contextlib.asynccontextmanager
async def tenant(cluster: Cluster) -> AsyncIterator[tuple[Client, Client]]:
    """An administrator, and the tenant of namespace ml."""
    async with cluster.client("admin") as admin, cluster.client("alice") as alice:
        rules = [{"apiGroups": ["fairlead.dev"], "resources": ["*"], "verbs": ["*"]}]
        await admin.create(CLUSTER_ROLES, {"metadata": {"name": "everything"}, "rules": rules})
        subject = {"kind": "User", "name": "alice", "apiGroup": RBAC}
        for role in ("edit", "everything"):
            reference = {"kind": "ClusterRole", "name": role, "apiGroup": RBAC}
            body = {"metadata": {"name": f"alice-{role}"}, "subjects": [subject], "roleRef": reference}
            await admin.create(raw(ROLE_BINDINGS), body, "ml")
        yield admin, alice


async def gang(admin: Client, *, hold: bool = True, **metadata: Any) -> Json:
    spec: Json = {"size": 1, **({"hold": {"protected": True, "by": "admin"}} if hold else {})}
    return await admin.create(raw(GANGS), {"metadata": {"name": NAME, "namespace": "ml", **metadata}, "spec": spec})


@contextlib.asynccontextmanager
async def collector(cluster: Cluster) -> AsyncIterator[None]:
    async with cluster.client(account("generic-garbage-collector")) as client:
        loop = asyncio.create_task(GarbageCollector(client).run())
        try:
            yield
        finally:
            loop.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await loop


WRITES: dict[str, tuple[Patch, Any]] = {
    "merge": (Patch.MERGE, {"metadata": {"ownerReferences": [ABSENT]}}),
    "json": (Patch.JSON, [{"op": "add", "path": "/metadata/ownerReferences", "value": [ABSENT]}]),
    "apply": (Patch.APPLY, {"metadata": {"ownerReferences": [ABSENT]}}),
    "finalizer": (Patch.MERGE, {"metadata": {"finalizers": ["example.com/never"]}}),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("held", [True, False], ids=["held", "not-held-yet"])
async def test_a_tenant_hands_no_gang_to_the_garbage_collector(cluster: Cluster, write: str, held: bool) -> None:
    kind, body = WRITES[write]
    manager: Json = {"field_manager": "alice", "force": True} if kind is Patch.APPLY else {}
    async with tenant(cluster) as (admin, alice):
        await gang(admin, hold=held)
        with pytest.raises(errors.Forbidden, match=REFUSED):
            await alice.patch(raw(GANGS), NAME, body, namespace="ml", kind=kind, **manager)
        found = await admin.get(raw(GANGS), NAME, "ml")
        with pytest.raises(errors.Forbidden, match=REFUSED):
            await alice.replace(raw(GANGS), {**found, "metadata": {**found["metadata"], "ownerReferences": [ABSENT]}})
        await alice.patch(raw(GANGS), NAME, {"metadata": {"labels": {"mine": "yes"}}}, namespace="ml")


async def test_who_may_hold_deletes_it_with_its_dependents(cluster: Cluster) -> None:
    async with tenant(cluster) as (admin, alice):
        await gang(admin)
        for propagation in ("Background", "Foreground", "Orphan"):
            with pytest.raises(errors.Forbidden, match="is protected, written by admin"):
                await alice.delete(GANGS, NAME, "ml", propagation=propagation)
        async with collector(cluster):
            await admin.delete(GANGS, NAME, "ml", propagation="Foreground")

            async def gone() -> bool:
                return not (await admin.list(raw(GANGS), "ml")).items

            await until(gone, what="the Gang deleted in the foreground")
