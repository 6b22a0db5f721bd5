"""What only Fairlead writes on pods is written by nobody through their status either, which `*` in a namespace gives and the webhook does not see.

From these annotations the leader reads evictions, held places and precedence: a forged mark would lock devices as a forged Gang did.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from fairlead.api import names
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import PODS, raw
from fairlead.sandbox.cluster import Cluster
from tests.support.tenants import NAMESPACE, OWNER, with_tenants

pytestmark = pytest.mark.asyncio(loop_scope="module")
Json = dict[str, Any]


async def bind(client: Client, path: str, body: Json) -> None:
    await client.request("POST", path, body={"apiVersion": "v1", "kind": "Binding", **body})


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with with_tenants(tmp_path_factory.mktemp("c")) as made, made.client() as admin:
        spec = {"containers": [{"name": "c", "image": "busybox"}], "schedulingGates": [{"name": names.ADMISSION_GATE}]}
        meta = {"name": "p", "namespace": NAMESPACE, "annotations": {names.GANG: "g"}}
        await admin.create(raw(PODS), {"metadata": meta, "spec": spec})
        yield made


@pytest.mark.parametrize("where", ["annotations", "labels"])
async def test_nor_with_a_binding_which_copies_them_to_the_pod(cluster: Cluster, where: str) -> None:
    plain = {"containers": [{"name": "c", "image": "busybox"}]}
    async with cluster.client(OWNER) as tenant, cluster.client() as admin:
        name = f"plain-{where}"
        await admin.create(raw(PODS), {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": plain})
        target = {"apiVersion": "v1", "kind": "Node", "name": "n"}
        of_pod = PODS.path(NAMESPACE, name, "binding")
        for path in (of_pod, f"/api/v1/namespaces/{NAMESPACE}/bindings"):
            body = {"metadata": {"name": name, where: {names.EVICTION: "x"}}, "target": target}
            with pytest.raises(errors.Forbidden, match="only the Fairlead controller"):
                await bind(tenant, path, body)
        body = {"metadata": {"name": name, where: {"example.com/mine": "x"}}, "target": target}
        await bind(tenant, of_pod, body)


async def test_others_write_their_own_annotations_and_conditions_with_it(cluster: Cluster) -> None:
    async with cluster.client(OWNER) as tenant:
        condition = {"type": "example.com/Ready", "status": "True"}
        body: Json = {"metadata": {"annotations": {"k8s.v1.cni.cncf.io/network-status": "[]"}}}
        body["status"] = {"conditions": [condition]}
        written = await tenant.patch(raw(PODS), "p", body, namespace=NAMESPACE, subresource="status")
        assert written["metadata"]["annotations"] == body["metadata"]["annotations"] | {names.GANG: "g"}
