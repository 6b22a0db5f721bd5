"""The HTTPS server: decodes each review, gets its facts, calls the handler, and answers, with limits on everything.

One log line for a denial, one metric per review. An error of ours is a 500 without details, so that the apiserver's failure policy
decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from fairlead import cel
from fairlead.kube import errors, logs
from fairlead.webhook.handlers.dispatch import Handler, mutate, validate
from fairlead.webhook.review.envelope import BadReviewError, Review, decode, encode
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.serve.compile_tokens import CompileTokens
from fairlead.webhook.serve.connection import Answer, Connection, Request
from fairlead.webhook.serve.limits import Limits
from fairlead.webhook.serve.metrics import Metrics

log = logging.getLogger(__name__)

_HANDLERS: dict[str, Handler] = {"/mutate": mutate, "/validate": validate}


class Server:
    """`async with server.serve(host, port, context) as port`.

    facts: the facts for a review, with lookups in the apiserver; cached_facts: the same without a lookup, or None. It is asked
    first where it is given.
    """

    def __init__(
        self,
        facts: Callable[[Review], Awaitable[Facts]],
        metrics: Metrics,
        *,
        cached_facts: Callable[[Review], Facts | None] | None = None,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits or Limits()
        self._facts, self._cached_facts = facts, cached_facts
        self._metrics = metrics
        self._clock = clock
        self._connections: set[Connection] = set()
        self._compile_tokens = CompileTokens(clock)

    @contextlib.asynccontextmanager
    async def serve(self, host: str, port: int, context: ssl.SSLContext) -> AsyncIterator[int]:
        """Listens while the context lasts; yields the port. Requests in flight are finished before it ends."""
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(
            self._connection, host, port, ssl=context, ssl_handshake_timeout=self._limits.handshake_s, backlog=256
        )
        expiring = loop.create_task(self._expire_late())
        try:
            yield int(listener.sockets[0].getsockname()[1])
        finally:
            expiring.cancel()
            listener.close()
            await self._drain()
            await listener.wait_closed()

    def _connection(self) -> Connection:
        return Connection(
            self._handle,
            self._refuse,
            self._limits,
            self._clock,
            opened=self._admit,
            closed=self._connections.discard,
        )

    def _admit(self, connection: Connection) -> bool:
        """Whether the limit has room for one more connection, which then counts."""
        if len(self._connections) >= self._limits.connections:
            return False
        self._connections.add(connection)
        return True

    async def _expire_late(self) -> None:
        """Runs forever: ends connections that are past their deadline."""
        interval_s = min(self._limits.head_s, self._limits.body_s, self._limits.idle_s) / 4
        while True:
            await asyncio.sleep(interval_s)
            now = self._clock()
            for connection in list(self._connections):
                connection.expire(now)

    async def _drain(self) -> None:
        """Answers the requests in flight, for as long as a body may take; then every connection is closed."""
        answering = [task for connection in list(self._connections) if (task := connection.drain()) is not None]
        if answering:
            await asyncio.wait(answering, timeout=self._limits.body_s)
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)

    def _handle(self, request: Request) -> Answer | Awaitable[Answer]:
        handler = _HANDLERS.get(request.path)
        if handler is None or request.method != "POST":
            reason = f"{request.method} {request.path}: POST to {' or '.join(_HANDLERS)}"
            return self._refusal(404 if handler is None else 405, reason)
        phase, began = request.path[1:], self._clock()
        try:
            if request.content_type != "application/json":
                raise BadReviewError(f"content type {request.content_type!r}: send application/json", status=415)
            review = decode(request.body)
            facts = None if self._cached_facts is None else self._cached_facts(review)
            if facts is not None:
                return Answer(self._judge(phase, handler, review, facts, began))
        except BadReviewError as error:
            return self._refusal(error.status, str(error))
        except Exception:
            log.exception("%s: reading the facts failed", phase)
            return self._refusal(500, f"{phase}: cannot be judged: internal error")
        return self._look_up_and_judge(phase, handler, review, began)

    async def _look_up_and_judge(self, phase: str, handler: Handler, review: Review, began: float) -> Answer:
        try:
            try:
                async with asyncio.timeout(self._limits.facts_s):
                    facts = await self._facts(review)
            except (errors.ApiError, TimeoutError) as error:
                text = str(error) or f"the apiserver did not answer within {self._limits.facts_s:g} s"
                raise BadReviewError(f"{review.subject}: cannot be judged: {text}", status=503) from error
            return Answer(self._judge(phase, handler, review, facts, began))
        except BadReviewError as error:
            return self._refusal(error.status, str(error))

    def _judge(self, phase: str, handler: Handler, review: Review, facts: Facts, began: float) -> bytes:
        """The encoded verdict. Raises BadReviewError."""
        with _operation(phase, review, self._clock):
            try:
                with cel.allowance(review.namespace, tokens=self._compile_tokens.allowed(review.namespace)) as allowed:
                    verdict = handler(review, facts)
                if allowed.compiled:
                    self._compile_tokens.spent(review.namespace, allowed.compiled)
                answer = encode(review.uid, verdict)
            except Exception as error:
                log.exception("%s %s: the handler failed", phase, review.subject)
                raise BadReviewError(f"{review.subject}: cannot be judged: internal error", status=500) from error
            if not verdict.allowed:
                log.info("%s %s: denied to %s: %s", phase, review.subject, review.username, verdict.message)
        self._metrics.reviewed(phase, review, verdict, self._clock() - began)
        return answer

    def _refusal(self, status: int, reason: str) -> Answer:
        return Answer(self._refuse(status, reason), status)

    def _refuse(self, status: int, reason: str) -> bytes:
        """Counts and logs an error; returns the body of its answer."""
        self._metrics.refused(status)
        log.warning("refused a request with %d: %s", status, reason)
        return msgspec.json.encode({"error": reason})


def _operation(phase: str, review: Review, clock: Callable[[], float]) -> contextlib.AbstractContextManager[str]:
    """One `op` on every line of a review; subject and fields of its begin and end only where those lines are logged."""
    if not log.isEnabledFor(logging.DEBUG):
        return logs.operation(log, phase, level=logging.DEBUG, clock=clock)
    return logs.operation(
        log,
        f"{phase} {review.subject}",
        level=logging.DEBUG,
        clock=clock,
        uid=review.uid,
        operation=review.operation,
        resource=review.group_resource,
        dry_run=review.dry_run,
    )
