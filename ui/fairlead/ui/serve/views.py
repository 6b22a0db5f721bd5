"""Which addresses there are, which are live, and what each answers to viewers of a scope; what is kept for each scope meanwhile.

Live are the pages that a stream keeps up to date. The cost, and a queue's history as JSON, read the ledger and are not.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from aiohttp import web

from fairlead.history.cost import written
from fairlead.history.cost.window import CostError
from fairlead.history.ledger.entries import Decision, Stretch
from fairlead.ui.model import costs, queue_history
from fairlead.ui.model.facts import Facts
from fairlead.ui.model.scope import Scope, ScopedFacts, restrict_decisions, restrict_events
from fairlead.ui.model.time_chart import WINDOWS, Choice
from fairlead.ui.reading.cluster import NotReadError, Source
from fairlead.ui.reading.ledger import NO_LEDGER, Ledger
from fairlead.ui.serve import pages
from fairlead.ui.serve.answers import Shown, asks_json, respond
from fairlead.ui.serve.pages import Kept
from fairlead.ui.serve.viewers import Handler

SCOPES_MAX = 32
EVERY_S = 1.0
LEDGER_EVERY_S = 15.0  # a picture whose axis moves with time is sent whole each time
ADDRESS_MAX = 2048
GANG_PAST_S = 86_400.0  # how far back a gang's timeline looks


class Address(NamedTuple):
    """A page's path, in its parts, and its query: equal for pages that are the same."""

    parts: tuple[str, ...]
    query: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, path: str, query: Iterable[tuple[str, str]]) -> Address:
        """`path` is decoded, and begins with a slash."""
        kept = tuple(sorted((name, value) for name, value in query if name != "format"))
        return cls(() if path == "/" else tuple(path[1:].split("/")), kept)

    @property
    def gang(self) -> tuple[str, str] | None:
        """Namespace and name, of a gang's page."""
        return (self.parts[1], self.parts[2]) if len(self.parts) == 3 and self.parts[0] == "gangs" else None

    @property
    def queue(self) -> str:
        """The queue of one queue's page; "" for others."""
        return self.parts[1] if len(self.parts) == 2 and self.parts[0] == "queues" else ""

    @property
    def live(self) -> bool:
        return (
            self.parts in {(), ("map",), ("queues",), ("gangs",), ("time",)}
            or bool(self.queue)
            or self.gang is not None
        )

    @property
    def every_s(self) -> float:
        """How often its stream is given something new, at most."""
        return LEDGER_EVERY_S if self.parts == ("time",) or self.queue else EVERY_S

    @property
    def choice(self) -> Mapping[str, str]:
        return dict(self.query)

    def __str__(self) -> str:
        path = "/" + "/".join(quote(part, safe="") for part in self.parts)
        return f"{path}?{urlencode(self.query)}" if self.query else path


def live_address(text: str) -> Address | None:
    """The address of a page on this server that is live; None for anything else."""
    try:
        parts = urlsplit(text) if len(text) <= ADDRESS_MAX else None
    except ValueError:
        return None
    if parts is None or parts.scheme or parts.netloc or not parts.path.startswith("/"):
        return None
    found = Address.of(unquote(parts.path), parse_qsl(parts.query, keep_blank_values=True))
    return found if found.live else None


class Views:
    """The live pages of one source, by address."""

    def __init__(self, source: Source, scoped: ScopedFacts, ledger: Ledger) -> None:
        self._source = source
        self._ledger = ledger
        self._scoped = scoped
        self._kept: OrderedDict[Scope, Kept] = OrderedDict()

    async def facts(self) -> Facts | NotReadError:
        try:
            return await self._source.facts()
        except NotReadError as error:
            return error

    async def shown(self, everything: Facts | NotReadError, address: Address, scope: Scope, *, json: bool) -> Shown:
        """`address` is live."""
        if isinstance(everything, NotReadError):
            return pages.away(str(everything), json=json)
        facts, kept = self._scoped.of(everything, scope), self._kept_for(scope)
        match address.parts:
            case ("map",):
                return pages.map_(facts, address.choice, json=json, kept=kept)
            case ("queues",):
                past = None if json else await self._ledger.past(queue_history.DAY_S)
                return pages.queue_tree(facts, address.choice, json=json, past=past)
            case ("queues", name):
                return await self._of_queue(facts, everything, name, address, json=json, kept=kept)
            case ("gangs",):
                return pages.gangs(facts, address.choice, json=json, kept=kept)
            case ("gangs", namespace, name):
                return await self._of_gang(everything, scope, namespace, name, json=json)
            case ("time",):
                return await self._of_time(facts, scope, address, json=json)
            case _:
                return pages.overview(facts, day=await self._ledger.day(), scope=scope, json=json, kept=kept)

    def search(self, everything: Facts | NotReadError, text: str, scope: Scope, *, json: bool) -> Shown | str:
        """Or the address of the one thing that is meant."""
        if isinstance(everything, NotReadError):
            return pages.away(str(everything), json=json)
        return pages.search(self._scoped.of(everything, scope), text, json=json, kept=self._kept_for(scope))

    async def _of_time(self, facts: Facts, scope: Scope, address: Address, *, json: bool) -> Shown:
        try:
            choice = Choice.of(address.choice)
        except ValueError as error:
            return pages.wrong(str(error), "/time", json=json)
        choice = choice.past(facts.at)
        past = await self._ledger.past(choice.lasts_s, choice.until)
        return pages.time(facts, past, choice, json=json, scope=scope)

    async def _of_queue(
        self, facts: Facts, everything: Facts, name: str, address: Address, *, json: bool, kept: Kept
    ) -> Shown:
        try:
            window = queue_history.window_of(address.choice)
        except ValueError as error:
            return pages.wrong(str(error), "/queues", json=json)
        past = await self._ledger.past(WINDOWS[window])
        return pages.one_queue(facts, everything, past, name, window, json=json, kept=kept)

    async def _of_gang(self, everything: Facts, scope: Scope, namespace: str, name: str, *, json: bool) -> Shown:
        facts, kept = self._scoped.of(everything, scope), self._kept_for(scope)
        _, is_pod = kept.lines.of(facts).made_of.get((namespace, name), (None, True))
        # Not asked for whatever an address holds.
        events = () if is_pod or json else await self._source.events("Gang", namespace, name)
        if events:
            events = restrict_events(events, everything, scope)
        past, decisions, stretches = None, tuple[Decision, ...](), tuple[Stretch, ...]()
        if self._ledger.where and not json and scope.sees(namespace):
            past = await self._ledger.past(GANG_PAST_S)
            if (namespace, name) in kept.lines.of(facts).made_of:
                decisions = await self._ledger.decisions(namespace, name)
                stretches = await self._ledger.stretches(namespace, name, GANG_PAST_S)
        if decisions:
            decisions = restrict_decisions(decisions, everything, scope)
        return pages.one_gang(
            facts,
            namespace,
            name,
            json=json,
            events=events,
            past=past,
            decisions=decisions,
            stretches=stretches,
            scope=scope,
            kept=kept,
        )

    def _kept_for(self, scope: Scope) -> Kept:
        kept = self._kept.setdefault(scope, Kept.new())
        self._kept.move_to_end(scope)
        while len(self._kept) > SCOPES_MAX:
            self._kept.popitem(last=False)
        return kept


class Seen(NamedTuple):
    """`facts` are those of the viewer; `everything` is for what must know more than it shows."""

    scope: Scope
    facts: Facts
    everything: Facts


Look = Callable[[web.Request], Awaitable[Seen]]
"""Raises LoginNeededError, and NotReadError where nothing was ever read."""


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
