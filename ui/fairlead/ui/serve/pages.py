"""What each address answers, from facts alone: a page, or the same as JSON. Pure.

JSON is what the command line prints for the same thing: `/queues` as `fairlead queues -o json`, `/gangs` as `fairlead gangs -A -o json`,
a gang's as `fairlead explain -o json`. The overview and the map have no command; their JSON is the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

from fairlead.history.cost.bill import Bill
from fairlead.history.ledger.entries import Decision, Stretch
from fairlead.kube.resources import Raw
from fairlead.ui.model import cluster as clusters
from fairlead.ui.model import costs, gang, gang_devices, gang_list, plain_pods, queue_history, queues, time_chart
from fairlead.ui.model import overview as overviews
from fairlead.ui.model import search as searches
from fairlead.ui.model.day import Day
from fairlead.ui.model.explanations import queue_explanation
from fairlead.ui.model.facts import Facts, Past
from fairlead.ui.model.gang import events_of
from fairlead.ui.model.gang_list import LineMemory
from fairlead.ui.model.node_groups import MapChoice
from fairlead.ui.model.overview import OverviewMemory
from fairlead.ui.model.scope import EVERYTHING, Scope
from fairlead.ui.pages import render
from fairlead.ui.pages.render import Trouble
from fairlead.ui.reading.ledger import NO_LEDGER
from fairlead.ui.serve.answers import Shown, as_json

NO_DAY = Day(missing=NO_LEDGER)
RUNS_SHOWN = 5  # of a gang that is not there any more


class Kept(NamedTuple):
    """What is kept from one rendering to the next, of one cluster, for viewers of the same rights; it changes no page."""

    memory: clusters.Memory
    lines: LineMemory
    items: render.NodeItems
    overview: OverviewMemory

    @classmethod
    def new(cls) -> Kept:
        return cls(clusters.Memory(), LineMemory(), render.NodeItems(), OverviewMemory())


def overview(
    facts: Facts, *, json: bool, day: Day = NO_DAY, scope: Scope = EVERYTHING, kept: Kept | None = None
) -> Shown:
    """`facts` are restricted to the scope, the day is not."""
    kept = kept or Kept.new()
    view = None if facts.hardware is None else clusters.cluster(facts.hardware, kept.memory)
    found = kept.overview.of(facts, view)
    day = overviews.day_for(day, scope)
    if json:
        return Shown(200, as_json(overviews.as_json(found, day, scope, at=facts.at)))
    return Shown(200, render.overview(facts, found, day, scope))


def map_(facts: Facts, query: Mapping[str, str], *, json: bool, kept: Kept | None = None) -> Shown:
    try:
        choice = MapChoice.of(query)
    except ValueError as error:
        return wrong(str(error), "/map", json=json)
    if facts.hardware is None:
        texts = [facts.refused[kind] for kind in ("nodes", "resourceslices") if kind in facts.refused]
        what = Trouble(
            title="The cluster's devices cannot be read",
            text=texts[0],
            more=tuple(texts[1:]),
            steps=("Open the page of queues or of gangs: they need no right to list nodes.",),
            links=(("/queues", "Queues"), ("/gangs", "Gangs")),
        )
        return trouble(what, 403, json=json, facts=facts)
    kept = kept or Kept.new()
    view = clusters.cluster(facts.hardware, kept.memory)
    if json:
        return Shown(200, as_json(asdict(view)))
    return Shown(200, render.map_(facts, view, choice, items=kept.items))


def queue_tree(facts: Facts, query: Mapping[str, str], *, json: bool, past: Past | None = None) -> Shown:
    """`past`: of the last day."""
    if "queues" in facts.refused:
        return _unread(facts, "Queues", json=json)
    lines = queues.tree(facts.queues)
    if json:
        return Shown(200, as_json([asdict(each) for each in lines]))
    return Shown(200, render.queues(facts, lines, queue_history.day_of_use(facts.queues, past or Past())))


def one_queue(
    facts: Facts, everything: Facts, past: Past, name: str, window: str, *, json: bool, kept: Kept | None = None
) -> Shown:
    """`everything`: what waits in it counts whoever looks, as in its status."""
    raw = _queue(facts, name)
    if raw is None:
        return _no_queue(facts, name, json=json)
    own = [gang for gang in facts.gangs if ((gang.get("status") or {}).get("queue") or "") == name]
    pods = [pod for pod in facts.pods if plain_pods.is_plain(pod) and plain_pods.queue_of(pod) == name]
    explanation = queue_explanation(raw, own, pods, now=facts.at, unseen=facts.refused.get("gangs", ""))
    if json:
        return Shown(200, as_json(asdict(explanation)))
    found = queue_history.queue_history(everything, past, raw, lasts_s=time_chart.WINDOWS[window])
    known = (kept or Kept.new()).lines.of(facts).made_of
    return Shown(200, render.queue(facts, explanation, found, window, known))


def history_of_queue(facts: Facts, everything: Facts, past: Past, name: str, window: str) -> Shown:
    """The history of a queue as JSON."""
    raw = _queue(facts, name)
    if raw is None:
        return _no_queue(facts, name, json=True)
    found = queue_history.queue_history(everything, past, raw, lasts_s=time_chart.WINDOWS[window])
    return Shown(200, as_json(queue_history.as_json(found)))


def _queue(facts: Facts, name: str) -> Raw | None:
    return next((raw for raw in facts.queues if raw["metadata"]["name"] == name), None)


def _no_queue(facts: Facts, name: str, *, json: bool) -> Shown:
    if "queues" in facts.refused:
        return _unread(facts, "Queues", json=json)
    what = Trouble(title="No such queue", text=f"no queue is called {name}", links=(("/queues", "All queues"),))
    return trouble(what, 404, json=json, facts=facts)


def gangs(facts: Facts, query: Mapping[str, str], *, json: bool, kept: Kept | None = None) -> Shown:
    """JSON has all that was chosen, not a page of it."""
    try:
        choice = gang_list.Choice.of(query)
    except ValueError as error:
        what = Trouble(title="This address is not right", text=str(error), links=(("/gangs", "All gangs"),))
        return trouble(what, 400, json=json, facts=facts)
    if _without_gangs(facts):
        return _unread(facts, "Gangs", json=json)
    lines = (kept or Kept.new()).lines.of(facts)
    found = gang_list.gang_list(lines, choice, now=facts.at, held=partial(gang_devices.held, facts))
    return Shown(200, as_json([asdict(each) for each in found.all_fresh()]) if json else render.gangs(facts, found))


def search(facts: Facts, text: str, *, json: bool, kept: Kept | None = None) -> Shown | str:
    """Or the address of the one thing that is meant."""
    found = searches.search(facts, (kept or Kept.new()).lines.of(facts).made_of, text)
    if json:
        return Shown(200, as_json(asdict(found)))
    return Shown(200, render.search(facts, found)) if found.only is None else render.link_of(*found.only)


def time(facts: Facts, past: Past, choice: time_chart.Choice, *, json: bool, scope: Scope = EVERYTHING) -> Shown:
    """`facts` are restricted to the scope, the past is not."""
    if choice.by == "node" and facts.hardware is None:
        what = Trouble(
            title="Nodes cannot be read",
            text="; ".join(text for kind, text in facts.refused.items() if kind in {"nodes", "resourceslices"}),
            links=((f"/time{choice.query(by='queue', only='')}", "The same by queue"),),
        )
        return trouble(what, 403, json=json, facts=facts)
    if _without_gangs(facts):
        return _unread(facts, "Gangs", json=json)
    chart = time_chart.time_chart(facts, past, choice, scope)
    return Shown(200, as_json(time_chart.as_json(chart)) if json else render.time(facts, chart))


def cost(facts: Facts, bill: Bill, choice: costs.Choice, *, json: bool) -> Shown:
    if json:
        return Shown(200, as_json(costs.as_json(bill)))
    return Shown(200, render.cost(facts, costs.cost_view(bill, choice, facts.queues, facts.gangs)))


def no_ledger(facts: Facts, text: str, *, json: bool) -> Shown:
    """A page that says what to do."""
    what = Trouble(
        title="Cost",
        text=text,
        steps=(
            "In a cluster: keep the ledger in PostgreSQL (controller.ledger.urlSecret), and give the pages its URL.",
            "On a laptop: fairlead ui --ledger DIR|URL, with that URL, or a copy that fairlead ledger backup made.",
        ),
        links=(("/time", "What runs and what waits"),),
    )
    return trouble(what, 404 if json else 200, json=json, facts=facts)


def no_bill(facts: Facts, text: str, status: int, *, json: bool) -> Shown:
    title = "This cannot be charged" if status == 400 else "Prices or the ledger cannot be read"
    what = Trouble(title=title, text=text, links=(("/cost", "Cost, as usual"),))
    return trouble(what, status, json=json, facts=facts)


def one_gang(
    facts: Facts,
    namespace: str,
    name: str,
    *,
    json: bool,
    events: Iterable[Raw] = (),
    past: Past | None = None,
    decisions: Iterable[Decision] = (),
    stretches: Sequence[Stretch] = (),
    scope: Scope = EVERYTHING,
    kept: Kept | None = None,
) -> Shown:
    """`events`: on that gang, as the apiserver has them; JSON has neither them nor the past, as `fairlead explain`."""
    every = (kept or Kept.new()).lines.of(facts).made_of
    known, is_pod = every.get((namespace, name), (None, False))
    view = gang.find(facts, namespace, name, known=None if is_pod else known)
    past = past or Past()
    if view is None:
        ended = gang.ended_runs(past, namespace, name)[:RUNS_SHOWN] if scope.sees(namespace) else ()
        why = f"; {facts.refused['gangs']}" if "gangs" in facts.refused else ""
        near = tuple((render.gang_link(each), each) for each in gang.near(facts, namespace, name))
        what = Trouble(
            title="No such gang",
            text=f"no gang is called {name} in namespace {namespace}{why}",
            steps=ended or ("It may have ended: a Gang is deleted with its pods.",),
            near=near,
            links=(("/gangs", "All gangs"),),
        )
        return trouble(what, 404, json=json, facts=facts)
    if json:
        return Shown(200, as_json(asdict(view.explanation)))
    lives = gang_devices.lives(facts, f"{namespace}/{name}", stretches)
    if known is None or is_pod:
        return Shown(200, render.gang(facts, view, lives=lives, known=every))
    said = events_of(events, kind="Gang", namespace=namespace, name=name)
    moments = gang.timeline(facts, past, known, said, decisions)
    return Shown(200, render.gang(facts, view, moments, gang.spread(facts, known), lives, every))


def wrong(text: str, address: str, *, json: bool) -> Shown:
    """A question in an address that is none."""
    return trouble(
        Trouble(title="This address is not right", text=text, links=((address, "As usual"),)), 400, json=json
    )


def away(text: str, *, json: bool) -> Shown:
    what = Trouble(
        title="The cluster cannot be read",
        text=text,
        steps=("Load this page again when that is mended: the server goes on, and asks again each time.",),
    )
    return trouble(what, 503, json=json)


def trouble(what: Trouble, status: int, *, json: bool, facts: Facts | None = None) -> Shown:
    if json:
        said: dict[str, Any] = {"error": what.title, "message": "; ".join((what.text, *what.more))}
        return Shown(status, as_json(said))
    return Shown(status, render.trouble(what, facts))


def _unread(facts: Facts, kind: str, *, json: bool) -> Shown:
    """`kind`: "Queues" or "Gangs"; the other may be there to read."""
    other = "Gangs" if kind == "Queues" else "Queues"
    what = Trouble(
        title=f"{kind} cannot be read", text=facts.refused[kind.lower()], links=((f"/{other.lower()}", other),)
    )
    return trouble(what, 403, json=json, facts=facts)


def _without_gangs(facts: Facts) -> bool:
    return "gangs" in facts.refused and not facts.gangs and not facts.pods
