"""The HTTPS server: bytes of a review in, bytes of an answer out, with limits on everything.

Exists as the rim around the pure handlers: TLS 1.3, sizes, times, status codes, one log line and one metric per
review. An error of ours is a 500, so that the failure policy decides and not a stack trace.
A new certificate is loaded into the same context: connections that are open go on, new ones see the new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from fairlead.kube import errors, logs
from fairlead.webhook import handlers
from fairlead.webhook.certificates import Material
from fairlead.webhook.facts import Facts
from fairlead.webhook.metrics import Metrics
from fairlead.webhook.review import BadReviewError, Review, decode, encode
from fairlead.webhook.verdict import Verdict

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Every limit of the server. An update holds two objects, each of at most 3 MiB (the apiserver's limit)."""

    body_bytes: int = 8 * 1024 * 1024
    body_s: float = 5.0
    headers_s: float = 10.0
    handshake_s: float = 5.0
    facts_s: float = 1.5
    idle_s: float = 120.0
    connections: int = 1024


LoadFacts = Callable[[Review], Awaitable[Facts]]
Judge = Callable[[Review, Facts], Verdict]


def tls_context(material: Material) -> ssl.SSLContext:
    """A server context that speaks TLS 1.3 only."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    load(context, material)
    return context


def load(context: ssl.SSLContext, material: Material) -> None:
    """Serve material from the next handshake on. The key is on disk only while OpenSSL reads it."""
    with tempfile.TemporaryDirectory(prefix="fairlead-") as directory:
        path = Path(directory) / "pair.pem"
        path.touch(mode=0o600)
        path.write_text(material.server.key + material.server.certificate)
        context.load_cert_chain(path)


class Server:
    """`async with server.serve(host, port, context) as port`."""

    def __init__(
        self,
        facts: LoadFacts,
        metrics: Metrics,
        *,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits or Limits()
        self._facts = facts
        self._metrics = metrics
        self._clock = clock
        self._silent: dict[object, asyncio.TimerHandle] = {}
        """Connections on which no request has arrived yet, with what ends them."""

    def application(self) -> web.Application:
        app = web.Application(client_max_size=self._limits.body_bytes)
        app.router.add_post("/mutate", self._handler("mutate", handlers.mutate))
        app.router.add_post("/validate", self._handler("validate", handlers.validate))
        return app

    @contextlib.asynccontextmanager
    async def serve(self, host: str, port: int, context: ssl.SSLContext) -> AsyncIterator[int]:
        """Listens while the context lasts; yields the port. Requests in flight are finished before it ends."""
        loop = asyncio.get_running_loop()
        runner = web.AppRunner(
            self.application(),
            access_log=None,
            shutdown_timeout=self._limits.body_s,
            keepalive_timeout=self._limits.idle_s,
            lingering_time=0.0,
        )
        await runner.setup()
        make = runner.server
        assert make is not None

        def protocol() -> asyncio.Protocol:
            if max(len(make.connections), len(self._silent)) >= self._limits.connections:
                return _Refusal()
            made = make()
            self._silent[made] = loop.call_later(self._limits.headers_s, self._hang_up, made)
            return made

        listener = await loop.create_server(
            protocol, host, port, ssl=context, ssl_handshake_timeout=self._limits.handshake_s, backlog=256
        )
        try:
            yield int(listener.sockets[0].getsockname()[1])
        finally:
            listener.close()
            for timer in self._silent.values():
                timer.cancel()
            self._silent.clear()
            await runner.cleanup()
            await listener.wait_closed()

    def _hang_up(self, protocol: asyncio.Protocol) -> None:
        """Ends a connection on which no request's headers have arrived in time."""
        if self._silent.pop(protocol, None) is not None:
            _abort(protocol)

    def _handler(self, phase: str, judge: Judge) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handler(request: web.Request) -> web.StreamResponse:
            timer = self._silent.pop(request.protocol, None)
            if timer is not None:
                timer.cancel()
            began = self._clock()
            try:
                review, body = await self._answer(phase, judge, request, began)
            except BadReviewError as error:
                self._metrics.refused(error.status)
                log.warning("%s: refused a request with %d: %s", phase, error.status, error)
                response = web.json_response({"error": str(error)}, status=error.status)
                if error.status in {408, 413}:
                    response.force_close()
                return response
            log.debug("%s %s: answered", phase, review.subject)
            return web.Response(body=body, content_type="application/json")

        return handler

    async def _answer(self, phase: str, judge: Judge, request: web.Request, began: float) -> tuple[Review, bytes]:
        """Raises BadReviewError."""
        if request.content_type != "application/json":
            raise BadReviewError(f"content type {request.content_type!r}: send application/json", status=415)
        review = decode(await self._body(request))
        with logs.operation(
            log,
            f"{phase} {review.subject}",
            level=logging.DEBUG,
            clock=self._clock,
            uid=review.uid,
            operation=review.operation,
            resource=review.of,
            dry_run=review.dry_run,
        ):
            try:
                async with asyncio.timeout(self._limits.facts_s):
                    facts = await self._facts(review)
            except (errors.ApiError, TimeoutError) as error:
                text = str(error) or f"the apiserver did not answer within {self._limits.facts_s:g} s"
                raise BadReviewError(f"{review.subject}: cannot be judged: {text}", status=503) from error
            try:
                verdict = judge(review, facts)
            except Exception as error:
                log.exception("%s %s: a handler failed", phase, review.subject)
                raise BadReviewError(f"{review.subject}: cannot be judged: internal error", status=500) from error
            if not verdict.allowed:
                log.info("%s %s: denied to %s: %s", phase, review.subject, review.username, verdict.message)
        self._metrics.reviewed(phase, review, verdict, self._clock() - began)
        return review, encode(review.uid, verdict)

    async def _body(self, request: web.Request) -> bytes:
        """Raises BadReviewError."""
        try:
            async with asyncio.timeout(self._limits.body_s):
                return await request.read()
        except TimeoutError:
            text = f"the body did not arrive within {self._limits.body_s:g} s"
            raise BadReviewError(text, status=408) from None
        except web.HTTPRequestEntityTooLarge:
            raise BadReviewError(f"the body is larger than {self._limits.body_bytes} bytes", status=413) from None


class _Refusal(asyncio.Protocol):
    """A connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


def _abort(protocol: asyncio.Protocol) -> None:
    transport = getattr(protocol, "transport", None)
    if transport is not None:
        transport.abort()
