"""Manifests written for other systems, unchanged, on a cluster with all three programs: the device plugin's, Kueue's, Volcano's, coscheduling's."""

from typing import Any

import pytest

from fairlead.api import names
from fairlead.kube.resources import GANGS
from fairlead.sandbox.cluster import NodeSpec
from tests.support.sandbox import View, cluster, until

Json = dict[str, Any]
QUEUES: tuple[tuple[str, Json], ...] = (("user-queue", {}), ("research", {}), ("everyone", {"namespaceSelector": {}}))


def _crd(group: str, version: str) -> Json:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"podgroups.{group}"},
        "spec": {
            "group": group,
            "names": {"plural": "podgroups", "singular": "podgroup", "kind": "PodGroup", "listKind": "PodGroupList"},
            "scope": "Namespaced",
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def _pod(name: str, *, labels: Json | None = None, annotations: Json | None = None, **spec: Any) -> Json:
    container: Json = {"name": "main", "image": "busybox", "command": ["sleep", "infinity"]}
    container["resources"] = {"limits": {names.LEGACY_GPU: 1}}
    metadata = {"name": name, "namespace": "default", "labels": labels or {}, "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]} | spec}


@pytest.mark.slow
async def test_manifests_for_kueue_volcano_and_coscheduling_run_unchanged() -> None:
    """On a cluster that has none of them, and gets the CRDs of two while everything runs."""
    kueue: Json = {names.KUEUE_QUEUE: "user-queue"}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "sample-job", "namespace": "default", "labels": kueue},
        "spec": {
            "parallelism": 3,
            "completions": 3,
            "suspend": True,
            "template": {"spec": _pod("")["spec"] | {"restartPolicy": "Never"}},
        },
    }
    group = kueue | {names.KUEUE_GROUP_LABEL: "sample-group"}
    two = {names.KUEUE_SIZE: "2"}
    coscheduling = {names.COSCHEDULING_GROUP_LABEL: "nginx"}
    volcano = {names.VOLCANO_GROUP: "vtrain"}
    pods = [
        *(_pod(f"sample-{n}", labels=group, annotations=two) for n in range(2)),
        *(_pod(f"nginx-{n}", labels=coscheduling, schedulerName="scheduler-plugins-scheduler") for n in range(2)),
        *(_pod(f"vtrain-{n}", annotations=volcano, schedulerName="volcano") for n in range(2)),
    ]
    queues = [
        {"apiVersion": "fairlead.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}
        for name, spec in QUEUES
    ]
    groups = [
        {
            "apiVersion": f"{api}/{version}",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default"},
            "spec": spec,
        }
        for api, version, name, spec in (
            ("scheduling.x-k8s.io", "v1alpha1", "nginx", {"minMember": 2}),
            ("scheduling.volcano.sh", "v1beta1", "vtrain", {"minMember": 2, "queue": "research"}),
        )
    ]
    async with cluster(NodeSpec("big", "hgx-h100"), NodeSpec("other", "hgx-h100")) as made, made.client() as client:
        view = View(client)
        await made.apply([*queues, job, *pods])

        async def gangs() -> dict[str, tuple[str, int, str]]:
            """Phase, size and queue of each."""
            found = await view.all(GANGS, "default")
            return {
                gang["metadata"]["name"]: (
                    gang["status"]["phase"],
                    gang["spec"]["size"],
                    gang["status"].get("queue", ""),
                )
                for gang in found
                if "status" in gang
            }

        async def settled() -> bool:
            found = await gangs()
            return {name: said[0] for name, said in found.items()} == {
                "sample-job": "Running",
                "sample-group": "Running",
                "nginx": "Gathering",
                "vtrain": "Gathering",
            }

        await until(settled, timeout_s=60)
        await made.apply([_crd("scheduling.x-k8s.io", "v1alpha1"), _crd("scheduling.volcano.sh", "v1beta1")])
        await made.apply(groups)

        async def all_run() -> bool:
            return await gangs() == {
                "sample-job": ("Running", 3, "user-queue"),
                "sample-group": ("Running", 2, "user-queue"),
                "nginx": ("Running", 2, "everyone"),
                "vtrain": ("Running", 2, "research"),
            }

        await until(all_run, timeout_s=90)
