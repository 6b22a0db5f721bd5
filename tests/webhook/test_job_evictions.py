"""What the webhook says of a gang Job's return after an eviction, and what a policy adds."""

from typing import Any

import pytest

from fairlead.api import names
from fairlead.api.policy import TenancyPolicy
from tests.support.webhook import admitted, facts

from .test_jobs import job

Json = dict[str, Any]
IGNORE = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
GANG = {names.GANG: "llm"}


def eviction_warnings(body: Json, **known: Any) -> list[str]:
    _, verdict = admitted(body, facts(**known))
    assert verdict.allowed, verdict.message
    return [text for text in verdict.warnings if "an evicted gang" in text]


def gang_job(pods: int = 8, annotations: dict[str, str] | None = None, **spec: Any) -> Json:
    body = job(annotations or GANG, parallelism=pods, completions=pods, **spec)
    body["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    return body


GOOD = {"completionMode": "Indexed", "backoffLimitPerIndex": 3, "podFailurePolicy": IGNORE}


@pytest.mark.parametrize(
    ("pods", "spec", "said"),
    [
        (8, {}, "fails its Job at once: 8 evicted pods count against backoffLimit 6; add completionMode: Indexed"),
        (8, {"podFailurePolicy": IGNORE}, "comes back only after 600 s: each of 8 evicted pods doubles"),
        (2, {"podFailurePolicy": IGNORE}, "comes back only after 20 s"),
        (8, {**GOOD, "backoffLimitPerIndex": None}, "after 600 s: each of 8 evicted pods doubles its Job's back-off; add backoffLimitPerIndex: 3"),
        (8, {**GOOD, "podFailurePolicy": None}, "fails its Job after 3 evictions: they count as failures; add a podFailurePolicy"),
        (8, {**GOOD, "podFailurePolicy": None, "backoffLimit": 6}, "fails its Job at once"),
        (8, {**GOOD, "podFailurePolicy": None, "backoffLimit": 8}, "fails its Job after 1 eviction"),
        (8, GOOD, ""),
        (8, {**GOOD, "backoffLimit": 6}, ""),
        (1, {}, ""),
    ],
)  # fmt: skip
def test_one_warning_says_what_happens_and_what_to_add(pods: int, spec: Json, said: str) -> None:
    found = eviction_warnings(gang_job(pods, **{key: value for key, value in spec.items() if value is not None}))
    if not said:
        assert found == []
        return
    (text,) = found
    assert text.startswith("spec: an evicted gang ")
    assert said in text


def test_the_jobs_of_a_jobset_are_told_in_one_warning() -> None:
    one = gang_job(8)["spec"]
    one["template"]["metadata"] = {}
    body = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train", "namespace": "ml"},
        "spec": {"replicatedJobs": [{"name": name, "template": {"spec": one}} for name in ("a", "b")]},
    }
    (text,) = eviction_warnings(body)
    places = "spec.replicatedJobs[0].template.spec, spec.replicatedJobs[1].template.spec"
    assert text.startswith(f"{places}: an evicted gang fails its Job at once")


def default_policy(mode: str = "Enforce") -> TenancyPolicy:
    spec = {"podFailurePolicy": "Default", "mode": mode}
    return TenancyPolicy.read({"metadata": {"name": "gangs"}, "spec": spec})


@pytest.mark.parametrize(("given", "limit"), [({}, 6), ({"backoffLimit": 2}, 2), ({"backoffLimitPerIndex": 1}, 1)])
def test_a_policy_gives_an_indexed_job_back_off_by_index_that_fails_it_no_sooner(given: Json, limit: int) -> None:
    body = gang_job(8, completionMode="Indexed", **given)
    stored, verdict = admitted(body, facts(policies=(default_policy(),)))
    assert stored["spec"]["backoffLimitPerIndex"] == limit
    assert stored["spec"].get("backoffLimit") == (
        given.get("backoffLimit", 6) if given != {"backoffLimitPerIndex": 1} else None
    )
    assert not [text for text in verdict.warnings if "evicted" in text]


def test_a_policy_leaves_a_job_without_indexes_its_back_off_and_the_warning_stays() -> None:
    stored, verdict = admitted(gang_job(8), facts(policies=(default_policy(),)))
    assert "backoffLimitPerIndex" not in stored["spec"]
    (text,) = [text for text in verdict.warnings if "evicted" in text]
    assert text.endswith("add completionMode: Indexed, backoffLimitPerIndex: 3")
