"""Jobs and CronJobs: the gang is written into the template."""

import copy
import re
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.api import names
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


def test_an_update_of_a_job_is_left_alone() -> None:
    body = job({names.GANG: "llm"})
    assert dispatch.mutate(review(body, operation="UPDATE", old=body), facts()).patch == ()


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

    def test_a_size_alone_is_left_for_the_runs(self) -> None:
        stored, verdict = admitted(self.cron({names.GANG_SIZE: "4"}, parallelism=4), facts())
        assert verdict.allowed
        annotations = stored["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["annotations"]
        assert annotations == {names.GANG_SIZE: "4"}

    def test_an_update_is_judged(self) -> None:
        body = self.cron({names.GANG: "L L"})
        assert not dispatch.mutate(review(body, operation="UPDATE", old=copy.deepcopy(body)), facts()).allowed


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


@pytest.mark.parametrize("pods", [100_001, 2**31 - 1, 2**31])
def test_a_job_of_more_pods_than_a_gang_may_have_is_refused(pods: int) -> None:
    """A size was written that the pods' own review refuses, so that the Job made none."""
    verdict = dispatch.mutate(review(job({names.GANG: "g"}, parallelism=pods, completions=pods)), facts())
    assert not verdict.allowed
    assert f"the Job runs {pods} pods at once, and a gang has at most 100000" in verdict.message
    assert dispatch.mutate(review(job({names.GANG: "g"}, parallelism=100_000, completions=100_000)), facts()).allowed
