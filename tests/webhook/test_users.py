"""Who created a workload: written on its pods and templates when it is created, forged by nobody, changed by nobody."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from fairlead.api import names
from fairlead.webhook.handlers import dispatch
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.verdict import apply_patch
from tests.support.webhook import facts, review

from .test_pods import pod

Json = dict[str, Any]
JOB_CONTROLLER = "system:serviceaccount:kube-system:job-controller"
REPLICA_SETS = "system:serviceaccount:kube-system:replicaset-controller"
TENANT = "system:serviceaccount:ml:pipeline"
FORGED = {names.USER: "mallory"}


OWNERS = {
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "CronJob": "batch/v1",
    "MPIJob": "kubeflow.org/v2beta1",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
}


def known() -> Facts:
    return facts(records_users=True)


def template(annotations: Json | None = None) -> Json:
    body = pod()
    return {"metadata": {"annotations": annotations or {}}, "spec": {**body["spec"], "restartPolicy": "Never"}}


def job(annotations: Json | None = None, *, owner: str = "", **metadata: Any) -> Json:
    version = OWNERS.get(owner, "example.com/v1")
    owners = [{"apiVersion": version, "kind": owner, "name": "o", "uid": "o", "controller": True}]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "ml", **({"ownerReferences": owners} if owner else {}), **metadata},
        "spec": {"template": template(annotations)},
    }


def made(by: str, *, annotations: Json | None = None, owner: str | None = "Job", version: str = "batch/v1") -> Json:
    body = pod(annotations=annotations)
    if owner is not None:
        body["metadata"]["ownerReferences"] = [
            {"apiVersion": version, "kind": owner, "name": "train", "uid": "u", "controller": True}
        ]
    given = review(body, username=by)
    verdict = dispatch.mutate(given, known())
    assert verdict.allowed, verdict.message
    stored: Json = apply_patch(body, verdict.patch)
    assert dispatch.validate(review(stored, username=by), known()).allowed
    assert dispatch.mutate(review(stored, username=by), known()).patch == (), "a second pass changes nothing"
    return stored


def user(stored: Json) -> str | None:
    found: str | None = (stored["metadata"].get("annotations") or {}).get(names.USER)
    return found


@pytest.mark.parametrize("annotations", [None, FORGED])
@pytest.mark.parametrize("owner", [None, "Job", "ReplicaSet"])
@pytest.mark.parametrize("by", ["alice", TENANT])
def test_a_pod_has_the_user_who_creates_it_whatever_it_says(
    by: str, owner: str | None, annotations: Json | None
) -> None:
    assert user(made(by, annotations=annotations, owner=owner)) == by


def test_a_pod_that_the_job_controller_makes_has_the_user_of_its_template() -> None:
    assert user(made(JOB_CONTROLLER, annotations={names.USER: "alice"})) == "alice"
    assert user(made("system:kube-controller-manager", annotations={names.USER: "alice"})) == "alice"
    assert user(made(JOB_CONTROLLER)) is None, "of a Job that is older than this"


@pytest.mark.parametrize(
    ("owner", "version"), [("ReplicaSet", "apps/v1"), ("StatefulSet", "apps/v1"), ("Job", "x.com/v1"), (None, "")]
)
def test_templates_that_the_webhook_never_saw_say_nothing(owner: str | None, version: str) -> None:
    assert user(made(REPLICA_SETS, annotations=FORGED, owner=owner, version=version)) is None


def of_template(body: Json, by: str, *, old: Json | None = None) -> str | None:
    given = review(body, username=by, old=old, operation="CREATE" if old is None else "UPDATE")
    verdict = dispatch.mutate(given, known())
    assert verdict.allowed, verdict.message
    stored = apply_patch(body, verdict.patch)
    spec = stored["spec"]["jobTemplate"]["spec"] if body["kind"] == "CronJob" else stored["spec"]
    found: str | None = spec["template"]["metadata"].get("annotations", {}).get(names.USER)
    return found


@pytest.mark.parametrize("annotations", [None, FORGED])
def test_a_job_has_the_user_who_creates_it_in_its_template(annotations: Json | None) -> None:
    assert of_template(job(annotations), "alice") == "alice"
    assert of_template(job(annotations, owner="JobSet"), TENANT) == TENANT, "an owner can be written by anybody"


def test_a_job_that_is_made_of_another_workload_keeps_its_user() -> None:
    jobset = "system:serviceaccount:jobset-system:jobset-controller-manager"
    assert of_template(job({names.USER: "alice"}, owner="JobSet"), jobset) == "alice"
    assert of_template(job(), jobset) == jobset, "one that it makes of nothing is its own"


JOBSETS = "system:serviceaccount:jobset-system:jobset-controller-manager"
CRON_JOBS = "system:serviceaccount:kube-system:cronjob-controller"
TRAINER = "system:serviceaccount:kubeflow-system:kubeflow-trainer-controller-manager"


@pytest.mark.parametrize(("owner", "by"), [("CronJob", CRON_JOBS), ("JobSet", JOBSETS), ("MPIJob", TRAINER)])
def test_metadata_that_a_maker_copies_around_the_template_forge_nothing(owner: str, by: str) -> None:
    """They come from a jobTemplate or a replicatedJob, in which nothing is written at any review."""
    around = job(owner=owner)
    around["metadata"]["annotations"] = dict(FORGED)
    assert of_template(around, by) is None


def test_templates_of_an_owner_that_is_not_reviewed_say_nothing() -> None:
    for owner in ("Spark", "TrainingRuntime"):
        assert of_template(job(FORGED, owner=owner), TRAINER) is None
    elsewhere = job(FORGED, owner="CronJob")
    assert elsewhere["metadata"]["ownerReferences"][0]["apiVersion"] == "batch/v1"
    elsewhere["metadata"]["ownerReferences"][0]["apiVersion"] = "example.com/v1"
    assert of_template(elsewhere, CRON_JOBS) is None


def test_a_cronjob_that_gets_its_claims_by_a_patch_is_the_patchers() -> None:
    plain = cron()
    plain["spec"]["jobTemplate"]["spec"]["template"]["spec"].pop("resourceClaims", None)
    plain["spec"]["jobTemplate"]["metadata"] = {"annotations": dict(FORGED)}
    patched = cron()
    patched["spec"]["jobTemplate"]["metadata"] = {"annotations": dict(FORGED)}
    patched["spec"]["jobTemplate"]["spec"]["template"]["spec"]["priorityClassName"] = "high"
    assert of_template(patched, "alice", old=plain) == "alice"
    assert of_template(patched, "bob", old=cron({names.USER: "alice"})) == "bob", "what it runs is bob's now"
    assert of_template(patched, CRON_JOBS, old=cron({names.USER: "alice"})) == "alice"


def jobset(*, owner: str = "", metadata: Json | None = None, annotations: Json | None = None) -> Json:
    made = job(owner=owner)
    made["metadata"]["annotations"] = metadata or {}
    replicated = {
        "name": "w",
        "template": {"metadata": {"annotations": dict(FORGED)}, "spec": job(annotations)["spec"]},
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": made["metadata"],
        "spec": {"replicatedJobs": [replicated]},
    }


def of_jobset(body: Json, by: str, *, old: Json | None = None) -> str | None:
    verdict = dispatch.mutate(
        review(body, username=by, old=old, operation="CREATE" if old is None else "UPDATE"), known()
    )
    assert verdict.allowed, verdict.message
    template = apply_patch(body, verdict.patch)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    found: str | None = template["metadata"].get("annotations", {}).get(names.USER)
    return found


def test_a_jobset_of_a_trainjob_has_the_users_of_that_and_not_of_its_runtime() -> None:
    """A TrainingRuntime is a tenant's, and comes to no review; the JobSet's metadata are of the TrainJob's spec.annotations."""
    said = {names.USER: "alice"}
    assert of_jobset(jobset(owner="TrainJob", metadata=said, annotations=FORGED), TRAINER) == "alice"
    assert of_jobset(jobset(owner="TrainJob", annotations=FORGED), TRAINER) is None
    assert of_jobset(jobset(metadata=FORGED, annotations=FORGED), "alice") == "alice"
    assert of_jobset(jobset(annotations=FORGED), "alice", old=jobset(annotations=said)) == "alice"


