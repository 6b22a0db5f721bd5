"""Workloads as people write them, on a cluster of three products: through the webhook, as gangs, to their devices.

Each is judged as when it is written, its pods are those that its controller would make, and one decision places them.
"""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.api import names
from fairlead.engine.forecast.what_if import ChangeError
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.reasons import Code
from fairlead.ui.what_if.workloads import Priorities, gangs
from fairlead.webhook.offline import World as Offline
from tests.engine.placement.test_models import A100, H100, L40S, cluster, models, reason
from tests.support.engine.world import World

Json = dict[str, Any]
EVICTED = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}


def template(gpus: int, notes: Json | None = None, **more: Any) -> Json:
    limits = {"nvidia.com/gpu": gpus}
    spec = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "busybox", "resources": {"limits": limits}}],
    }
    return {"metadata": {"annotations": notes or {}}, "spec": {**spec, **more}}


def workload(kind: str, version: str, spec: Json, notes: Json | None = None) -> Json:
    meta = {"name": "train", "namespace": "ml", "annotations": notes or {}}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}


def job(pods: int, gpus: int, notes: Json | None = None, **more: Any) -> Json:
    spec = {"completionMode": "Indexed", "completions": pods, "parallelism": pods, "backoffLimitPerIndex": 3}
    found = template(gpus, {names.GANG: "train", **(notes or {})}, **more)
    return workload("Job", "batch/v1", {**spec, "podFailurePolicy": {"rules": [EVICTED]}, "template": found})


def job_set(*gpus: int) -> Json:
    jobs = [
        {
            "name": f"part-{n}",
            "replicas": 1,
            "template": {"spec": {"parallelism": 2, "completions": 2, "template": template(each)}},
        }
        for n, each in enumerate(gpus)
    ]
    return workload("JobSet", "jobset.x-k8s.io/v1alpha2", {"replicatedJobs": jobs})


def ray(*gpus: int) -> Json:
    head = {"template": {"spec": {"containers": [{"name": "head", "image": "ray"}]}}}
    groups = [
        {"groupName": f"group-{n}", "replicas": 2, "minReplicas": 2, "template": template(each)}
        for n, each in enumerate(gpus)
    ]
    return workload("RayCluster", "ray.io/v1", {"headGroupSpec": head, "workerGroupSpecs": groups})


def pytorch(*gpus: int) -> Json:
    kinds = ("Master", "Worker")
    replicas = {
        kind: {"replicas": 2 * n or 1, "template": template(each)}
        for n, (kind, each) in enumerate(zip(kinds, gpus, strict=True))
    }
    return workload("PyTorchJob", "kubeflow.org/v1", {"pytorchReplicaSpecs": replicas})


def leader_worker_set(leader: int, workers: int) -> Json:
    group = {"size": 3, "leaderTemplate": template(leader), "workerTemplate": template(workers)}
    return workload("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", {"replicas": 1, "leaderWorkerTemplate": group})


def asked(document: Json) -> tuple[GangRequest, ...]:
    return gangs([document], Offline(), {"ml": {}}, Priorities(), 0.0)


def three(**more: tuple[str, int]) -> World:
    return cluster(a=(A100, 8), h1=(H100, 8), h2=(H100, 8), l=(L40S, 4), **more)


def got(world: World, document: Json) -> set[str]:
    """The models of all of its gangs; empty where one waits."""
    found = asked(document)
    plan = world.decide(*found)
    return set() if plan.waiting else {model for each in found for model in models(world, plan, each.name)}


def test_sixteen_gpus_by_the_legacy_name():
    assert got(three(), job(8, 2)) == {H100}


@pytest.mark.parametrize(("notes", "found"), [({names.MODELS: "any"}, 2), ({names.MODELS: "same"}, 1), ({}, 1)])
def test_what_its_template_says_counts(notes: Json, found: int):
    assert len(got(three(), job(8, 2, notes))) == found


def test_what_the_job_says_reaches_its_pods():
    document = job(8, 2)
    document["metadata"]["annotations"] = {names.MODELS: "any"}
    assert len(got(three(), document)) == 2


def test_eight_gpus_of_one_pod():
    assert got(cluster(a=(A100, 7), h=(H100, 8)), job(1, 8)) == {H100}


def test_a_gang_that_no_model_holds_never_fits_and_says_what_each_has():
    (wanted,) = asked(job(10, 2))
    found = reason(three().decide(wanted))
    assert (found.code, found.could_ever_fit) == (Code.NEVER_FITS, False)
    assert f"20 of one model wanted: {A100} has 8, {H100} has 16, {L40S} has 4" in found.message
    assert names.MODELS in found.advice


def test_a_node_selector_leaves_one_model():
    world = three()
    for name in ("a", "h1", "h2", "l"):
        world.node_json[name]["metadata"]["labels"]["kind"] = name[0]
    assert got(world.afresh(), job(4, 2, nodeSelector={"kind": "a"})) == {A100}


class TestParts:
    """Of the three products none holds both parts, and each part has one that does."""

    @pytest.mark.parametrize("document", [job_set(4, 2), ray(4, 2)], ids=["replicated jobs", "worker groups"])
    def test_each_has_its_own_model(self, document: Json):
        assert got(cluster(a=(A100, 4), h=(H100, 8)), document) == {A100, H100}

    @pytest.mark.parametrize("document", [job_set(4, 4), ray(4, 4)], ids=["replicated jobs", "worker groups"])
    def test_but_one_part_is_on_one(self, document: Json):
        assert got(cluster(a=(A100, 4), h=(H100, 4), l=(L40S, 8)), document) == set()

    @pytest.mark.parametrize(
        "document", [pytorch(4, 4), leader_worker_set(4, 4)], ids=["master and workers", "leader and workers"]
    )
    def test_those_that_train_together_are_one(self, document: Json):
        assert got(cluster(a=(A100, 4), h=(H100, 8)), document) == set()
        assert got(cluster(a=(A100, 4), h=(H100, 12)), document) == {H100}


def test_a_word_that_is_neither_is_refused_where_it_is_written():
    with pytest.raises(ChangeError, match=r"annotations\[fairlead.dev/models\]: 'mixed' is neither 'same' nor 'any'"):
        asked(job(2, 2, {names.MODELS: "mixed"}))
