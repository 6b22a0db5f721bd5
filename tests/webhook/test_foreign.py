"""Manifests written for other systems, at their review: what a Job says reaches its pods, and cannot change later.

Which verdict a manifest gets is in the table (verdicts/09-other-systems.yaml); here is what depends on the cluster, on other
members, or on an update.
"""

import copy
from typing import Any

import pytest

from fairlead.api import names
from fairlead.api.policy import TenancyPolicy
from fairlead.api.queue import Queue
from fairlead.webhook.review.facts import GangMember, needs
from tests.support.webhook import admitted, facts, review

Json = dict[str, Any]
KUEUE_QUEUE = {names.KUEUE_QUEUE: "user-queue"}
KUEUE_GROUP = {**KUEUE_QUEUE, names.KUEUE_GROUP_LABEL: "group"}
GATE = {"name": names.ADMISSION_GATE}
SPEC: Json = {
    "containers": [{"name": "main", "image": "busybox", "resources": {"claims": [{"name": "gpu"}]}}],
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "h100"}],
}


def pod(annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None, **spec: Any) -> Json:
    metadata = {"name": "w-0", "namespace": "ml", "annotations": annotations or {}, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": copy.deepcopy(SPEC) | spec}


def template(**spec: Any) -> Json:
    return {"spec": copy.deepcopy(SPEC) | spec}


def workload(kind: str, spec: Json, *, api: str = "batch/v1", labels: Json = KUEUE_QUEUE, **metadata: Any) -> Json:
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {"name": "train", "namespace": "ml", "labels": dict(labels)} | metadata,
        "spec": spec,
    }


def job(*, labels: Json = KUEUE_QUEUE, metadata: Json | None = None, pods: Json | None = None, **spec: Any) -> Json:
    body = {"parallelism": 3, "completions": 3, "template": template(**(pods or {}))} | spec
    return workload("Job", body, labels=labels, **(metadata or {}))


def labels_of(stored: Json, *path: str | int) -> Json:
    node: Any = stored
    for step in path:
        node = node[step]
    found: Json = node["metadata"]["labels"]
    return found


class TestQueue:
    """Kueue's users name a queue on the object that creates the pods."""

    @pytest.mark.parametrize(
        ("body", "templates"),
        [
            (job(), [("spec", "template")]),
            (
                workload(
                    "JobSet",
                    {
                        "replicatedJobs": [
                            {"name": "driver", "template": {"spec": {"template": template()}}},
                            {"name": "workers", "template": {"spec": {"parallelism": 2, "template": template()}}},
                        ]
                    },
                ),
                [("spec", "replicatedJobs", index, "template", "spec", "template") for index in (0, 1)],
            ),
            (
                workload(
                    "RayJob",
                    {
                        "rayClusterSpec": {
                            "headGroupSpec": {"template": template()},
                            "workerGroupSpecs": [{"replicas": 1, "template": template()}],
                        }
                    },
                ),
                [
                    ("spec", "rayClusterSpec", "headGroupSpec", "template"),
                    ("spec", "rayClusterSpec", "workerGroupSpecs", 0, "template"),
                ],
            ),
        ],
        ids=lambda value: value["kind"] if isinstance(value, dict) else "",
    )
    def test_it_reaches_every_template_as_it_is_written(self, body: Json, templates: list[tuple[Any, ...]]) -> None:
        stored, verdict = admitted(body, facts())
        assert verdict.allowed, verdict.message
        for path in templates:
            assert labels_of(stored, *path).items() >= KUEUE_QUEUE.items()

    def test_where_there_is_no_queue_of_that_name_a_warning_says_what_counts(self) -> None:
        spec: Json = {"namespaceSelector": {}}
        known = facts(queues={"team": Queue.stored({"metadata": {"name": "team"}, "spec": spec})})
        _, verdict = admitted(pod(labels=KUEUE_QUEUE), known)
        (warning,) = verdict.warnings
        assert warning == (
            f"metadata.labels[{names.KUEUE_QUEUE}]: Fairlead has no Queue 'user-queue', so the queue of the namespace counts. "
            "Known: team"
        )
        _, verdict = admitted(job(), known)
        assert verdict.warnings[0].startswith(
            f"metadata.labels[{names.KUEUE_QUEUE}]: Fairlead has no Queue 'user-queue'"
        )
        _, verdict = admitted(
            pod(labels=KUEUE_QUEUE), facts(queues=known.queues, namespace_labels={names.QUEUE_SYSTEM: "kueue"})
        )
        assert not any("user-queue" in each for each in verdict.warnings)  # the LocalQueue is meant, and counts
        _, verdict = admitted(pod(labels={names.KUEUE_QUEUE: "team"}), known)
        assert verdict.warnings == ()


