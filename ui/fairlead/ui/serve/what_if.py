"""`/what-if`: GET shows the form, POST answers it. Nothing is written anywhere; POST, since a change may be long and costs CPU.

JSON of an answer is what `fairlead what-if -o json` prints; of the form, what may be named in it. Each question is answered by a process of
its own: bounded in number and in time, and ended when no request waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from fairlead.controller.forecasting.forked import Memory
from fairlead.driver.backend.profiles.loading import known
from fairlead.engine.forecast.what_if import ChangeError
from fairlead.kube.limits import Clock
from fairlead.ui.access.sessions import party
from fairlead.ui.pages import render
from fairlead.ui.pages.render import SHOWN_TO, Trouble
from fairlead.ui.serve import pages
from fairlead.ui.serve.answers import Shown, as_json, asks_json, respond
from fairlead.ui.serve.security import form as sent_form
from fairlead.ui.serve.views import Look, Seen
from fairlead.ui.what_if.question import Form, Question, named, why_not

LOG = logging.getLogger(__name__)
STATUS: Final = {"change": 400, "cluster": 503, "busy": 429, "late": 504, "failed": 500}
FORM = "application/x-www-form-urlencoded"
AT_ONCE = 1
WAITING_MAX = 4
TURN_S = 60.0  # how long a turn is waited for
ANSWER_S = 60.0
LOOK_S = 0.25  # how often it is looked whether the reader is still there
ANSWER_MAX_BYTES = 64 * 2**20
ERROR_SHOWN = 400
MEMORY_LEAST = 256 * 2**20
"""What must be left in the container for a process to be begun; it may take half of what is left."""
Json = dict[str, Any]


class WhatIf:
    """`computing` None: these pages answer no such question. `drivers`: those that are managed, and those allowed in claims beside them."""

    def __init__(
        self, computing: Computing | None, drivers: tuple[tuple[str, ...], tuple[str, ...]], look: Look
    ) -> None:
        self._computing = computing
        self._drivers = drivers
        self._look = look
        self._profiles = tuple(known())

    async def ask(self, request: web.Request) -> web.StreamResponse:
        json = asks_json(request)
        seen = await self._look(request)
        refused = self._refused(seen, json=json)
        return respond(request, refused or self._shown(seen, Form.of(request.query.items()), json=json), json=json)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        json = asks_json(request)
        seen = await self._look(request)
        refused = self._refused(seen, json=json)
        if refused is not None or self._computing is None:
            assert refused is not None
            return respond(request, refused, json=json)
        if request.content_type != FORM:
            what = Trouble(title="This form is not read", text=f"send it as {FORM}, not {request.content_type[:80]!r}")
            return respond(request, pages.trouble(what, 415, json=json), json=json)
        form = Form()
        try:
            form = Form.of((await sent_form(request)).items())
            found = await self._computing.answer(
                form.question(*self._drivers), lambda: _gone(request), SHOWN_TO.get().name
            )
        except ChangeError as error:
            return respond(request, self._shown(seen, form, str(error), 400, json=json), json=json)
        except NoAnswerError as error:
            status = STATUS[error.kind]
            return respond(request, self._shown(seen, form, str(error), status, json=json), json=json)
        except web.HTTPRequestEntityTooLarge:
            text = "the form is larger than the server reads; submit fewer manifests, or ask `fairlead what-if -f FILE`"
            return respond(request, self._shown(seen, form, text, 413, json=json), json=json)
        except ReaderGoneError:
            LOG.info("what if: the reader left, and its computation was ended")
            raise web.HTTPRequestTimeout from None
        if json:
            # Megabytes where many gangs are submitted: other viewers are answered meanwhile.
            return await asyncio.to_thread(respond, request, Shown(200, found["json"]), json=True)
        text = render.what_if(seen.facts, form, named(seen.facts, self._profiles), shown=found["shown"])
        return respond(request, Shown(200, text), json=False)

    def _refused(self, seen: Seen, *, json: bool) -> Shown | None:
        why = why_not(seen.scope)
        if why:
            what = Trouble(
                title="You may not ask this",
                text=why,
                steps=("An answer names gangs, nodes and queues of everyone; ask someone who may see them.",),
            )
            return pages.trouble(what, 403, json=json, facts=seen.facts)
        if self._computing is None:
            what = Trouble(
                title="What if is not answered here",
                text="this server computes no forecasts",
                steps=("Ask on your own machine: fairlead what-if (docs/forecast.md).",),
            )
            return pages.trouble(what, 404 if json else 200, json=json, facts=seen.facts)
        return None

    def _shown(self, seen: Seen, form: Form, problem: str = "", status: int = 200, *, json: bool) -> Shown:
        there = named(seen.facts, self._profiles)
        if not json:
            return Shown(status, render.what_if(seen.facts, form, there, problem=problem))
        if problem:
            return Shown(status, as_json({"error": "No answer", "message": problem}))
        return Shown(status, as_json(asdict(there)))


def _gone(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


@dataclass(frozen=True, kw_only=True)
class Where:
    """What is asked: a snapshot's file, or the cluster of a kubeconfig's context; all empty: as the program's own."""

    snapshot: Path | None = None
    kubeconfig: Path | None = None
    context: str | None = None

    def as_json(self) -> Json:
        named = {"snapshot": self.snapshot, "kubeconfig": self.kubeconfig, "context": self.context}
        return {name: None if value is None else str(value) for name, value in named.items()}


