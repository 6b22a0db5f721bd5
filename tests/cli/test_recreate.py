"""Waiting pods with named claims are deleted for their owners to create again; nothing else is touched."""

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

from fairlead.api import names
from fairlead.cli.programs.uninstall import waiting
from fairlead.kube import errors, resources
from fairlead.sandbox.cluster import Cluster, ClusterOptions
from tests.support.commands import invoke
from tests.support.kubernetes import of_this_run

CONFIG_MAPS = dataclasses.replace(resources.raw(resources.PODS), plural="configmaps", kind="ConfigMap")
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "web", "uid": "u", "controller": True}


def pod(name: str, *, gated: bool = True, named: bool = True, owned: bool = True, owner: str = "u") -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "ml",
            "annotations": {names.CLAIM_SOURCES: "{}"} if named else {},
            "ownerReferences": [OWNER | {"uid": owner}] if owned else [],
        },
        "spec": {
            "containers": [{"name": "main", "image": "busybox"}],
            "schedulingGates": [{"name": names.ADMISSION_GATE}] if gated else [],
        },
    }


def test_only_waiting_pods_with_named_claims_and_an_owner_are_chosen() -> None:
    leaving = pod("leaving")
    leaving["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    found = waiting(
        [pod("b"), pod("a"), pod("runs", gated=False), pod("other", named=False), pod("bare", owned=False), leaving]
    )
    assert [each["metadata"]["name"] for each in found.pods] == ["a", "b"]
    assert found.without_owner == ("ml/bare",)


async def test_the_command_deletes_them_on_a_cluster(tmp_path: Path) -> None:
    options = ClusterOptions(workdir=tmp_path, nodes=(), run_programs=False, release=of_this_run())
    async with Cluster(options) as cluster, cluster.client() as client:
        for namespace in ("ml", "red"):
            await client.create(resources.NAMESPACES, {"metadata": {"name": namespace}})
        made = await client.create(CONFIG_MAPS, {"metadata": {"name": "web", "namespace": "ml"}})
        uid = made["metadata"]["uid"]  # of an owner that exists: else the pods are garbage
        for each in (pod("waits", owner=uid), pod("runs", gated=False, owner=uid), pod("bare", owned=False)):
            await client.create(resources.PODS, each)
        kubeconfig = ["--kubeconfig", str(cluster.kubeconfig())]

        async def run(*words: str) -> str:
            done = await asyncio.to_thread(invoke, ["recreate", *kubeconfig, *words])
            assert done.exit_code == 0, done.output
            return done.output

        async def left() -> list[str]:
            return sorted(each.metadata.name for each in (await client.list(resources.PODS)).items)

        assert "0 waiting pods" in await run("-n", "red")
        assert "ml/waits: would be deleted" in await run("--dry-run")
        assert await left() == ["bare", "runs", "waits"]
        said = await run()
        assert "ml/waits: deleted" in said
        assert "ml/bare: nothing would create it again" in said
        assert await left() == ["bare", "runs"]


async def test_a_pod_that_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    from fairlead.cli.programs.uninstall import _delete

    class Changed:
        async def delete(self, *args: Any, **more: Any) -> None:
            assert more == {"uid": "u", "resource_version": "7"}
            raise errors.Conflict("the object has been modified", status=409)

    seen = pod("waits")
    seen["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    assert "left alone" in await _delete(Changed(), seen)  # type: ignore[arg-type]
