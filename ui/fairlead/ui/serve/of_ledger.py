"""Addresses that need the ledger: time, cost, the history of a queue. What they show is made by `fairlead.ui.serve.pages`."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from fairlead.ui.model.time_chart import Choice
from fairlead.ui.reading.errors import NotReadError
from fairlead.ui.reading.ledger import Ledger
from fairlead.ui.serve import pages
from fairlead.ui.serve.looks import Handler, Look
from fairlead.ui.serve.responses import asks_json, respond


class PagesOfLedger:
    def __init__(self, ledger: Ledger, look: Look) -> None:
        self._ledger = ledger
        self._look = look

    def routes(self) -> Iterable[tuple[str, Handler]]:
        return (("/time", self._time),)

    async def _time(self, request: web.Request) -> web.StreamResponse:
        json = asks_json(request)
        try:
            scope, facts, _ = await self._look(request)
            choice = Choice.of(request.query)
            past = await self._ledger.past(choice.lasts_s)
        except NotReadError as error:
            return respond(request, pages.away(str(error), json=json), json=json)
        except ValueError as error:
            return respond(request, pages.wrong(str(error), "/time", json=json), json=json)
        return respond(request, pages.time(facts, past, choice, json=json, scope=scope), json=json)