class NoAnswerError(Exception):
    """`kind`: "change", the question cannot be answered; "cluster", it cannot be read; "busy", "late" or "failed"."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class ReaderGoneError(Exception):
    """Whoever asked is not there any more; the process was ended."""


class Computing:
    """`command`: what is run for each question."""

    def __init__(
        self,
        where: Where,
        *,
        command: Sequence[str] = (sys.executable, "-m", "fairlead.ui.what_if.child"),
        answer_s: float = ANSWER_S,
        turn_s: float = TURN_S,
        clock: Clock = time.monotonic,
        headroom: Callable[[], int | None] | None = None,
    ) -> None:
        self._where = where
        self._headroom = headroom or Memory().headroom
        self._command = tuple(command)
        self._answer_s, self._turn_s = answer_s, turn_s
        self._clock = clock
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0
        self._asking: set[str] = set()  # parties

    async def answer(self, question: Question, gone: Callable[[], bool], user: str = "") -> Json:
        """`json`, a text, and `shown`. `gone`: whether the reader has left. `user`: who has one question at a time; "": nobody in particular.

        Raises NoAnswerError and ReaderGoneError.
        """
        who = party(user)
        if who and who in self._asking:
            raise NoAnswerError("your last question is not answered yet; ask again when it is", "busy")
        if self._waiting >= WAITING_MAX + AT_ONCE:
            raise NoAnswerError(
                f"{AT_ONCE} question is being answered and {WAITING_MAX} wait, which is all that wait; ask again in a minute",
                "busy",
            )
        self._waiting += 1
        self._asking.add(who)
        try:
            async with self._turn(gone):
                return await self._run(question, gone)
        finally:
            self._waiting -= 1
            self._asking.discard(who)

    @contextlib.asynccontextmanager
    async def _turn(self, gone: Callable[[], bool]) -> Any:
        acquire = asyncio.ensure_future(self._turns.acquire())
        try:
            late = NoAnswerError(f"no turn came within {self._turn_s:g} s: others ask, too; ask again", "busy")
            await self._done(acquire, gone, self._turn_s, late)
            try:
                yield
            finally:
                self._turns.release()
        finally:
            if not acquire.done():
                acquire.cancel()

    async def _done(
        self, what: asyncio.Future[Any], gone: Callable[[], bool], within_s: float, late: NoAnswerError
    ) -> None:
        """Waits for it while the reader is there, and so long at most."""
        until = self._clock() + within_s
        while not (await asyncio.wait({what}, timeout=LOOK_S))[0]:
            if gone():
                raise ReaderGoneError
            if self._clock() >= until:
                raise late

    async def _run(self, question: Question, gone: Callable[[], bool]) -> Json:
        left = self._headroom()
        if left is not None and left < MEMORY_LEAST:
            raise NoAnswerError(
                f"{left // 2**20} MiB of memory are left to this server, and a simulation needs {MEMORY_LEAST // 2**20}: raise its limit "
                "(ui.resources), or run `fairlead what-if` on your own machine",
                "busy",
            )
        bound = None if left is None else left // 2
        asked = json.dumps(
            {"where": self._where.as_json(), "question": asdict(question), "memory_bytes": bound}
        ).encode()
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=ANSWER_MAX_BYTES,
        )
        talking = asyncio.ensure_future(process.communicate(asked))
        try:
            late = NoAnswerError(
                f"it took longer than {self._answer_s:g} s and was ended: ask for less (fewer samples, a shorter horizon), or run "
                "`fairlead what-if` on your own machine",
                "late",
            )
            await self._done(talking, gone, self._answer_s, late)
            out, err = talking.result()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await asyncio.shield(talking)
        return await asyncio.to_thread(_read, out, err, process.returncode)


def _read(out: bytes, err: bytes, code: int | None) -> Json:
    try:
        found: Json = json.loads(out)
    except ValueError:
        LOG.error("what if: the process ended with %s: %s", code, err.decode(errors="replace"))
        last = err.decode(errors="replace").strip().rpartition("\n")[2][:ERROR_SHOWN]
        why = f"its process ended with {code}" + (
            f": {last}" if last else "; it may have taken too much memory or time"
        )
        raise NoAnswerError(why, "failed") from None
    if "error" in found:
        raise NoAnswerError(str(found["error"]), str(found["kind"]))
    return found
