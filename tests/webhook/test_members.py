"""Members without devices over their life: made, stored, changed. What is answered to new ones is in verdicts/11-members.yaml."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from fairlead.api import names
from fairlead.api.queue import Queue
from fairlead.webhook.handlers import dispatch
from tests.support.webhook import admitted, facts, patched, review

Json = dict[str, Any]
HEAD = ("spec", "headGroupSpec", "template")
SAID = {names.GANG: "rollouts", names.GANG_SIZE: "3", names.MEMBERS: "all"}


def cluster(members: str | None = None, replicas: int = 2) -> Json:
    worker: Json = {"containers": [{"name": "w", "image": "ray", "resources": {"claims": [{"name": "gpu"}]}}]}
    worker["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "h100"}]
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {
            "name": "rollouts",
            "namespace": "ml",
            "annotations": {} if members is None else {names.MEMBERS: members},
        },
        "spec": {
            "headGroupSpec": {"template": {"spec": {"containers": [{"name": "h", "image": "ray"}]}}},
            "workerGroupSpecs": [{"groupName": "gpu", "replicas": replicas, "template": {"spec": worker}}],
        },
    }


def annotations_of(stored: Json) -> tuple[Json, Json]:
    """Of the head's template, and of the workers'."""
    spec = stored["spec"]
    templates = (spec["headGroupSpec"]["template"], spec["workerGroupSpecs"][0]["template"])
    head, workers = ((each.get("metadata") or {}).get("annotations") or {} for each in templates)
    return head, workers


def updated(stored: Json, **changes: Any) -> Json:
    """The stored object as a user's update leaves it, after its review."""
    new = copy.deepcopy(stored)
    new["spec"]["workerGroupSpecs"][0]["replicas"] = changes.pop("replicas", 2)
    new["metadata"]["annotations"] |= changes.pop("annotations", {})
    verdict = dispatch.mutate(review(new, operation="UPDATE", old=stored), facts(**changes))
    assert verdict.allowed, verdict.message
    return patched(new, verdict)


def all_wait() -> dict[str, Any]:
    spec = {"namespaceSelector": {}, "members": "all"}
    queue = Queue.stored({"apiVersion": names.API_VERSION, "kind": "Queue", "metadata": {"name": "q"}, "spec": spec})
    return {"queues": {"q": queue}, "namespace_labels": {"kubernetes.io/metadata.name": "ml"}}


def test_a_head_that_was_a_member_stays_one_when_its_cluster_is_scaled() -> None:
    stored, _ = admitted(cluster("all"), facts())
    head, workers = annotations_of(updated(stored, replicas=5))
    assert (head[names.GANG_SIZE], workers[names.GANG_SIZE]) == ("6", "6")


@pytest.mark.parametrize("changes", [all_wait(), {"annotations": {names.MEMBERS: "all"}}], ids=["queue", "annotation"])
def test_a_head_that_runs_already_does_not_become_a_member(changes: dict[str, Any]) -> None:
    """Its pod was never gated: a gang that counted it would wait for a pod that never comes."""
    stored, _ = admitted(cluster(), facts())
    head, workers = annotations_of(updated(stored, replicas=3, **changes))
    assert names.MEMBERS not in head
    assert workers[names.GANG_SIZE] == "3"


def test_a_head_keeps_what_its_queue_said_when_it_was_made() -> None:
    stored, _ = admitted(cluster(), facts(**all_wait()))
    head, workers = annotations_of(updated(stored, replicas=3))
    assert (head[names.GANG_SIZE], workers[names.GANG_SIZE]) == ("4", "4")


def pod(*, gated: bool = True, **notes: str) -> Json:
    gates = [{"name": names.ADMISSION_GATE}] if gated else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "head", "namespace": "ml", "annotations": {**SAID, **notes}},
        "spec": {"schedulingGates": gates, "containers": [{"name": "h", "image": "ray"}]},
    }


def test_a_member_whose_gate_was_lost_on_the_way_is_refused() -> None:
    verdict = dispatch.validate(review(pod(gated=False)), facts())
    assert not verdict.allowed
    assert verdict.code == 429
    assert "the gate fairlead.dev/admission is missing" in verdict.message
    assert dispatch.validate(review(pod()), facts()).allowed


@pytest.mark.parametrize("gated", [True, False], ids=["waits", "runs"])
@pytest.mark.parametrize("key", [names.GANG, names.MEMBERS, names.GANG_SIZE])
def test_a_member_cannot_leave_its_gang(gated: bool, key: str) -> None:
    old, new = pod(gated=gated), pod(gated=gated)
    del new["metadata"]["annotations"][key]
    verdict = dispatch.validate(review(new, old=old, operation="UPDATE"), facts())
    assert not verdict.allowed
    assert f"metadata.annotations[{key}]: cannot be removed" in verdict.message


def test_nobody_but_the_controller_says_that_a_member_was_released() -> None:
    new = pod(gated=False, **{names.RELEASED_AT: "2026-01-01T00:00:00Z"})
    assert not dispatch.validate(review(new, old=pod(gated=False), operation="UPDATE"), facts()).allowed
