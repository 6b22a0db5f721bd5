"""An OTLP/HTTP receiver of traces: aiohttp, and the messages of opentelemetry-proto, which the exporter brings."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

ERROR = 2  # Status.StatusCode


@dataclass(frozen=True, kw_only=True)
class Received:
    """A span as it arrived; ids in hex, "" without a parent; times in unix seconds."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    began: float
    ended: float
    attributes: dict[str, Any]
    error: str | None
    links: tuple[str, ...]


@dataclass
class Receiver:
    """`status` is what it answers, after `delay_s`."""

    url: str = ""
    status: int = 200
    delay_s: float = 0.0
    requests: int = 0
    spans: list[Received] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        body = await request.read()
        self.requests += 1
        await asyncio.sleep(self.delay_s)
        if self.status == 200:
            assert request.headers["Content-Type"] == "application/x-protobuf"
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                service = {each.key: each.value.string_value for each in resource.resource.attributes}["service.name"]
                for scope in resource.scope_spans:
                    self.spans += [_received(service, span) for span in scope.spans]
        return web.Response(status=self.status)

    def of(self, **wanted: Any) -> list[Received]:
        """The spans with these values, by when they began."""
        found = [each for each in self.spans if all(getattr(each, key) == value for key, value in wanted.items())]
        return sorted(found, key=lambda each: (each.began, each.ended))


@contextlib.asynccontextmanager
async def receiving(receiver: Receiver | None = None) -> AsyncIterator[Receiver]:
    made = receiver or Receiver()
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/traces", made.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield made
    finally:
        await runner.cleanup()


def _received(service: str, span: Any) -> Received:
    return Received(
        service=service,
        name=span.name,
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        began=span.start_time_unix_nano / 1e9,
        ended=span.end_time_unix_nano / 1e9,
        attributes={each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes},
        error=span.status.message if span.status.code == ERROR else None,
        links=tuple(each.trace_id.hex() for each in span.links),
    )
