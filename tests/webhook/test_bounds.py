"""How long users may ask for protection: refused, or warned of, with field, value, limit, and where the limit comes from."""

from typing import Any

import pytest

from fairlead.api import names
from fairlead.api.policy import TenancyPolicy
from fairlead.api.queue import Queue
from fairlead.webhook.handlers import dispatch
from fairlead.webhook.review.facts import Facts
from tests.support.webhook import facts, review

Json = dict[str, Any]
FOREVER = "9999999999d"


def pod(annotations: dict[str, str] | None = None, grace_s: int = 30) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ml", "annotations": annotations or {}},
        "spec": {
            "terminationGracePeriodSeconds": grace_s,
            "containers": [{"name": "c", "resources": {"limits": {names.LEGACY_GPU: 1}}}],
        },
    }


def job(annotations: dict[str, str] | None = None, grace_s: int = 30) -> Json:
    template = pod(annotations, grace_s)
    template["metadata"].pop("name")
    spec = {"template": {"metadata": template["metadata"], "spec": template["spec"] | {"restartPolicy": "Never"}}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "ml"}, "spec": spec}


def policy(**spec: Any) -> TenancyPolicy:
    return TenancyPolicy.read({"metadata": {"name": "p"}, "spec": spec})


def queue(name: str, **spec: Any) -> Queue:
    return Queue.read({"metadata": {"name": name}, "spec": spec})


def message(known: Facts, body: Json) -> str:
    verdict = dispatch.mutate(review(body), known)
    assert not verdict.allowed
    return verdict.message


def warnings(known: Facts, body: Json) -> str:
    verdict = dispatch.mutate(review(body), known)
    assert verdict.allowed, verdict.message
    return "\n".join(verdict.warnings)


CASES = [
    (
        {"annotations": {names.MIN_RUNTIME: FOREVER}},
        "metadata.annotations[fairlead.dev/min-runtime]: 3650d",
        "MinRuntime",
    ),
    (
        {"annotations": {names.CHECKPOINT_GRACE: "36500d"}},
        "metadata.annotations[fairlead.dev/checkpoint-grace]: 3650d",
        "CheckpointGrace",
    ),
    ({"grace_s": 86400}, "spec.terminationGracePeriodSeconds: 1d", "TerminationGrace"),
]


@pytest.mark.parametrize(("asked", "field", "rule"), CASES, ids=[rule for _, _, rule in CASES])
@pytest.mark.parametrize("make", [pod, job])
class TestBeyond:
    def test_a_policy_refuses_it(self, make: Any, asked: Json, field: str, rule: str) -> None:
        said = message(facts(policies=(policy(**{f"max{rule}": "30m"}),)), make(**asked))
        assert f"TenancyPolicy p (max{rule}): " in said
        assert f"{field} is more than 30m (max{rule} of TenancyPolicy p)" in said

    def test_a_policy_warns_of_it(self, make: Any, asked: Json, field: str, rule: str) -> None:
        said = warnings(facts(policies=(policy(mode="Warn", **{f"max{rule}": "30m"}),)), make(**asked))
        assert f"{field} is more than 30m" in said

    def test_the_tightest_queue_above_refuses_it(self, make: Any, asked: Json, field: str, rule: str) -> None:
        tree = {
            "red": queue("red", parent="org", namespaceSelector={}, **{f"max{rule}": "2h"}),
            "org": queue("org", **{f"max{rule}": "90s"}),
        }
        assert f"{field} is more than 90s (max{rule} of Queue org)" in message(facts(queues=tree), make(**asked))

    def test_without_a_bound_the_default_counts_and_a_warning_says_so(
        self, make: Any, asked: Json, field: str, rule: str
    ) -> None:
        assert f"{field} counts as 1" in warnings(facts(), make(**asked))


@pytest.mark.parametrize("priority", [1001, 2_000_001_000])
def test_a_priority_beyond_the_bound_is_refused(priority: int) -> None:
    """As the apiserver has resolved the class before it asks."""
    body = pod()
    body["spec"] |= {"priorityClassName": "system-node-critical", "priority": priority}
    tree = {"red": queue("red", parent="org", namespaceSelector={}), "org": queue("org", maxPriority=1000)}
    cure = "name another priorityClassName, or none"
    for known, source in (
        (facts(queues=tree), "Queue org"),
        (facts(policies=(policy(maxPriority=1000),)), "TenancyPolicy p"),
    ):
        said = message(known, body)
        assert f"spec.priority: {priority} is more than 1000 (maxPriority of {source}); {cure}" in said
    body["spec"]["priority"] = 1000
    assert warnings(facts(queues=tree), body) == ""
