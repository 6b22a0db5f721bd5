"""A size that nobody wrote follows the workload it was counted of: down and up, waiting and running, over updates and copies."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.api import names
from fairlead.api.derived import workload_of
from fairlead.controller.watch.other_systems import kept_of_workload as kept
from fairlead.kube import batch, core, timestamps
from fairlead.webhook.handlers import dispatch
from fairlead.webhook.review.facts import GangMember
from tests.controller.gang_views import NOW, Objects, claim, pod, view
from tests.support.webhook import admitted, facts, patched, review

Json = dict[str, Any]
LIMITS = {"limits": {names.LEGACY_GPU: "1"}}


def template(notes: dict[str, str] | None = None) -> Json:
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x", "resources": LIMITS}]}
    return {"metadata": {"annotations": dict(notes or {})}, "spec": spec}


def job(parallelism: int, name: str = "train", notes: dict[str, str] | None = None) -> Json:
    metadata = {"name": name, "namespace": "ml", "annotations": notes or {names.GANG: "train"}}
    spec = {"parallelism": parallelism, "completions": parallelism, "template": template()}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def torch(replicas: int, notes: dict[str, str] | None = None) -> Json:
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": replicas, "template": template(notes)}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "t", "namespace": "ml"},
        "spec": spec,
    }


def notes_of(stored: Json) -> dict[str, str]:
    worker: Json = stored["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    return {key: value for key, value in worker["metadata"]["annotations"].items() if key.startswith(names.GANG_SIZE)}


def updated(stored: Json, changed: Json) -> Json:
    verdict = dispatch.mutate(review(changed, operation="UPDATE", old=stored), facts())
    assert verdict.allowed, verdict.message
    found: Json = patched(changed, verdict)
    return found


def scaled(stored: Json, replicas: int, **notes: str) -> Json:
    made: Json = msgspec.json.decode(msgspec.json.encode(stored))
    worker = made["spec"]["pytorchReplicaSpecs"]["Worker"]
    worker["replicas"] = replicas
    worker["template"]["metadata"]["annotations"] |= notes
    return made


def test_a_counted_size_is_counted_again_and_a_users_stays() -> None:
    stored, _ = admitted(torch(5), facts())
    assert notes_of(stored) == {names.GANG_SIZE: "5", names.SIZE_FROM: "PyTorchJob/t"}
    smaller = updated(stored, scaled(stored, 2))
    assert notes_of(smaller)[names.GANG_SIZE] == "2"
    assert notes_of(updated(smaller, scaled(smaller, 6)))[names.GANG_SIZE] == "6"
    own = updated(smaller, scaled(smaller, 4, **{names.GANG_SIZE: "3"}))
    assert notes_of(own) == {names.GANG_SIZE: "3"}, "a user wrote it, and it is counted no more"
    assert notes_of(updated(own, scaled(own, 8))) == {names.GANG_SIZE: "3"}


def test_a_new_worker_that_says_the_new_size_is_admitted_beside_the_old_ones() -> None:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "t", "uid": "u", "controller": True}
    notes = {names.GANG: "t", names.GANG_SIZE: "6", names.SIZE_FROM: "PyTorchJob/t"}
    body = {
        "kind": "Pod",
        "metadata": {"name": "w5", "namespace": "ml", "annotations": notes, "ownerReferences": [owner]},
    }
    body["spec"] = template()["spec"]
    old = GangMember(name="w0", size=4, size_from=("PyTorchJob", "t"), workload="PyTorchJob/t")
    _, verdict = admitted(body, facts(gangs={("ml", "t"): (old,)}))
    assert verdict.allowed, verdict.message
    stranger = GangMember(name="w0", size=4)
    _, verdict = admitted(body, facts(gangs={("ml", "t"): (stranger,)}))
    assert "'6', but member w0 of gang ml/t says '4'" in verdict.message


def test_a_copied_job_with_the_gangs_name_is_told_so_and_a_gang_of_both_is_not() -> None:
    running = GangMember(name="p", size=3, size_from=("Job", "exp-a"), workload="Job/exp-a")
    known = facts(gangs={("ml", "train"): (running,)})
    _, verdict = admitted(job(3, "exp-b"), known)
    assert not verdict.allowed
    assert "'train' is the gang of Job/exp-a, which has a size of its own; name another gang" in verdict.message
    _, verdict = admitted(job(3, "exp-a"), known)
    assert verdict.allowed, verdict.message
    both = {names.GANG: "train", names.GANG_SIZE: "6"}
    _, verdict = admitted(job(3, "exp-b", both), facts(gangs={("ml", "train"): (GangMember(name="p", size=6),)}))
    assert verdict.allowed, verdict.message


def member(
    name: str,
    shown: str,
    *,
    size: str,
    source: str,
    kind: str = "Job",
    age_s: float = 60.0,
    owner: str = "rs",
    **labels: str,
) -> core.Pod:
    """`shown`: R runs, G waits at its gate."""
    notes = {names.GANG: "train", names.GANG_SIZE: size} | ({names.SIZE_FROM: f"{kind}/{source}"} if source else {})
    made_by = {"kind": kind, "name": source or owner, "uid": f"uid-{source}", "controller": True}
    more: Json = {"node": "n0", "gated": False, "phase": "Running", "claim": f"c-{name}"} if shown == "R" else {}
    since = timestamps.seconds(NOW - age_s)
    made: core.Pod = pod(
        name, annotations=notes, labels=labels, ownerReferences=[made_by], creationTimestamp=since, **more
    )
    return made


def a_job(name: str, parallelism: int) -> batch.Job:
    spec = {
        "parallelism": parallelism,
        "completions": max(12, parallelism),
        "template": {"metadata": {"annotations": {names.GANG: "train"}}},
    }
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": "ml", "uid": f"uid-{name}"}, "spec": spec}, batch.Job
    )


def gang(pods: list[core.Pod], **objects: Any) -> Any:
    running = [each.metadata.name for each in pods if each.spec.node_name]
    held = [claim(f"c-{name}", name, node="n0", reserved=(name,)) for name in running]
    return view(*pods, objects=Objects(claims=held, **objects))


@pytest.mark.parametrize(("parallelism", "size"), [(6, 6), (12, 12), (20, 20), (0, 12)])
def test_a_waiting_gang_has_the_size_that_its_job_has_now(parallelism: int, size: int) -> None:
    pods = [member(f"p{n}", "G", size="12", source="train") for n in range(6)]
    assert gang(pods, jobs=[a_job("train", parallelism)]).size == size


def test_a_size_that_a_user_wrote_stays_whatever_its_job_says() -> None:
    pods = [member(f"p{n}", "G", size="12", source="") for n in range(6)]
    assert gang(pods, jobs=[a_job("train", 6)]).size == 12


@pytest.mark.parametrize(("parallelism", "size"), [(2, 2), (6, 4)])
def test_while_it_runs_it_shrinks_at_once_and_grows_with_what_runs(parallelism: int, size: int) -> None:
    pods = [member(f"p{n}", "R", size="4", source="train") for n in range(min(4, parallelism))]
    assert gang(pods, jobs=[a_job("train", parallelism)]).size == size


def test_other_workloads_say_it_in_their_templates() -> None:
    pods = [member(f"w{n}", "G", size="5", source="t", kind="PyTorchJob") for n in range(2)]
    assert gang(pods, workload_sizes={"PyTorchJob/t": 2}).size == 2
    assert gang(pods).size == 5, "not read: the pods' word counts"
    notes = {names.GANG: "t", names.GANG_SIZE: "2", names.SIZE_FROM: "PyTorchJob/t"}
    assert kept({"metadata": {"name": "t", "labels": {"a": "b"}}, **torch(2, notes)})["sizes"] == {"t": 2}
    assert kept(torch(2, {names.GANG: "t", names.GANG_SIZE: "2"}))["sizes"] == {}


def test_of_two_generations_the_newest_counts() -> None:
    def serve(name: str, shown: str, size: str, revision: str, age_s: float) -> core.Pod:
        labels = {"pod-template-hash": revision}
        return member(
            name, shown, size=size, source="", kind="ReplicaSet", age_s=age_s, owner=f"serve-{revision}", **labels
        )

    old = [serve(f"a{n}", "R", "2", "1", 99.0) for n in range(2)]
    new = serve("b0", "G", "3", "2", 1.0)
    found = gang([*old, new])
    assert (found.size, found.problems) == (3, ())
    assert workload_of({}, {"pod-template-hash": "2"}, ("ReplicaSet", "serve-2")) == "Deployment/serve"


def test_two_workloads_of_one_gang_name_are_never_torn() -> None:
    first = [member(f"a{n}", "R", size="3", source="exp-a") for n in range(3)]
    second = [member(f"b{n}", "G", size="3", source="exp-b", age_s=1.0) for n in range(3)]
    found = gang(first + second, jobs=[a_job("exp-a", 3), a_job("exp-b", 3)])
    assert (found.size, len(found.members), len(found.gated)) == (3, 3, 0)
    assert "pods of Job/exp-b have this gang's name and are no members" in found.notes[0]
    assert len(gang(second, jobs=[a_job("exp-b", 3)]).gated) == 3, "they have their turn when the first has ended"