def test_a_stored_trainjob_cannot_be_given_to_another() -> None:
    old: Json = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "t", "namespace": "ml"},
        "spec": {"annotations": {names.USER: "alice"}},
    }
    for said in (FORGED, {}):
        new = copy.deepcopy(old)
        new["spec"]["annotations"] = dict(said)
        verdict = dispatch.validate(review(new, operation="UPDATE", old=old, username="alice"), known())
        assert not verdict.allowed
        assert "TrainJob ml/t: spec.annotations[fairlead.dev/user]: is written once" in verdict.message
        assert dispatch.validate(review(new, operation="UPDATE", old=old, username=TRAINER), known()).allowed


def cron(annotations: Json | None = None) -> Json:
    spec = {"schedule": "0 * * * *", "jobTemplate": {"spec": {"template": template(annotations)}}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c", "namespace": "ml"}, "spec": spec}


def test_an_update_of_a_cronjob_keeps_who_created_it() -> None:
    assert of_template(cron(), "alice") == "alice"
    assert of_template(cron(FORGED), "bob", old=cron({names.USER: "alice"})) == "alice"
    assert of_template(cron(), "bob", old=cron({names.USER: "alice"})) == "alice"
    assert of_template(cron(FORGED), "bob", old=cron()) is None


def test_a_suspended_jobs_template_cannot_be_given_to_another() -> None:
    old, new = job({names.USER: "alice"}), job(FORGED)
    verdict = dispatch.validate(review(new, operation="UPDATE", old=old, username="alice"), known())
    assert not verdict.allowed
    assert "Job ml/train: spec.template.metadata.annotations[fairlead.dev/user]: is written once" in verdict.message
    assert dispatch.validate(review(old, operation="UPDATE", old=old, username="alice"), known()).allowed
    assert dispatch.validate(review(new, operation="UPDATE", old=old, username=names.CONTROLLER_USER), known()).allowed
