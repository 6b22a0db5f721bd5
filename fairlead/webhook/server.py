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
from pathlib import Path
from typing import Final
from weakref import WeakSet

from aiohttp import web

from fairlead.kube import errors, logs
from fairlead.webhook import handlers
from fairlead.webhook.certificates import Material
from fairlead.webhook.facts import Facts
from fairlead.webhook.metrics import Metrics
from fairlead.webhook.review import BadReviewError, Review, decode, encode
from fairlead.webhook.verdict import Verdict

log = logging.getLogger(__name__)

BODY_BYTES_MAX: Final = 8 * 1024 * 1024
"""An update holds two objects of at most 3 MiB (etcd's and the apiserver's request limit 1.5 to 3 MiB) and an envelope."""
BODY_S_MAX: Final = 5.0
HEADERS_S_MAX: Final = 10.0
HANDSHAKE_S_MAX: Final = 5.0
FACTS_S_MAX: Final = 1.5
CONNECTIONS_MAX: Final = 1024

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

    def __init__(self, facts: LoadFacts, metrics: Metrics, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._facts = facts
        self._metrics = metrics
        self._clock = clock
        self._spoken: WeakSet[object] = WeakSet()
        self._open: WeakSet[object] = WeakSet()

    def application(self) -> web.Application:
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.router.add_post("/mutate", self._handler("mutate", handlers.mutate))
        app.router.add_post("/validate", self._handler("validate", handlers.validate))
        return app

    @contextlib.asynccontextmanager
    async def serve(self, host: str, port: int, context: ssl.SSLContext) -> AsyncIterator[int]:
        """Listens while the context lasts; yields the port. Requests in flight are finished before it ends."""
        loop = asyncio.get_running_loop()
        runner = web.AppRunner(
            self.application(), access_log=None, shutdown_timeout=BODY_S_MAX, keepalive_timeout=120.0
        )
        await runner.setup()
        make = runner.server
        assert make is not None

        def protocol() -> asyncio.Protocol:
            made = make()
            if len(self._open) >= CONNECTIONS_MAX:
                loop.call_soon(_abort, made)
            self._open.add(made)
            loop.call_later(HEADERS_S_MAX, self._hang_up, made)
            return made

        listener = await loop.create_server(
            protocol, host, port, ssl=context, ssl_handshake_timeout=HANDSHAKE_S_MAX, backlog=256
        )
        try:
            yield int(listener.sockets[0].getsockname()[1])
        finally:
            listener.close()
            await runner.cleanup()
            await listener.wait_closed()

    def _hang_up(self, protocol: asyncio.Protocol) -> None:
        """Ends a connection on which no request's headers have arrived in time."""
        if protocol not in self._spoken:
            _abort(protocol)

    def _handler(self, phase: str, judge: Judge) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handler(request: web.Request) -> web.StreamResponse:
            self._spoken.add(request.protocol)
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
        review = decode(await _body(request))
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
                async with asyncio.timeout(FACTS_S_MAX):
                    facts = await self._facts(review)
            except (errors.ApiError, TimeoutError) as error:
                text = str(error) or f"the apiserver did not answer within {FACTS_S_MAX:g} s"
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


async def _body(request: web.Request) -> bytes:
    """Raises BadReviewError."""
    try:
        async with asyncio.timeout(BODY_S_MAX):
            return await request.read()
    except TimeoutError:
        raise BadReviewError(f"the body did not arrive within {BODY_S_MAX:g} s", status=408) from None
    except web.HTTPRequestEntityTooLarge:
        raise BadReviewError(f"the body is larger than {BODY_BYTES_MAX} bytes", status=413) from None


def _abort(protocol: asyncio.Protocol) -> None:
    transport = getattr(protocol, "transport", None)
    if transport is not None:
        transport.abort()
