"""The metrics of the pages' server. The values of labels come from closed sets: never a namespace, an object's name or a user."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._seconds = Histogram(
            "fairlead_ui_request_seconds",
            "From a request to its answer, by route.",
            ["route"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self._requests = Counter(
            "fairlead_ui_requests",
            "Requests answered, by route and HTTP status.",
            ["route", "status"],
            registry=registry,
        )
        self._logins = Counter(
            "fairlead_ui_logins",
            "Tokens that were presented: accepted, refused, or not looked at after too many (limited).",
            ["result"],
            registry=registry,
        )
        self._reviews = Counter(
            "fairlead_ui_reviews",
            "Reviews that the apiserver was asked for: of tokens and of access; what it answered, or failed.",
            ["kind", "result"],
            registry=registry,
        )
        self._sessions = Gauge("fairlead_ui_sessions", "Sessions of viewers who logged in.", registry=registry)
        self._age = Gauge(
            "fairlead_ui_facts_age_seconds",
            "How old what the pages show is; it grows while the apiserver does not answer. Negative: nothing was read yet.",
            registry=registry,
        )
        self._certificate = Gauge(
            "fairlead_ui_certificate_expiry_timestamp_seconds",
            "When the certificate that is served ends.",
            registry=registry,
        )

    def answered(self, route: str, status: int, seconds: float) -> None:
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def login(self, result: str) -> None:
        self._logins.labels(result).inc()

    def review(self, kind: str, result: str) -> None:
        self._reviews.labels(kind, result).inc()

    def certificate(self, ends: float) -> None:
        """Unix seconds."""
        self._certificate.set(ends)

    def watching(self, *, sessions: Callable[[], int], age_s: Callable[[], float]) -> None:
        """Where the gauges are read from, when they are scraped."""
        self._sessions.set_function(sessions)
        self._age.set_function(age_s)
