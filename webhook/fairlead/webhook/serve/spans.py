"""The span of one review: `admit`, below the span that the pod's annotation names."""

from __future__ import annotations

from fairlead.api.trace_context import TraceContext
from fairlead.kube.tracing import Span, Value
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.verdict import Verdict

ERROR_CHARS_MAX = 1_000


def admit_span(review: Review, verdict: Verdict, trace: TraceContext, *, ended_s: float, took_s: float) -> Span:
    """`ended_s`: unix seconds."""
    attributes: dict[str, Value] = {"k8s.namespace.name": review.namespace, "fairlead.user": review.username}
    if review.name:
        attributes["k8s.pod.name"] = review.name
    if verdict.gang:
        attributes["fairlead.gang.name"] = verdict.gang
    return Span(
        name="admit",
        at=trace.span("admit", review.uid),
        parent=trace.span_id,
        began_s=ended_s - took_s,
        ended_s=ended_s,
        attributes=attributes,
        error="" if verdict.allowed else verdict.message[:ERROR_CHARS_MAX],
    )
