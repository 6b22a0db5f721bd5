"""The webhook's metrics. The values of labels come from closed sets: never a namespace, an object's name or a user.

The one exception is the name of a TenancyPolicy, of which a cluster has few: after POLICIES_MAX of them the label says `other`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from fairlead.api.trace_context import TraceContext
from fairlead.kube.tracing import Span, Value
from fairlead.webhook.handlers.dispatch import MUTATING, VALIDATING
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.verdict import Verdict

_KNOWN = frozenset({*MUTATING, *VALIDATING})
POLICIES_MAX = 100
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Metrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._named: set[str] = set()
        self._reviews = Counter(
            "fairlead_webhook_reviews",
            "Reviews answered, by what was decided and why.",
            ["phase", "resource", "operation", "verdict", "cause"],
            registry=registry,
        )
        self._seconds = Histogram(
            "fairlead_webhook_review_seconds",
            "From the first byte read to the answer made.",
            ["phase"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self._refused = Counter(
            "fairlead_webhook_bad_requests",
            "Requests that were no review, or that could not be judged, by HTTP status.",
            ["status"],
            registry=registry,
        )
        self._certificate = Gauge(
            "fairlead_webhook_certificate_expiry_timestamp_seconds",
            "When the certificate that is served ends.",
            registry=registry,
        )
        self._certificate_faults = Counter(
            "fairlead_webhook_certificate_faults",
            "Times that a certificate was found which cannot be served; the last good one stays.",
            registry=registry,
        )
        self._policies = Counter(
            "fairlead_webhook_policy_findings",
            "Broken rules of tenancy policies, by policy, rule, the policy's mode and what became of the object.",
            ["policy", "rule", "mode", "verdict"],
            registry=registry,
        )
        self._sharing = Gauge(
            "fairlead_webhook_policies_sharing_webhooks",
            "TenancyPolicies on device bypasses beyond those that have webhooks of their own.",
            registry=registry,
        )
        self._open = Gauge(
            "fairlead_webhook_connections",
            "Open connections by state: handshake (TLS is not complete), unproven (has carried no review), proven, lingering.",
            ["state"],
            registry=registry,
        )
        self._ended = Counter(
            "fairlead_webhook_connections_ended",
            "Connections that ended, by reason; `no place` and `no memory` for another's sake.",
            ["reason"],
            registry=registry,
        )
        self._buffered = Gauge(
            "fairlead_webhook_buffered_bytes",
            "Bytes of requests that are not answered yet, and of answers that are not sent yet.",
            registry=registry,
        )
        # Looking a child up by its labels takes as long as counting does; the label sets are closed, so the caches stay small.
        self._counter = cache(self._reviews.labels)
        self._observer = cache(self._seconds.labels)

    def reviewed(self, phase: str, review: Review, verdict: Verdict, seconds: float) -> None:
        resource = review.group_resource if review.group_resource in _KNOWN else "other"
        decided = "denied" if not verdict.allowed else "patched" if verdict.patch else "allowed"
        self._counter(phase, resource, review.operation, decided, verdict.cause).inc()
        self._observer(phase).observe(seconds)
        for found in verdict.findings:
            label = found.policy if found.policy in self._named or len(self._named) < POLICIES_MAX else "other"
            self._named.add(label)
            self._policies.labels(label, found.rule, found.mode, decided).inc()

    def serving(self, states: Callable[[], dict[str, int]], buffered_bytes: Callable[[], int]) -> None:
        """Where the gauges of connections are read from, when they are scraped."""
        for state in states():
            self._open.labels(state).set_function(partial(lambda state: states()[state], state))
        self._buffered.set_function(buffered_bytes)

    def sharing_policies(self, count: int) -> None:
        self._sharing.set(count)

    def ended(self, reason: str) -> None:
        self._ended.labels(reason).inc()

    def refused(self, status: int) -> None:
        self._refused.labels(str(status)).inc()

    def certificate(self, ends_timestamp: float) -> None:
        self._certificate.set(ends_timestamp)

    def certificate_fault(self) -> None:
        self._certificate_faults.inc()


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
