"""What a template got from its workload follows the workload: queue, topology, models, size. Where it cannot follow, the edit is told so."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from fairlead.api import names
from fairlead.webhook.handlers import dispatch
from fairlead.webhook.review.verdict import Verdict
from tests.field.sizes.test_counted_sizes import job, template, updated
from tests.support.webhook import admitted, facts, review

Json = dict[str, Any]
Make = Callable[[dict[str, str]], Json]


def torch(notes: dict[str, str] | None = None, labels: dict[str, str] | None = None) -> Json:
    metadata = {"name": "t", "namespace": "ml", "annotations": notes or {}, "labels": labels or {}}
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": template()}}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata, "spec": spec}


def served(notes: dict[str, str] | None = None, labels: dict[str, str] | None = None) -> Json:
    metadata = {"name": "s", "namespace": "ml", "annotations": notes or {}, "labels": labels or {}}
    spec = {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template()}}
    return {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": metadata, "spec": spec}


def edited(stored: Json, notes: dict[str, str], labels: dict[str, str] | None = None) -> Json:
    """As `kubectl apply` sends it: with what the webhook wrote into the template."""
    made = deepcopy(stored)
    made["metadata"]["annotations"], made["metadata"]["labels"] = notes, labels or {}
    return made


def of_pods(object_: Json) -> Json:
    """Metadata of the pods' template."""
    spec = object_["spec"]
    worker = spec["pytorchReplicaSpecs"]["Worker"]["template"] if "pytorchReplicaSpecs" in spec else None
    found: Json = (worker or spec["leaderWorkerTemplate"]["workerTemplate"])["metadata"]
    return found


def notes_of(object_: Json) -> dict[str, str]:
    return of_pods(object_).get("annotations") or {}


def judged(stored: Json, changed: Json) -> Verdict:
    return dispatch.mutate(review(changed, operation="UPDATE", old=stored), facts())


@pytest.mark.parametrize("make", [torch, served])
@pytest.mark.parametrize(
    ("key", "first", "second"),
    [
        (names.QUEUE, "research", "vision"),
        (names.TOPOLOGY, "required:rack", "preferred:rack"),
        (names.MODELS, "same", "any"),
        (names.GANG_SIZE, "2", "1"),
        (names.MIN_RUNTIME, "10m", "20m"),
    ],
)
def test_one_edit_of_a_workload_reaches_its_template(make: Make, key: str, first: str, second: str) -> None:
    gang = {names.GANG: "g"}
    stored, _ = admitted(make({**gang, key: first}), facts())
    assert notes_of(stored)[key] == first
    assert judged(stored, stored).warnings == ()
    changed = edited(stored, {**gang, key: second})
    said = [text for text in judged(stored, changed).warnings if "from now on" in text]
    assert len(said) == (key != names.GANG_SIZE), said
    after = updated(stored, changed)
    assert notes_of(after)[key] == second
    again = updated(after, edited(after, {**gang, key: first}))
    assert notes_of(again)[key] == first


def test_so_does_the_queue_label() -> None:
    stored, _ = admitted(torch(labels={names.QUEUE: "research"}), facts())
    assert notes_of(updated(stored, edited(stored, {}, {names.QUEUE: "vision"})))[names.QUEUE] == "vision"


@pytest.mark.parametrize("key", [names.KUEUE_QUEUE, names.KUEUE_PRIORITY])
def test_so_do_the_labels_of_another_system(key: str) -> None:
    stored, _ = admitted(torch(labels={key: "research"}), facts())

    def label(object_: Json) -> str:
        found: str = of_pods(object_)["labels"][key]
        return found

    assert label(stored) == "research"
    assert label(updated(stored, edited(stored, {}, {key: "vision"}))) == "vision"


def test_what_a_user_wrote_on_the_template_stays_and_the_contradiction_is_refused() -> None:
    stored, _ = admitted(torch({names.QUEUE: "research"}), facts())
    own = edited(stored, {names.QUEUE: "vision"})
    of_pods(own)["annotations"][names.QUEUE] = "third"
    verdict = judged(stored, own)
    assert not verdict.allowed
    assert "'vision', but the pod template says 'third'; keep one of them" in verdict.message


def test_what_is_removed_is_said_to_stay_in_the_template() -> None:
    stored, _ = admitted(torch({names.QUEUE: "research"}), facts())
    verdict = judged(stored, edited(stored, {}))
    assert verdict.allowed
    (said,) = (text for text in verdict.warnings if names.QUEUE in text)
    assert "still says 'research', which it got from here; remove it there, too" in said


def test_a_job_whose_pods_cannot_follow_says_what_to_do() -> None:
    notes = {names.GANG: "train", names.QUEUE: "research"}
    stored, _ = admitted(job(4, notes=notes), facts())
    assert judged(stored, stored).warnings == ()
    changed = deepcopy(stored)
    changed["metadata"]["annotations"] = {**notes, names.QUEUE: "vision"}
    verdict = judged(stored, changed)
    assert verdict.allowed
    (said,) = verdict.warnings
    assert said == (
        "metadata.annotations[fairlead.dev/queue]: 'vision', but its pods do not follow: spec.template says 'research', and the "
        "template of a Job that is not suspended cannot change; delete it and create it again"
    )
    both = deepcopy(changed)
    both["spec"]["template"]["metadata"]["annotations"][names.QUEUE] = "vision"
    assert judged(stored, both).warnings == (), "it was suspended, and both were changed"
