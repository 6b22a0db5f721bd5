"""Addresses that read the ledger and are not live: the cost, and a queue's history as JSON. What they show is made by `fairlead.ui.serve.pages`."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from fairlead.history.cost import written
from fairlead.history.cost.errors import CostError
from fairlead.ui.model import costs, queue_history
from fairlead.ui.model.time_chart import WINDOWS
from fairlead.ui.reading.errors import NotReadError
from fairlead.ui.reading.ledger import NO_LEDGER, Ledger
from fairlead.ui.serve import pages
from fairlead.ui.serve.looks import Handler, Look
from fairlead.ui.serve.responses import asks_json, respond


class PagesOfLedger:
    def __init__(self, ledger: Ledger, look: Look) -> None:
        self._ledger = ledger
        self._look = look

    def routes(self) -> Iterable[tuple[str, Handler]]:
        return (("/cost", self._cost), ("/queues/{name}/history", self._history))

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

    async def _history(self, request: web.Request) -> web.StreamResponse:
        """JSON alone, whatever is asked for: its picture is on the queue's page."""
        _, facts, everything = await self._look(request)
        try:
            window = queue_history.window_of(request.query)
        except ValueError as error:
            return respond(request, pages.wrong(str(error), "/queues", json=True), json=True)
        past = await self._ledger.past(WINDOWS[window])
        shown = pages.history_of_queue(facts, everything, past, request.match_info["name"], window)
        return respond(request, shown, json=True)
