"""Workloads with slices, or subgroups by size: their pods have an index of their controller, or the workload is told so when it is written."""

from collections.abc import Mapping
from typing import Any

import pytest

from fairlead.api import names
from tests.field.models.test_what_people_run import asked
from tests.support.engine.objects import gpu
from tests.support.engine.world import World
from tests.support.webhook import admitted, facts

Json = dict[str, Any]
OWN = {names.SUBGROUP_SIZE: "2", names.SUBGROUP_TOPOLOGY: "required:kubernetes.io/hostname"}
KUEUE = {names.KUEUE_SLICE_SIZE: "2", names.KUEUE_SLICE_TOPOLOGY: "kubernetes.io/hostname"}
SPEC: Json = {"containers": [{"name": "main", "image": "x", "resources": {"limits": {names.LEGACY_GPU: "4"}}}]}


def template(notes: Mapping[str, str]) -> Json:
    return {"metadata": {"annotations": dict(notes)}, "spec": SPEC}


def replicas(**counts: int) -> Any:
    return lambda notes: {role: {"replicas": count, "template": template(notes)} for role, count in counts.items()}


def of_job(mode: str) -> Any:
    return lambda notes: {"parallelism": 4, "completions": 4, "completionMode": mode, "template": template(notes)}


def job_set(notes: Mapping[str, str]) -> Json:
    return {
        "replicatedJobs": [
            {"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 2, "template": template(notes)}}}
        ]
    }


def ray(notes: Mapping[str, str]) -> Json:
    group = {"groupName": "w", "replicas": 4, "minReplicas": 4, "template": template(notes)}
    return {
        "headGroupSpec": {"template": {"spec": {"containers": [{"name": "h", "image": "x"}]}}},
        "workerGroupSpecs": [group],
    }


# Kind, its spec with these annotations on the pods' template, and the labels and annotations of its first pod; None: its pods have no index.
KINDS: list[tuple[str, Any, Json | None]] = [
    ("Job", of_job("Indexed"), {"annotations": {names.COMPLETION_INDEX: "0"}}),
    ("Job", of_job("NonIndexed"), None),
    ("JobSet", job_set, {"annotations": {names.COMPLETION_INDEX: "0", names.JOBSET_JOB_INDEX: "0"}}),
    *(
        (kind, lambda notes, field=field: {field: replicas(Worker=4)(notes)}, {"labels": {names.KUBEFLOW_INDEX: "0", names.KUBEFLOW_TYPE: "worker"}})
        for kind, field in (("PyTorchJob", "pytorchReplicaSpecs"), ("MPIJob", "mpiReplicaSpecs"))
    ),
    ("LeaderWorkerSet", lambda notes: {"replicas": 1, "leaderWorkerTemplate": {"size": 4, "workerTemplate": template(notes)}},
     {"labels": {names.LWS_NAME: "sliced", names.LWS_GROUP_INDEX: "0", names.LWS_WORKER_INDEX: "1"}}),
    ("RayCluster", ray, None),
]  # fmt: skip


def written(kind: str, spec: Json) -> tuple[Json, Any]:
    labels = {names.KUEUE_QUEUE: "teams"}
    body = {"kind": kind, "metadata": {"name": "sliced", "namespace": "ml", "labels": labels}, "spec": spec}
    return admitted(body, facts())


def templates_of(found: Any) -> list[Json]:
    if isinstance(found, list):
        return [each for item in found for each in templates_of(item)]
    if not isinstance(found, dict):
        return []
    own = [found] if "spec" in found and "containers" in (found["spec"] or {}) and "metadata" in found else []
    return own + [each for value in found.values() for each in templates_of(value)]


@pytest.mark.parametrize("words", [OWN, KUEUE], ids=["own", "kueue"])
@pytest.mark.parametrize(("kind", "spec", "index"), KINDS, ids=[f"{row[0]}-{n}" for n, row in enumerate(KINDS)])
def test_what_is_accepted_has_pods_that_are(kind: str, spec: Any, index: Json | None, words: Mapping[str, str]) -> None:
    stored, verdict = written(kind, spec(words))
    if index is None:
        assert not verdict.allowed
        assert "the pod has no index by which it would be in a subgroup" in verdict.message
        return
    assert verdict.allowed, verdict.message
    (made,) = templates_of(stored)
    metadata = {
        "name": "p",
        "namespace": "ml",
        "annotations": {**made["metadata"]["annotations"], **index.get("annotations", {})},
    }
    metadata["labels"] = {**made["metadata"].get("labels", {}), **index.get("labels", {})}
    pod, told = admitted({"kind": "Pod", "metadata": metadata, "spec": made["spec"]}, facts())
    assert told.allowed, told.message
    assert pod["spec"]["schedulingGates"] == [{"name": names.ADMISSION_GATE}]


def test_an_elastic_pytorchjob_in_segments_starts_with_whole_segments() -> None:
    spec = {
        "elasticPolicy": {"rdzvBackend": "c10d", "minReplicas": 2, "maxReplicas": 6, "maxRestarts": 10},
        "runPolicy": {"cleanPodPolicy": "None", "schedulingPolicy": {"minAvailable": 2, "queue": "teams"}},
        "pytorchReplicaSpecs": replicas(Worker=6)(OWN),
    }
    meta = {"name": "elastic", "namespace": "ml"}
    document = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": spec}
    (gang,) = asked(document)
    assert (gang.size, [member.subgroup for member in gang.members]) == (2, ["0", "0"]), "the least that runs"
    world = World()
    for node in "abc":
        world.add_node(node, [gpu(minor) for minor in range(8)], labels={"kubernetes.io/hostname": node})
    plan = world.decide(gang)
    nodes = [assigned.node for assigned in plan.admissions[0].assignments]
    assert len(set(nodes)) == 1


def test_a_named_subgroup_needs_no_index() -> None:
    _, verdict = written(
        "RayCluster", ray({names.SUBGROUP: "a", names.SUBGROUP_TOPOLOGY: OWN[names.SUBGROUP_TOPOLOGY]})
    )
    assert verdict.allowed, verdict.message
