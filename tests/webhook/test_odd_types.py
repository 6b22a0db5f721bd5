"""Values of other types where a text is compared, found by fuzzing: each gets a verdict, where it was an internal error."""

import copy
from typing import Any

import pytest

from fairlead.api import names
from fairlead.api.policy import TenancyPolicy
from fairlead.webhook import offline
from fairlead.webhook.handlers import dispatch
from tests.support.webhook import facts, review

JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j", "namespace": "ml"},
    "spec": {
        "parallelism": 2,
        "completions": 2,
        "template": {
            "metadata": {"annotations": {names.GANG: "g", names.GANG_SIZE: "2"}},
            "spec": {"containers": [{"name": "a", "resources": {"limits": {names.LEGACY_GPU: 1}}}]},
        },
    },
}


@pytest.mark.parametrize("odd", [{}, [], {"a": 1}, 1, True])
def test_an_owners_kind_of_another_type_is_no_kind(odd: Any) -> None:
    job = copy.deepcopy(JOB)
    job["metadata"]["ownerReferences"] = [{"kind": odd, "name": "x", "uid": "u", "controller": True}]
    assert dispatch.mutate(review(job), facts()).allowed


@pytest.mark.parametrize("odd", [{}, [], 1, True])
def test_a_replacement_policy_of_another_type_is_judged(odd: Any) -> None:
    policy = TenancyPolicy.stored({"metadata": {"name": "p"}, "spec": {"podFailurePolicy": "Default"}})
    job = copy.deepcopy(JOB)
    job["spec"]["podReplacementPolicy"] = odd
    for judge in (dispatch.mutate, dispatch.validate):
        verdict = judge(review(job), facts(policies=(policy,)))
        assert verdict.allowed or verdict.message


@pytest.mark.parametrize("odd", [{}, [], 1, None])
def test_a_manifest_of_no_kind_is_passed_over(odd: Any) -> None:
    world = offline.world_of([])
    assert list(offline.judge({"kind": odd, "apiVersion": "v1", "metadata": {"name": "x"}}, world)) == []
