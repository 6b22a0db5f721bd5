"""Addresses that need the ledger: time, cost, the history of a queue. What they show is made by `fairlead.ui.serve.pages`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aiohttp import web

from fairlead.history.cost import written
from fairlead.history.cost.errors import CostError
from fairlead.ui.model import costs
from fairlead.ui.model.time_chart import WINDOWS, Choice
from fairlead.ui.reading.errors import NotReadError
from fairlead.ui.reading.ledger import NO_LEDGER, Ledger
from fairlead.ui.serve import pages
from fairlead.ui.serve.looks import Handler, Look
from fairlead.ui.serve.responses import asks_json, respond

QUEUE_WINDOW = "24h"
ShowQueue = Callable[..., pages.Shown]


class PagesOfLedger:
    def __init__(self, ledger: Ledger, look: Look) -> None:
        self._ledger = ledger
        self._look = look

    def routes(self) -> Iterable[tuple[str, Handler]]:
        return (
            ("/time", self._time),
            ("/cost", self._cost),
            ("/queues/{name}", self._queue),
            ("/queues/{name}/history", self._history),
        )

    async def _time(self, request: web.Request) -> web.StreamResponse:
        json = asks_json(request)
        try:
            scope, facts, _ = await self._look(request)
            choice = Choice.of(request.query)
            past = await self._ledger.past(choice.lasts_s)
        except ValueError as error:
            return respond(request, pages.wrong(str(error), "/time", json=json), json=json)
        return respond(request, pages.time(facts, past, choice, json=json, scope=scope), json=json)

    async def _cost(self, request: web.Request) -> web.StreamResponse:
        json = asks_json(request)
        scope, facts, _ = await self._look(request)
        if not self._ledger.where:
            return respond(request, pages.no_ledger(facts, NO_LEDGER, json=json), json=json)
        try:
            choice = costs.Choice.of(request.query.items(), scope)
            bill = await self._ledger.bill(choice.asked, choice.window)
        except CostError as error:
            return respond(request, pages.no_bill(facts, str(error), 400, json=json), json=json)
        except NotReadError as error:
            return respond(request, pages.no_bill(facts, str(error), 503, json=json), json=json)
        if request.query.get("format") == "csv":
            response = web.Response(text=written.bill_csv(bill), content_type="text/csv", charset="utf-8")
            response.headers["Content-Disposition"] = 'attachment; filename="fairlead-cost.csv"'
            response.headers["Cache-Control"] = "no-store"
            return response
        return respond(request, pages.cost(facts, bill, choice, json=json), json=json)

    async def _queue(self, request: web.Request) -> web.StreamResponse:
        return await self._of_queue(request, pages.one_queue, json=asks_json(request))

    async def _history(self, request: web.Request) -> web.StreamResponse:
        return await self._of_queue(request, pages.history_of_queue, json=True)

    async def _of_queue(self, request: web.Request, show: ShowQueue, *, json: bool) -> web.StreamResponse:
        name, window = request.match_info["name"], request.query.get("window") or QUEUE_WINDOW
        try:
            _, facts, everything = await self._look(request)
        except NotReadError as error:
            return respond(request, pages.away(str(error), json=json), json=json)
        if window not in WINDOWS:
            text = f"window: {window[:40]!r}: there is {', '.join(WINDOWS)}"
            return respond(request, pages.wrong(text, "/queues", json=json), json=json)
        past = await self._ledger.past(WINDOWS[window])
        return respond(request, show(facts, everything, past, name, window, json=json), json=json)
