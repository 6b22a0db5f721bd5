"""`/what-if`: GET shows the form, POST answers it. Nothing is written anywhere; POST, since a change may be long and costs CPU.

JSON of an answer is what `fairlead what-if -o json` prints; of the form, what may be named in it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict
from typing import Final

from aiohttp import web

from fairlead.driver.backend.profiles.loading import known
from fairlead.engine.forecast.what_if import ChangeError
from fairlead.ui.model.what_if_form import Form, named, why_not
from fairlead.ui.pages import render
from fairlead.ui.pages.render import SHOWN_TO, Trouble
from fairlead.ui.reading.computing import Computing, NoAnswerError, ReaderGoneError
from fairlead.ui.serve import pages
from fairlead.ui.serve.answers import as_json
from fairlead.ui.serve.connections import form as sent_form
from fairlead.ui.serve.looks import Look, Seen
from fairlead.ui.serve.pages import Shown
from fairlead.ui.serve.responses import asks_json, respond

LOG = logging.getLogger(__name__)
STATUS: Final = {"change": 400, "cluster": 503, "busy": 429, "late": 504, "failed": 500}
FORM = "application/x-www-form-urlencoded"


class WhatIf:
    """`computing` None: these pages answer no such question."""

    def __init__(self, computing: Computing | None, drivers: tuple[str, ...], look: Look) -> None:
        self._computing = computing
        self._drivers = drivers
        self._look = look
        self._profiles = tuple(known())

    async def ask(self, request: web.Request) -> web.StreamResponse:
        json = asks_json(request)
        seen = await self._look(request)
        refused = self._refused(seen, json=json)
        return respond(request, refused or self._shown(seen, Form.of(request.query), json=json), json=json)

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
            form = Form.of(await sent_form(request))
            found = await self._computing.answer(
                form.question(self._drivers), lambda: _gone(request), SHOWN_TO.get().name
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
