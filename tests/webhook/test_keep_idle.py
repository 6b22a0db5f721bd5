"""The annotation keep-idle: allowed, unless a TenancyPolicy rejects it; also where it is written on a pod that exists."""

from __future__ import annotations

import copy

import pytest

from fairlead.api import names
from fairlead.api.policy import TenancyPolicy
from fairlead.webhook.handlers import dispatch
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.verdict import Verdict
from tests.support.webhook import admitted, facts, review

from .test_pods import pod


def rejecting(mode: str = "Enforce") -> Facts:
    policy = TenancyPolicy.model_validate(
        {"kind": "TenancyPolicy", "metadata": {"name": "no-idle"}, "spec": {"keepIdle": "Reject", "mode": mode}}
    )
    return facts(policies=(policy,))


def updated(before: str | None, after: str | None, known: Facts) -> Verdict:
    stored, _ = admitted(pod(), known)
    old, new = copy.deepcopy(stored), copy.deepcopy(stored)
    for version, value in ((old, before), (new, after)):
        if value is not None:
            version["metadata"].setdefault("annotations", {})[names.KEEP_IDLE] = value
    return dispatch.validate(review(new, operation="UPDATE", old=old), known)


@pytest.mark.parametrize(
    ("before", "after", "allowed"),
    [(None, "true", False), ("false", "true", False), ("true", "true", True), ("true", None, True), (None, "no", True)],
)
def test_a_policy_judges_what_is_added_to_a_pod_that_exists(
    before: str | None, after: str | None, allowed: bool
) -> None:
    verdict = updated(before, after, rejecting())
    assert verdict.allowed == allowed
    assert allowed or "Pod ml/train-0: TenancyPolicy no-idle (keepIdle): metadata.annotations" in verdict.message
