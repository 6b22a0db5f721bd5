"""The trace context on gated pods, and the span of their review."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.api import names, trace_context
from fairlead.api.policy import TenancyPolicy
from fairlead.kube.tracing import Span
from fairlead.webhook.handlers import dispatch
from fairlead.webhook.serve.metrics import admit_span
from tests.support.webhook import admitted, facts, review

from .test_pods import pod

THEIRS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACED = facts(traces_ratio=1.0)


def member(name: str = "train-0", owner: str = "", **annotations: str) -> dict[str, Any]:
    made = pod(annotations={names.GANG: "train", names.GANG_SIZE: "2", **annotations})
    made["metadata"]["name"] = name
    if owner:
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": owner, "controller": True}
        made["metadata"]["ownerReferences"] = [reference]
    return made


def context_of(object_: dict[str, Any], known: Any = TRACED) -> str | None:
    stored, verdict = admitted(object_, known)
    assert verdict.allowed, verdict.message
    found: str | None = stored["metadata"].get("annotations", {}).get(names.TRACEPARENT)
    return found


def test_members_of_one_owner_get_the_same_context_and_another_run_of_the_gang_another() -> None:
    first, second = context_of(member("train-0", "job-1")), context_of(member("train-1", "job-1"))
    assert first is not None
    assert first == second
    assert trace_context.parse(first).begun_here
    assert context_of(member("train-0", "job-2")) != first
    assert context_of(member()) == context_of(member("train-1"))


def test_a_users_own_context_is_kept_and_not_sampled_where_its_flag_says_so() -> None:
    assert context_of(member(**{names.TRACEPARENT: THEIRS})) == THEIRS
    verdict = dispatch.mutate(review(member(**{names.TRACEPARENT: f"{THEIRS[:-2]}00"})), TRACED)
    assert verdict.trace is not None
    assert not verdict.trace.sampled


@pytest.mark.parametrize("text", ["", "00", THEIRS.upper(), f"{THEIRS}-00", "x" * 100_000, f"ff{THEIRS[2:]}", "💥"])
def test_what_is_no_traceparent_is_replaced_with_a_warning_and_denies_nothing(text: str) -> None:
    stored, verdict = admitted(member(**{names.TRACEPARENT: text}), TRACED)
    assert verdict.allowed
    assert trace_context.parse(stored["metadata"]["annotations"][names.TRACEPARENT]).begun_here
    (warning,) = [each for each in verdict.warnings if names.TRACEPARENT in each]
    assert "is no traceparent of W3C Trace Context" in warning
    assert "the gang has a trace of its own" in warning


def test_the_ratio_decides_of_those_that_begin_here() -> None:
    none = dispatch.mutate(review(member()), facts(traces_ratio=0.0)).trace
    assert none is not None
    assert not none.sampled


@pytest.mark.parametrize("written", [None, f"{THEIRS[:-2]}00"])
def test_a_workloads_context_reaches_its_pods_unless_the_template_has_its_own(written: str | None) -> None:
    template = {"spec": pod()["spec"]} | (
        {"metadata": {"annotations": {names.TRACEPARENT: written}}} if written else {}
    )
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "ml", "annotations": {names.TRACEPARENT: THEIRS}},
        "spec": {"template": template},
    }
    stored, verdict = admitted(job, TRACED)
    assert verdict.allowed
    assert stored["spec"]["template"]["metadata"]["annotations"][names.TRACEPARENT] == (written or THEIRS)


def span_of(object_: dict[str, Any], known: Any = TRACED) -> tuple[Span, trace_context.TraceContext]:
    asked = review(object_)
    verdict = dispatch.mutate(asked, known)
    assert verdict.trace is not None
    return admit_span(asked, verdict, verdict.trace, ended_s=10.0, took_s=0.25), verdict.trace


def test_the_span_of_a_review_says_who_asked_and_hangs_below_what_the_pod_names() -> None:
    span, trace = span_of(member())
    assert (span.name, span.parent, span.began_s, span.ended_s) == ("admit", trace.span_id, 9.75, 10.0)
    assert span.at.trace_id == trace.trace_id
    assert span.at.span_id != trace.span_id
    assert span.attributes == {
        "k8s.namespace.name": "ml",
        "k8s.pod.name": "train-0",
        "fairlead.gang.name": "train",
        "fairlead.user": "alice",
    }
    assert span.error == ""


def test_a_pod_that_policies_deny_ends_its_trace_with_the_reason() -> None:
    policy = {"kind": "TenancyPolicy", "metadata": {"name": "small"}, "spec": {"maxGangSize": 1, "mode": "Enforce"}}
    known = facts(traces_ratio=1.0, policies=(TenancyPolicy.model_validate(policy),))
    span, _ = span_of(member(**{names.TRACEPARENT: THEIRS}), known)
    assert "maxGangSize" in span.error
    assert span.parent == int(THEIRS[36:52], 16)
