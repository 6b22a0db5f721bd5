"""Exports spans by OTLP over HTTP, with OpenTelemetry's SDK: the extra `otel`, imported only where traces are asked for.

Headers, certificates, timeout and compression are the SDK's to read from the environment (`OTEL_EXPORTER_OTLP_HEADERS` and so on), as are
more attributes of the resource (`OTEL_RESOURCE_ATTRIBUTES`).
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from fairlead.api.trace_context import TraceContext
from fairlead.api.version import VERSION
from fairlead.kube.tracing import Exporter, Span, Tracer

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

PATH: Final = "/v1/traces"
PROBLEM_CHARS_MAX: Final = 300
_EXPORTER_LOG: Final = "opentelemetry.exporter.otlp.proto.http.trace_exporter"


class TracingError(ValueError):
    """Traces are asked for that cannot be exported; the text says what to do."""


def tracer_for(endpoint: str | None, *, service: str, instance: str = "") -> Tracer | None:
    """Exports to that OTLP endpoint, as `service`; None without one. `instance` names this process among its kind.

    Raises TracingError where the endpoint is no URL, or the extra is not installed.
    """
    if not endpoint:
        return None
    url = traces_url(endpoint)
    return Tracer(_exporter(url, service, instance or socket.gethostname()), where=url)


def traces_url(endpoint: str) -> str:
    """Where spans are posted to: as `OTEL_EXPORTER_OTLP_ENDPOINT` says it, the base of the collector's paths. Raises TracingError."""
    parts = urlsplit(endpoint)
    try:
        port_is_valid = parts.port is None or parts.port > 0
    except ValueError:
        port_is_valid = False
    fits = (
        parts.scheme in {"http", "https"} and parts.hostname and port_is_valid and not (parts.query or parts.fragment)
    )
    if "@" in parts.netloc:
        raise TracingError(
            "--otlp-endpoint: a URL without user and password is needed; give them as OTEL_EXPORTER_OTLP_HEADERS"
        )
    if not fits:
        raise TracingError(
            f"--otlp-endpoint: {endpoint[:200]!r} is no URL of an OTLP/HTTP receiver: write http://HOST:4318, or https://…"
        )
    base = endpoint.rstrip("/")
    return base if base.endswith(PATH) else base + PATH


def _exporter(url: str, service: str, instance: str) -> Exporter:
    try:
        return _OtlpExporter(url, service, instance)
    except ImportError as error:
        raise TracingError(
            f"--otlp-endpoint: traces need OpenTelemetry's SDK, which is not installed ({error}): "
            "pip install 'fairlead[otel]', or build the image with --build-arg TRACES=yes"
        ) from error


class _ExportProblems(logging.Handler):
    """What the SDK logs of an export: its result has no reason. Its own lines, one for each batch, are not shown."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.said) < 2:
            self.said.append(record.getMessage())


class _OtlpExporter:
    """Raises ImportError where the SDK is missing."""

    def __init__(self, url: str, service: str, instance: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import SpanExportResult

        self._success = SpanExportResult.SUCCESS
        self._resource = Resource.create(
            {
                "service.name": os.environ.get("OTEL_SERVICE_NAME") or service,
                "service.version": VERSION,
                "service.instance.id": instance,
            }
        )
        self._problems = _ExportProblems()
        logger = logging.getLogger(_EXPORTER_LOG)
        logger.handlers[:] = [self._problems]
        logger.propagate = False
        self._otlp = OTLPSpanExporter(endpoint=url)

    def export(self, spans: Sequence[Span]) -> str:
        self._problems.said.clear()
        if self._otlp.export([self._readable(span) for span in spans]) is self._success:
            return ""
        return "; ".join(self._problems.said)[:PROBLEM_CHARS_MAX] or "it failed"

    def stop(self) -> None:
        self._otlp.shutdown()  # type: ignore[no-untyped-call]

    def _readable(self, span: Span) -> ReadableSpan:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import Link, SpanContext, Status, StatusCode, TraceFlags

        def context(of: TraceContext, span_id: int) -> SpanContext:
            return SpanContext(of.trace_id, span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))

        began_ns = int(span.began_s * 1e9)
        return ReadableSpan(
            span.name,
            context=context(span.at, span.at.span_id),
            parent=None if span.parent is None else context(span.at, span.parent),
            resource=self._resource,
            attributes={
                key: _text(value) if isinstance(value, str) else value for key, value in span.attributes.items()
            },
            links=tuple(Link(context(link, link.span_id)) for link in span.links),
            status=Status(StatusCode.ERROR, _text(span.error)) if span.error else Status(StatusCode.UNSET),
            start_time=began_ns,
            end_time=max(began_ns, int(span.ended_s * 1e9)),
            instrumentation_scope=InstrumentationScope("fairlead", VERSION),
        )


def _text(value: str) -> str:
    """Fit for protobuf: one text that is not would keep its whole batch from being sent."""
    return value if value.isascii() else value.encode(errors="replace").decode()