class TestSuspended:
    """A Job for Kueue may be created suspended, for Kueue to start."""

    def suspended(self, body: Json, *path: str, **known: Any) -> bool:
        stored, verdict = admitted(body, facts(**known))
        assert verdict.allowed, verdict.message
        node: Any = stored
        for step in path or ("spec", "suspend"):
            node = node[step]
        assert isinstance(node, bool)
        return node

    def test_it_is_unsuspended_where_kueue_is_absent(self) -> None:
        assert not self.suspended(job(suspend=True))
        kueue = facts(served_apis=frozenset({names.KUEUE_API}))
        stored, verdict = admitted(job(suspend=True), kueue)
        assert stored["spec"]["suspend"] is True
        assert "spec.suspend: true is for Kueue to set to false, whose API is served" in verdict.warnings[0]
        assert not [text for text in admitted(job(), kueue)[1].warnings if "suspend" in text]

    def test_one_that_is_not_kueues_stays(self) -> None:
        assert self.suspended(job(labels={}, suspend=True))

    def test_one_whose_owner_decides_stays_and_a_cronjobs_is_unsuspended(self) -> None:
        owner = {"apiVersion": "v1", "name": "x", "controller": True}
        assert self.suspended(job(suspend=True, metadata={"ownerReferences": [owner | {"kind": "JobSet"}]}))
        assert not self.suspended(job(suspend=True, metadata={"ownerReferences": [owner | {"kind": "CronJob"}]}))

    def test_only_then_kueues_api_is_looked_up(self) -> None:
        assert needs(review(job(suspend=True))).apis == {names.KUEUE_API}
        assert needs(review(job())).apis == frozenset()
        assert needs(review(job(suspend=True), operation="UPDATE", old=job())).apis == frozenset()


class TestMembers:
    """Members are compared in whichever system's words they use, and a denial names the words that were used."""

    def test_sizes_that_contradict(self) -> None:
        known = facts(gangs={("ml", "group"): (GangMember(name="w-1", size=2, queue="user-queue"),)})
        _, verdict = admitted(pod({names.KUEUE_SIZE: "3"}, KUEUE_GROUP), known)
        assert verdict.message == (
            f"Pod ml/w-0: metadata.annotations[{names.KUEUE_SIZE}]: '3', but member w-1 of gang ml/group says '2'; "
            "give all members one size, or this gang another name"
        )

    def test_queues_that_contradict(self) -> None:
        known = facts(gangs={("ml", "group"): (GangMember(name="w-1", size=2, queue="other"),)})
        _, verdict = admitted(pod({names.KUEUE_SIZE: "2"}, KUEUE_GROUP), known)
        assert f"metadata.labels[{names.KUEUE_QUEUE}]: 'user-queue', but member w-1" in verdict.message

    def test_a_group_without_a_size_takes_that_of_its_members(self) -> None:
        known = facts(gangs={("ml", "group"): (GangMember(name="w-1", size=2),)})
        stored, verdict = admitted(pod({}, KUEUE_GROUP), known)
        assert verdict.allowed, verdict.message
        assert stored["metadata"]["annotations"][names.GANG_SIZE] == "2"


class TestPolicies:
    """A limit on gangs cannot be avoided by writing the size where no policy reads it."""

    @pytest.mark.parametrize(
        "body",
        [
            pod({names.VOLCANO_GROUP: "train"}),
            pod(schedulingGroup={"podGroupName": "train"}),
            job(pods={"schedulingGroup": {"podGroupName": "train"}}),
        ],
        ids=["Volcano", "native", "a Job's pods"],
    )
    def test_a_size_in_a_podgroup_must_be_on_the_pods_too(self, body: Json) -> None:
        spec: Json = {"namespaceSelector": {}, "maxGangSize": 4, "mode": "Enforce"}
        known = facts(policies=(TenancyPolicy.stored({"metadata": {"name": "small"}, "spec": spec}),))
        _, verdict = admitted(body, known)
        assert (
            "metadata.annotations[fairlead.dev/gang-size]: is missing: the size is in PodGroup train; write it here, too, "
            "at most 4"
        ) in verdict.message
        template = body["spec"].get("template", body)
        template["metadata"] = {**template.get("metadata", {}), "annotations": {names.VOLCANO_GROUP: "train"}}
        template["metadata"]["annotations"][names.GANG_SIZE] = "3"
        _, verdict = admitted(body, known)
        assert verdict.allowed, verdict.message
