"""What a controller of Kubernetes deletes, scales or makes for a tenant, tried against a protected hold and against another namespace's gang.

Mallory has the role `edit` in ml, where an administrator has put her gang on hold, and none in vision. The garbage collector, the Job
controller with its time to live, and the claim controller run as their accounts.
"""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.api import names
from fairlead.kube import errors, resources
from fairlead.kube.client import Client, Patch
from fairlead.kube.resources import (
    CONFIG_MAPS,
    GANGS,
    JOBS,
    NAMESPACES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    ROLE_BINDINGS,
    raw,
)
from tests.controller.admission.test_jobs_on_the_sandbox import job as gang_job
from tests.controller.admission.test_jobs_on_the_sandbox import pods_of
from tests.controller.conftest import NAMESPACE, Bench

Json = dict[str, Any]
VICTIM = "vision"
RBAC = "rbac.authorization.k8s.io"


async def tenant(bench: Bench) -> None:
    await bench.client.create(raw(NAMESPACES), {"metadata": {"name": VICTIM}})
    body = {
        "metadata": {"name": "mallory"},
        "roleRef": {"kind": "ClusterRole", "name": "edit", "apiGroup": RBAC},
        "subjects": [{"kind": "User", "name": "mallory", "apiGroup": RBAC}],
    }
    await bench.client.create(raw(ROLE_BINDINGS), body, NAMESPACE)
    await bench.template("one")
    template = await bench.client.get(raw(RESOURCE_CLAIM_TEMPLATES), "one", NAMESPACE)
    copy = {"metadata": {"name": "one", "namespace": VICTIM}, "spec": template["spec"]}
    await bench.client.create(raw(RESOURCE_CLAIM_TEMPLATES), copy)


def owner(obj: Any, kind: str) -> Json:
    """As a controller names itself."""
    meta = obj.metadata
    return {
        "apiVersion": "v1", "kind": kind, "name": meta.name, "uid": meta.uid, "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip


async def held(bench: Bench) -> bool:
    found = await bench.client.get(raw(GANGS), "train", NAMESPACE)
    return bool(found["spec"].get("hold", {}).get("protected")) and "deletionTimestamp" not in found["metadata"]


@pytest.mark.core
async def test_no_controller_does_for_a_tenant_what_she_may_not(bench: Bench) -> None:
    await tenant(bench)
    async with bench.controller(), Client.connect(bench.cluster.kubeconfig("mallory")) as mallory:
        await bench.pod("other", template="one", namespace=VICTIM)
        await bench.until(lambda: _runs(bench, f"{VICTIM}/other"), "the other namespace's gang")
        hold = {"metadata": {"name": "train"}, "spec": {"size": 1, "hold": {"protected": True, "by": "admin"}}}
        await bench.client.create(raw(GANGS), hold, NAMESPACE)
        pods = await bench.gang("train", 2, template="one")
        await bench.until(lambda: bench.status("train").get("reason") == "OnHold", "the hold")

        said = {"spec": {"replicas": 0}, "status": {"phase": "Running"}}
        for subresource in ("scale", "status"):  # an autoscaler writes the one, a controller of hers might the other
            with pytest.raises((errors.NotFound, errors.Forbidden)):
                await mallory.patch(raw(GANGS), "train", said, namespace=NAMESPACE, subresource=subresource)
        with pytest.raises(errors.Forbidden):
            await mallory.delete(raw(GANGS), "train", NAMESPACE)

        # The garbage collector: her pods go with an owner of theirs, the hold does not.
        bait = await mallory.create(raw(CONFIG_MAPS), {"metadata": {"name": "bait"}}, NAMESPACE)
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "bait", "uid": bait["metadata"]["uid"]}
        for name in pods:
            owners = {"metadata": {"ownerReferences": [reference]}}
            await mallory.patch(raw(PODS), name, owners, namespace=NAMESPACE, kind=Patch.MERGE)
        await mallory.delete(raw(CONFIG_MAPS), "bait", NAMESPACE)
        await bench.until(lambda: all(bench.get(name) is None for name in pods), "her pods collected")
        assert await held(bench)

        # Objects of hers that name the other's pod as their owner: they go, and nothing else does.
        other = bench.pods.get(f"{VICTIM}/other")
        for made in (raw(CONFIG_MAPS), raw(resources.RESOURCE_CLAIMS)):
            spec: Json = {} if made.plural == "configmaps" else {"spec": {"devices": {"requests": []}}}
            metadata = {"name": "claimed", "ownerReferences": [owner(other, "Pod")]}
            await mallory.create(made, {"metadata": metadata, **spec}, NAMESPACE)

        # The Job controller: a Job of the held gang's name, one after the other, suspended and deleted.
        for name in ("first", "again"):
            await _comes_and_goes(bench, mallory, name)
            assert await held(bench)
        found = [each["metadata"]["name"] for each in (await mallory.list(raw(CONFIG_MAPS), NAMESPACE)).items]
        assert "claimed" not in found
        assert _runs(bench, f"{VICTIM}/other")
        assert {each.metadata.namespace for each in bench.allocated()} == {VICTIM}


async def _comes_and_goes(bench: Bench, mallory: Client, job: str) -> None:
    spec: Json = {"parallelism": 2, "completions": 2, "ttlSecondsAfterFinished": 0}
    notes = {names.GANG: "train", names.GANG_SIZE: "2"}
    await gang_job(bench, job, 2, command="serve", template="one", notes=notes, client=mallory, **spec)
    await bench.until(lambda: _gated(bench, job), f"the pods of Job {job} wait")
    await mallory.patch(raw(JOBS), job, {"spec": {"suspend": True}}, namespace=NAMESPACE)
    await bench.until(lambda: not pods_of(bench, job), f"Job {job} has no pods")
    await mallory.delete(raw(JOBS), job, NAMESPACE)


def _gated(bench: Bench, job: str) -> bool:
    found = pods_of(bench, job)
    return (
        len(found) == 2
        and bench.status("train").get("members") == 2
        and all(pod.spec.scheduling_gates for pod in found)
    )


def _runs(bench: Bench, key: str) -> bool:
    pod = bench.pods.get(key)
    return pod is not None and pod.status.phase == "Running"
