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
from typing import cast

import msgspec

from fairlead.kube import errors, logs
from fairlead.webhook.certificates.authority import Material
from fairlead.webhook.handlers import dispatch as handlers
from fairlead.webhook.review.envelope import BadReviewError, Review, decode, encode
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.verdict import Verdict
from fairlead.webhook.serve.connection import Answer, Connection, Request, Times
from fairlead.webhook.serve.metrics import Metrics

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
FactsAtOnce = Callable[[Review], Facts | None]
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
    """`async with server.serve(host, port, context) as port`.

    at_once: facts that need not be waited for, or None; where given it is asked first.
    """

    def __init__(
        self,
        facts: LoadFacts,
        metrics: Metrics,
        *,
        at_once: FactsAtOnce | None = None,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits or Limits()
        self._facts, self._at_once = facts, at_once
        self._metrics = metrics
        self._clock = clock
        self._connections: set[Connection] = set()

    @contextlib.asynccontextmanager
    async def serve(self, host: str, port: int, context: ssl.SSLContext) -> AsyncIterator[int]:
        """Listens while the context lasts; yields the port. Requests in flight are finished before it ends."""
        loop, limits = asyncio.get_running_loop(), self._limits
        times = Times(
            headers_s=limits.headers_s,
            body_s=limits.body_s,
            answer_s=limits.body_s + limits.facts_s,
            idle_s=limits.idle_s,
            body_bytes=limits.body_bytes,
        )

        def protocol() -> asyncio.Protocol:
            if len(self._connections) >= limits.connections:
                return _Refusal()
            made = Connection(self._handle, self._refuse, times, self._clock, self._connections.discard)
            self._connections.add(made)
            return made

        listener = await loop.create_server(
            protocol, host, port, ssl=context, ssl_handshake_timeout=limits.handshake_s, backlog=256
        )
        sweeping = loop.create_task(self._sweep())
        try:
            yield int(listener.sockets[0].getsockname()[1])
        finally:
            sweeping.cancel()
            listener.close()
            await self._drain()
            await listener.wait_closed()

    async def _sweep(self) -> None:
        """For ever: ends connections that are late."""
        often = min(self._limits.headers_s, self._limits.body_s, self._limits.idle_s) / 4
        while True:
            await asyncio.sleep(often)
            now = self._clock()
            for connection in list(self._connections):
                connection.expire(now)

    async def _drain(self) -> None:
        """Answers what is in flight, for as long as that may take; then every connection is closed."""
        answering = [task for connection in list(self._connections) if (task := connection.stop()) is not None]
        if answering:
            await asyncio.wait(answering, timeout=self._limits.body_s)
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)

    def _handle(self, request: Request) -> Answer | Awaitable[Answer]:
        judge = _JUDGES.get(request.path)
        if judge is None or request.method != "POST":
            status = 404 if judge is None else 405
            return Answer(
                self._refuse(status, f"{request.method} {request.path}: POST to {' or '.join(_JUDGES)}"), status
            )
        phase, began = request.path[1:], self._clock()
        try:
            if request.content_type != "application/json":
                raise BadReviewError(f"content type {request.content_type!r}: send application/json", status=415)
            review = decode(request.body)
            facts = None if self._at_once is None else self._at_once(review)
            if facts is not None:
                return Answer(self._judge(phase, judge, review, facts, began))
        except BadReviewError as error:
            return Answer(self._refuse(error.status, str(error)), error.status)
        except Exception:
            log.exception("%s: a lookup failed", phase)
            return Answer(self._refuse(500, f"{phase}: cannot be judged: internal error"), 500)
        return self._asked(phase, judge, review, began)

    async def _asked(self, phase: str, judge: Judge, review: Review, began: float) -> Answer:
        """The answer once the facts were read."""
        try:
            try:
                async with asyncio.timeout(self._limits.facts_s):
                    facts = await self._facts(review)
            except (errors.ApiError, TimeoutError) as error:
                text = str(error) or f"the apiserver did not answer within {self._limits.facts_s:g} s"
                raise BadReviewError(f"{review.subject}: cannot be judged: {text}", status=503) from error
            return Answer(self._judge(phase, judge, review, facts, began))
        except BadReviewError as error:
            return Answer(self._refuse(error.status, str(error)), error.status)

    def _judge(self, phase: str, judge: Judge, review: Review, facts: Facts, began: float) -> bytes:
        """Raises BadReviewError."""
        with _operation(phase, review, self._clock):
            try:
                verdict = judge(review, facts)
                answer = encode(review.uid, verdict)
            except Exception as error:
                log.exception("%s %s: a handler failed", phase, review.subject)
                raise BadReviewError(f"{review.subject}: cannot be judged: internal error", status=500) from error
            if not verdict.allowed:
                log.info("%s %s: denied to %s: %s", phase, review.subject, review.username, verdict.message)
        self._metrics.reviewed(phase, review, verdict, self._clock() - began)
        return answer

    def _refuse(self, status: int, reason: str) -> bytes:
        self._metrics.refused(status)
        log.warning("refused a request with %d: %s", status, reason)
        return msgspec.json.encode({"error": reason})


_JUDGES: dict[str, Judge] = {"/mutate": handlers.mutate, "/validate": handlers.validate}


def _operation(phase: str, review: Review, clock: Callable[[], float]) -> contextlib.AbstractContextManager[str]:
    """One `op` on every line of a review; begin and end are written only where somebody reads them."""
    if not log.isEnabledFor(logging.DEBUG):
        return logs.operation(log, phase, level=logging.DEBUG, clock=clock)
    return logs.operation(
        log,
        f"{phase} {review.subject}",
        level=logging.DEBUG,
        clock=clock,
        uid=review.uid,
        operation=review.operation,
        resource=review.of,
        dry_run=review.dry_run,
    )


class _Refusal(asyncio.Protocol):
    """A connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).abort()
