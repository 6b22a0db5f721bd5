"""A tenant changes no label of its Namespace, by which queues take it and policies hold there; RBAC grants `*` in it on the object itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from fairlead.kube.client import Client
from fairlead.kube.resources import CLUSTER_ROLES, NAMESPACES, raw
from fairlead.sandbox.cluster import Cluster
from tests.support.tenants import GROUP, NAMESPACE, OWNER, with_tenants
from tests.webhook.test_fences import BINDINGS

pytestmark = pytest.mark.asyncio(loop_scope="module")
Json = dict[str, Any]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with with_tenants(tmp_path_factory.mktemp("c")) as made, made.client() as admin:
        enforced = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
        await admin.patch(raw(NAMESPACES), NAMESPACE, enforced)
        yield made


async def labels(admin: Client) -> Json:
    found: Json = (await admin.get(raw(NAMESPACES), NAMESPACE))["metadata"]["labels"]
    return found


async def test_its_annotations_are_its_own_and_labels_are_those_of_who_may_change_all(cluster: Cluster) -> None:
    async with cluster.client(OWNER) as tenant, cluster.client("nora") as nora, cluster.client() as admin:
        await tenant.patch(raw(NAMESPACES), NAMESPACE, {"metadata": {"annotations": {"example.com/note": "x"}}})
        rule = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "patch"]}
        await admin.create(raw(CLUSTER_ROLES), {"metadata": {"name": "namer"}, "rules": [rule]})
        subject = {"kind": "User", "name": "nora", "apiGroup": GROUP}
        reference = {"kind": "ClusterRole", "name": "namer", "apiGroup": GROUP}
        await admin.create(BINDINGS, {"metadata": {"name": "nora"}, "subjects": [subject], "roleRef": reference})
        await nora.patch(raw(NAMESPACES), NAMESPACE, {"metadata": {"labels": {"team": "ml"}}})
