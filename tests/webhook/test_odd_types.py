"""Values that no apiserver lets pass later, found by fuzzing: each gets a verdict of its own, and no internal error."""

import copy
from typing import Any

import pytest

from fairlead.api import names
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


@pytest.mark.parametrize("pods", [100_001, 2**31 - 1, 2**31])
def test_a_workload_of_more_pods_than_a_gang_may_have_is_refused(pods: int) -> None:
    """A size was written that the pods' own review refuses, so that the Job made none."""
    job = copy.deepcopy(JOB)
    job["spec"] |= {"parallelism": pods, "completions": pods}
    del job["spec"]["template"]["metadata"]["annotations"][names.GANG_SIZE]
    verdict = dispatch.mutate(review(job), facts())
    assert not verdict.allowed
    assert f"the Job runs {pods} pods at once, and a gang has at most 100000" in verdict.message
    job["spec"] |= {"parallelism": 100_000, "completions": 100_000}
    assert dispatch.mutate(review(job), facts()).allowed
