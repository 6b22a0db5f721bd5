"""Jobs and CronJobs: the gang is written into the template."""

import copy
import re
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.api import names
from fairlead.api.policy import TenancyPolicy
from fairlead.webhook.handlers import dispatch
from tests.support.webhook import admitted, facts, review

Json = dict[str, Any]


def template(annotations: dict[str, str] | None, *, legacy: Any = None) -> Json:
    limits = {} if legacy is None else {names.LEGACY_GPU: legacy}
    container: Json = {"name": "worker", "resources": {"limits": limits}}
    spec: Json = {"containers": [container]}
    if legacy is None:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "h100"}]
    return {"metadata": {} if annotations is None else {"annotations": annotations}, "spec": spec}


def job(
    annotations: dict[str, str] | None = None,
    *,
    own: dict[str, str] | None = None,
    legacy: Any = None,
    name: str = "train",
    owners: Any = (),
    **spec: Any,
) -> Json:
    metadata: Json = {"namespace": "ml", "annotations": own or {}, "ownerReferences": list(owners)}
    metadata |= {"name": name} if name else {"generateName": "train-"}
    body = {"template": template(annotations, legacy=legacy)} | spec
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": body}


def gang_annotations(body: Json, **known: Any) -> dict[str, str]:
    stored, verdict = admitted(body, facts(**known))
    assert verdict.allowed, verdict.message
    annotations: dict[str, str] = stored["spec"]["template"]["metadata"].get("annotations", {})
    return annotations


def counted(size: str, source: str = "Job/train") -> dict[str, str]:
    """What is written where nobody wrote a size."""
    return {names.GANG_SIZE: size, names.SIZE_FROM: source}


@pytest.mark.parametrize(
    ("spec", "size"),
    [
        ({"parallelism": 8, "completions": 8}, "8"),
        ({"parallelism": 8, "completions": 3}, "3"),
        ({"parallelism": 8}, "8"),
        ({"completions": 8}, "1"),
        ({}, "1"),
    ],
)
def test_the_size_is_what_runs_at_once(spec: Json, size: str) -> None:
    assert gang_annotations(job({names.GANG: "llm"}, **spec)) == {names.GANG: "llm", **counted(size)}


def test_a_size_that_is_given_stays() -> None:
    given = {names.GANG: "llm", names.GANG_SIZE: "6"}
    assert gang_annotations(job(given, parallelism=8)) == given


def test_a_size_without_a_name_makes_the_job_a_gang_of_its_name() -> None:
    assert gang_annotations(job({names.GANG_SIZE: "8"}, parallelism=8)) == {names.GANG: "train", names.GANG_SIZE: "8"}


def test_a_job_without_annotations_is_no_gang() -> None:
    assert gang_annotations(job(parallelism=8)) == {}


def test_annotations_of_the_job_reach_its_pods() -> None:
    own = {names.GANG: "llm", names.QUEUE: "ml", "example.com/x": "y"}
    assert gang_annotations(job(own=own, parallelism=4)) == {names.GANG: "llm", names.QUEUE: "ml", **counted("4")}


def test_the_jobs_queue_label_reaches_its_pods() -> None:
    body = job({names.GANG: "llm"}, parallelism=2)
    body["metadata"]["labels"] = {names.QUEUE: "ml"}
    assert gang_annotations(body)[names.QUEUE] == "ml"


def test_what_job_and_template_say_must_agree() -> None:
    _, verdict = admitted(job({names.GANG: "a"}, own={names.GANG: "b"}), facts())
    assert (
        "Job ml/train: metadata.annotations[fairlead.dev/gang]: 'b', but the pod template says 'a'" in verdict.message
    )


def test_a_size_that_the_job_cannot_reach_alone_is_a_warning() -> None:
    _, verdict = admitted(job({names.GANG: "llm", names.GANG_SIZE: "8"}, parallelism=4), facts())
    assert verdict.allowed
    assert "8 members, but the Job runs at most 4 pods at once" in verdict.warnings[0]


def test_a_job_without_pods_has_no_size() -> None:
    _, verdict = admitted(job({names.GANG: "llm"}, parallelism=0), facts())
    assert "is missing, and the Job runs no pods: write the size" in verdict.message


def test_a_name_that_is_yet_to_be_generated_gives_the_gang_one_of_its_own() -> None:
    made = gang_annotations(job({names.GANG_SIZE: "2"}, name="", parallelism=2))
    assert re.fullmatch("train-[0-9a-f]{10}", made[names.GANG])
    assert made[names.GANG_SIZE] == "2"
    other = replace(review(job({names.GANG_SIZE: "2"}, name="", parallelism=2)), uid="another")
    verdict = dispatch.mutate(other, facts())
    assert made[names.GANG] not in str(verdict.patch), "two Jobs of one generateName are two gangs"


def test_an_invalid_template_is_denied_at_once() -> None:
    _, verdict = admitted(job({names.GANG: "L L M"}, legacy="0.5"), facts())
    assert "spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]: 0.5 is not whole" in verdict.message
    assert "spec.template.metadata.annotations[fairlead.dev/gang]: 'L L M' is no gang name" in verdict.message


