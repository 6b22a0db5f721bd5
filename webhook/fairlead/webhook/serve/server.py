"""The HTTPS server: decodes each review, gets its facts, calls the handler, and answers, with limits on everything.

One log line for a denial, one metric per review. An error of ours is a 500 without details, so that the apiserver's failure policy
decides. GET of /healthz, /livez and /readyz is answered here, too: by the loop and through the port that answer reviews.

Each socket is counted from accept on (`room`), and does its work in turns (`turns`), so that clients that connect, and do or do not
speak, cost a connection that carries reviews neither its place nor its time.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from fairlead import cel
from fairlead.kube import errors, logs
from fairlead.kube.tracing import Tracing
from fairlead.webhook.handlers.dispatch import Handler, mutate, validate
from fairlead.webhook.review.envelope import BadReviewError, OversizedReviewError, Review, decode, encode
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.serve.connection import Answer, Connection, Request
from fairlead.webhook.serve.limits import CompileTokens, LimitedLog, Limits, Turns
from fairlead.webhook.serve.metrics import Metrics, admit_span
from fairlead.webhook.serve.room import Guest, Room
from fairlead.webhook.serve.sockets import Listener, State, TlsSocket, places

log = logging.getLogger(__name__)

_HANDLERS: dict[str, Handler] = {"/mutate": mutate, "/validate": validate}
Check = Callable[[], str | None]
"""None where all is well, else what is wrong."""
SWEEP_S = 0.25
REFUSALS_LOGGED = 10
DENIALS_LOGGED = 200
"""Lines per LimitedLog.WINDOW_S."""


def _well() -> str | None:
    return None


class Server:
    """`async with server.serve(host, port, context) as port`.

    facts: the facts for a review, with lookups in the apiserver; cached_facts: the same without a lookup, or None. It is asked
    first where it is given. health and ready: what /healthz and /readyz answer. tracer: where a span for each gated pod goes.
    """

    def __init__(
        self,
        facts: Callable[[Review], Awaitable[Facts]],
        metrics: Metrics,
        *,
        cached_facts: Callable[[Review], Facts | None] | None = None,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
        health: Check = _well,
        ready: Check = _well,
        tracer: Tracing | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._limits = limits or Limits()
        self._facts, self._cached_facts = facts, cached_facts
        self._metrics = metrics
        self._clock = clock
        self._tracer, self._wall = tracer, wall
        self._checks = {"/healthz": health, "/livez": health, "/readyz": ready}
        self._warn = LimitedLog(log, logging.WARNING, REFUSALS_LOGGED, clock)
        self._denied = LimitedLog(log, logging.INFO, DENIALS_LOGGED, clock)
        self._compile_tokens = CompileTokens(clock)

    @contextlib.asynccontextmanager
    async def serve(self, host: str, port: int, context: ssl.SSLContext) -> AsyncIterator[int]:
        """Listens while the context lasts; yields the port. Requests in flight are finished before it ends."""
        self._loop = loop = asyncio.get_running_loop()
        self._context = context
        self._room = Room(self._limits, places(self._limits.connections), self._clock)
        self._turns = Turns(loop)
        self._lookups = asyncio.Semaphore(self._limits.lookups)
        self._metrics.serving(self._room.states, lambda: self._room.held_bytes)
        listener = Listener(await Listener.bind(host, port, loop), loop, self._accepted, self._exhausted)
        listener.start()
        expiring = loop.create_task(self._expire_late())
        try:
            yield listener.port
        finally:
            expiring.cancel()
            listener.close()
            await self._drain()

    # -- sockets -----------------------------------------------------------------------------------------------------

    def _accepted(self, raw: socket.socket, address: str) -> None:
        connection = Connection(
            lambda request: self._handle(guest, request),
            self._refuse,
            self._limits,
            self._clock,
            proven=lambda: guest.proven,
            settled=lambda: self._room.count(guest),
        )
        accepted = TlsSocket(
            raw,
            address,
            self._context,
            connection,
            loop=self._loop,
            wants_turn=lambda _: self._turns.add(take_turn, self._room.rank(guest), proven=guest.proven),
            closed=self._left,
        )
        guest = self._room.enter(accepted, connection)
        take_turn = functools.partial(self._turn, guest)

    def _turn(self, guest: Guest) -> None:
        if guest.socket.state is State.CLOSED:
            return
        began = time.perf_counter()
        guest.socket.turn()
        self._room.worked(guest, time.perf_counter() - began)

    def _left(self, closed: TlsSocket, reason: str) -> None:
        if self._room.leave(closed) is not None:
            self._metrics.ended(reason)

    def _exhausted(self) -> None:
        """No descriptor is left: one connection less, so that the next one fits."""
        self._warn("no descriptor is left for another connection; raise the limit of open files")
        self._room.make_place()

    async def _expire_late(self) -> None:
        """Runs forever: ends connections that are past their deadline."""
        limits = self._limits
        interval_s = min(SWEEP_S, limits.head_s / 4, limits.body_s / 4, limits.idle_s / 4, limits.handshake_s / 4)
        while True:
            await asyncio.sleep(interval_s)
            now = self._clock()
            for guest in list(self._room.guests.values()):
                self._expire(guest, now)

    def _expire(self, guest: Guest, now: float) -> None:
        match guest.socket.state:
            case State.HANDSHAKE if now >= guest.since + self._limits.handshake_s:
                guest.socket.end("handshake late")
            case State.OPEN if now >= guest.connection.deadline:
                guest.connection.expire(now)
                self._room.count(guest)
            case State.LINGERING if self._loop.time() >= guest.socket.linger_since + self._limits.linger_s:
                guest.socket.end("answered")

    async def _drain(self) -> None:
        """Answers the requests in flight, for as long as a body may take; then every connection is closed."""
        guests = list(self._room.guests.values())
        answering = [task for guest in guests if (task := guest.connection.drain()) is not None]
        if answering:
            await asyncio.wait(answering, timeout=self._limits.body_s)
        if any(guest.socket.unsent_bytes for guest in self._room.guests.values()):
            await asyncio.sleep(self._limits.linger_s)  # a large answer to a slow client
        for guest in list(self._room.guests.values()):
            guest.socket.end("server stops")
        await asyncio.sleep(0)

    # -- requests ----------------------------------------------------------------------------------------------------

    def _handle(self, guest: Guest, request: Request) -> Answer | Awaitable[Answer]:
        check = self._checks.get(request.path)
        if check is not None and request.method == "GET":
            problem = check()
            return Answer(f"{problem or 'ok'}\n".encode(), 503 if problem else 200, "text/plain")
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
                return self._judge(guest, phase, handler, review, facts, began)
        except OversizedReviewError as error:
            self._refuse(error.status, str(error))
            return Answer(encode(error.uid, error.verdict))
        except BadReviewError as error:
            return self._refusal(error.status, str(error))
        except Exception:
            log.exception("%s: reading the facts failed", phase)
            return self._refusal(500, f"{phase}: cannot be judged: internal error")
        return self._look_up_and_judge(guest, phase, handler, review, began)

    async def _look_up_and_judge(
        self, guest: Guest, phase: str, handler: Handler, review: Review, began: float
    ) -> Answer:
        self._room.count(guest)
        limit = contextlib.nullcontext() if guest.proven else self._lookups
        try:
            try:
                async with asyncio.timeout(self._limits.facts_s), limit:
                    facts = await self._facts(review)
            except (errors.ApiError, TimeoutError) as error:
                text = str(error) or f"the apiserver did not answer within {self._limits.facts_s:g} s"
                raise BadReviewError(f"{review.subject}: cannot be judged: {text}", status=503) from error
            return await self._in_turn(guest, lambda: self._judge(guest, phase, handler, review, facts, began))
        except BadReviewError as error:
            return self._refusal(error.status, str(error))

    async def _in_turn(self, guest: Guest, work: Callable[[], Answer]) -> Answer:
        """What work returns, done in a turn of the guest. Raises what it raises."""
        done: asyncio.Future[Answer] = self._loop.create_future()

        def turn() -> None:
            if done.done():
                return
            began = time.perf_counter()
            try:
                done.set_result(work())
            except Exception as error:
                done.set_exception(error)
            self._room.worked(guest, time.perf_counter() - began)

        self._turns.add(turn, self._room.rank(guest), proven=guest.proven)
        return await done

    def _judge(self, guest: Guest, phase: str, handler: Handler, review: Review, facts: Facts, began: float) -> Answer:
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
                self._denied("%s %s: denied to %s: %s", phase, review.subject, review.username, verdict.message)
        took_s = self._clock() - began
        self._metrics.reviewed(phase, review, verdict, took_s)
        if self._tracer is not None and verdict.trace is not None and not review.dry_run:
            self._tracer.add(admit_span(review, verdict, verdict.trace, ended_s=self._wall(), took_s=took_s))
        self._room.reviewed(guest)
        return Answer(answer)

    def _refusal(self, status: int, reason: str) -> Answer:
        return Answer(self._refuse(status, reason), status)

    def _refuse(self, status: int, reason: str) -> bytes:
        """Counts and logs an error; returns the body of its answer."""
        self._metrics.refused(status)
        self._warn("refused a request with %d: %s", status, reason)
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