def test_the_jobs_requests_are_left_for_its_pods() -> None:
    stored, verdict = admitted(job({names.GANG: "llm"}, legacy=2, parallelism=2), facts())
    assert verdict.allowed
    assert stored["spec"]["template"]["spec"] == template(None, legacy=2)["spec"]


def test_an_unmanaged_job_is_left_alone() -> None:
    body = job({names.GANG: "llm"})
    body["spec"]["template"]["spec"]["resourceClaims"] = []
    assert dispatch.mutate(review(body), facts()).patch == ()
    assert dispatch.mutate(review(body), facts()).cause == "unmanaged"


def test_an_update_of_a_job_is_left_alone() -> None:
    body = job({names.GANG: "llm"})
    assert dispatch.mutate(review(body, operation="UPDATE", old=body), facts()).patch == ()


def test_a_policy_bounds_the_gang() -> None:
    policy = TenancyPolicy.read({"metadata": {"name": "small"}, "spec": {"maxGangSize": 4}})
    _, verdict = admitted(job({names.GANG: "llm"}, parallelism=8), facts(policies=(policy,)))
    assert "TenancyPolicy small (maxGangSize): spec.template.metadata.annotations[fairlead.dev/gang-size]: 8" in (
        verdict.message
    )


class TestCronJob:
    @staticmethod
    def cron(annotations: dict[str, str], **spec: Any) -> Json:
        inner = job(annotations, **spec)["spec"]
        metadata = {"name": "nightly", "namespace": "ml"}
        return {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": metadata,
            "spec": {"jobTemplate": {"spec": inner}},
        }

    def test_the_size_is_written_into_its_jobs_template(self) -> None:
        stored, verdict = admitted(self.cron({names.GANG: "llm"}, parallelism=4), facts())
        assert verdict.allowed
        annotations = stored["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["annotations"]
        assert annotations == {names.GANG: "llm", **counted("4", "CronJob/nightly")}

    def test_each_run_is_a_gang_of_its_own(self) -> None:
        owner = {"kind": "CronJob", "name": "nightly", "controller": True}
        run = job({names.GANG: "llm", names.GANG_SIZE: "4"}, name="nightly-2901", owners=[owner], parallelism=4)
        assert gang_annotations(run)[names.GANG] == "nightly-2901"

    def test_a_size_alone_is_left_for_the_runs(self) -> None:
        stored, verdict = admitted(self.cron({names.GANG_SIZE: "4"}, parallelism=4), facts())
        assert verdict.allowed
        annotations = stored["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["annotations"]
        assert annotations == {names.GANG_SIZE: "4"}

    def test_an_update_is_judged(self) -> None:
        body = self.cron({names.GANG: "L L"})
        assert not dispatch.mutate(review(body, operation="UPDATE", old=copy.deepcopy(body)), facts()).allowed


@pytest.mark.parametrize(
    "spec", [{"template": 3}, {"parallelism": "8"}, {"template": {"metadata": {"annotations": []}}}]
)
def test_an_object_of_the_wrong_shape_is_denied_with_its_path(spec: Json) -> None:
    body = job({names.GANG: "llm"})
    body["spec"] |= spec
    if "template" in spec and isinstance(spec["template"], dict):
        body["spec"]["template"]["spec"] = template(None)["spec"]
    verdict = dispatch.mutate(review(body), facts())
    assert not verdict.allowed
    assert "spec." in verdict.message


RESERVED = (names.EVICT_AT, names.EVICTION, names.RELEASED_AT, names.CLAIMS_CORRECTED, names.CLAIM_SOURCES)


@pytest.mark.parametrize("key", RESERVED)
@pytest.mark.parametrize("managed", [True, False])
def test_what_only_fairlead_writes_is_refused_in_templates(key: str, managed: bool) -> None:
    spec = template({key: "x"})["spec"] if managed else {"containers": [{"name": "c"}]}
    made = {"metadata": {"annotations": {key: "x"}}, "spec": spec}
    job_set = {"replicatedJobs": [{"name": "w", "template": {"spec": {"template": made}}}]}
    for body, where in (
        (job() | {"spec": {"template": made}}, "spec.template"),
        ({"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": made}}}}, "spec.jobTemplate.spec.template"),
        ({"kind": "JobSet", "spec": job_set}, "spec.replicatedJobs[0].template.spec.template"),
    ):
        named = {"metadata": {"name": "train", "namespace": "ml"}} | body
        verdict = dispatch.mutate(review(named), facts())
        assert (verdict.allowed, verdict.code) == (False, 422)
        assert f"{where}.metadata.annotations[{key}]: only the " in verdict.message
        assert "writes this; remove it" in verdict.message


def test_a_template_that_was_stored_with_them_may_still_be_updated_otherwise() -> None:
    made = {"metadata": {"annotations": {names.EVICT_AT: "x"}}, "spec": {"containers": [{"name": "c"}]}}
    old: Json = {"kind": "CronJob", "metadata": {"name": "train", "namespace": "ml"}}
    old["spec"] = {"jobTemplate": {"spec": {"template": made}}}
    new = copy.deepcopy(old)
    new["spec"]["suspend"] = True
    assert dispatch.validate(review(new, old=old, operation="UPDATE"), facts()).allowed
    new["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["annotations"][names.EVICTION] = "y"
    assert not dispatch.validate(review(new, old=old, operation="UPDATE"), facts()).allowed
