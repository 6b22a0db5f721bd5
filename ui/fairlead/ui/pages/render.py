"""The pages as text. Every value in a template is escaped; a template that names a value that is not there is an error."""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Container, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from importlib.resources import files
from itertools import groupby
from types import MappingProxyType
from typing import Any, Literal, get_args
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from fairlead.api import texts
from fairlead.history.cost.bill import BASES
from fairlead.history.cost.window import BY
from fairlead.history.cost.written import amounts
from fairlead.kube import timestamps
from fairlead.ui.model import costs
from fairlead.ui.model.cluster import MEANING, STATES, ClusterView, NodeView
from fairlead.ui.model.costs import CostView
from fairlead.ui.model.day import GROUPS, Day
from fairlead.ui.model.explanations import Explanation
from fairlead.ui.model.facts import Facts
from fairlead.ui.model.gang import GangView, Moment, Spread
from fairlead.ui.model.gang_devices import Lives
from fairlead.ui.model.gang_list import ORDERS, GangList
from fairlead.ui.model.gangs import PHASES, age, evicts
from fairlead.ui.model.node_groups import BYS as BYS_OF_MAP
from fairlead.ui.model.node_groups import DENSE, RACKS, MapChoice, NodeGroup, gangs_on, node_groups
from fairlead.ui.model.overview import OF_KIND_MAX, Overview
from fairlead.ui.model.queue_history import SPARK_POINTS, QueueHistory
from fairlead.ui.model.queues import Line as QueueLine
from fairlead.ui.model.scope import Scope
from fairlead.ui.model.search import Found, Kind
from fairlead.ui.model.time_chart import BYS, WINDOWS, ZOOMS, TimeChart
from fairlead.ui.pages import gantt
from fairlead.ui.pages.areas import areas
from fairlead.ui.pages.colours import palette, wanted
from fairlead.ui.pages.fragments import STREAM, THEME, WHO, Live, Marked, name_of, plain
from fairlead.ui.pages.lives import lives_picture
from fairlead.ui.pages.node_map import LOADS, Look, bar, gang_key, hold_text, node_map
from fairlead.ui.pages.pictures import SPARK_HEIGHT, bars, pictures, sparks, ticks
from fairlead.ui.what_if import written
from fairlead.ui.what_if.question import HORIZONS, NAMED_MAX, SET, Form, Named


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """What is the matter, and what to do next. Links are addresses and texts; `near`: to what may have been meant."""

    title: str
    text: str
    more: tuple[str, ...] = ()  # paragraphs that follow the text
    steps: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    near: tuple[tuple[str, str], ...] = ()
    near_title: str = "One of these may be meant"


Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = get_args(Theme)


@dataclass(frozen=True, kw_only=True)
class ShownTo:
    """The viewer whom the head of a page names; "": none. `leaves`: the page offers a logout. `theme` None: as the system says.
    `path`: the page's own address, to which a choice of the theme leads back.
    """

    name: str = ""
    leaves: bool = False
    theme: Theme | None = None
    path: str = "/"


SHOWN_TO: ContextVar[ShownTo] = ContextVar("shown_to", default=ShownTo())  # noqa: B039 - frozen; of the request that is answered


def gang_link(gang: str) -> str:
    """The address of the page of namespace/name."""
    namespace, _, name = gang.partition("/")
    return f"/gangs/{quote(namespace, safe='')}/{quote(name, safe='')}"


def queue_link(queue: str) -> str:
    return f"/queues/{quote(queue, safe='')}"


def gangs_link(**choice: str) -> str:
    """The address of the list of gangs that is chosen, by the fields of its form."""
    return f"/gangs?{urlencode(choice)}"


def node_link(node: str) -> str:
    """The address of a node's devices, below the map."""
    return f"/map?{urlencode({'node': node})}#node"


def link_of(kind: Kind, name: str) -> str:
    return {"gang": gang_link, "queue": queue_link, "node": node_link}[kind](name)


def moment(at: float) -> Markup:
    """A time, of unix seconds: page.js shows it as the reader's own and how far away it is."""
    return Markup('<time datetime="{}">{}</time>').format(timestamps.seconds(at), _time(at))


def clock(at: float) -> Markup:
    """The same as hours and minutes alone."""
    said = timestamps.seconds(at)
    return Markup('<time class="clock" datetime="{}">{}</time>').format(said, said[11:16])


_ID = re.compile(r"(?<![-\w./])(?P<namespace>[a-z0-9][-a-z0-9]*)/(?P<name>[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?)(?![-\w/])")
_CLOCK = re.compile(
    r"(?:(?P<date>\d{4}-\d\d-\d\d) )?(?P<time>\d\d:\d\d(?::\d\d)?) UTC \([^)]*\)"
)  # as of `gangs.clock`


def linked(text: str, *, known: Container[tuple[str, str]], at: float) -> Markup:
    """The text with a link on each namespace/name of a gang that has a page, and its times for page.js. `at`: of the text, unix seconds."""

    def link(found: re.Match[str]) -> str:
        if (found["namespace"], found["name"]) not in known:
            return found[0]
        return Markup('<a href="{}"><bdi>{}</bdi></a>').format(gang_link(found[0]), found[0])

    def time_of(found: re.Match[str]) -> str:
        date = found["date"] or datetime.fromtimestamp(at, UTC).date()
        return f'<time datetime="{date}T{found["time"]}Z">{found[0]}</time>'

    shown = _ID.sub(link, str(escape(visible(text))))
    return Markup(_CLOCK.sub(time_of, shown))  # noqa: S704 - escaped, with links and times


@cache
def file(name: str) -> str:
    """A file that pages name: style.css, icon.svg."""
    return files("fairlead.ui.pages").joinpath(name).read_text(encoding="utf-8")


@cache
def _hash(name: str) -> str:
    return hashlib.sha256(file(name).encode()).hexdigest()[:12]


SCRIPTS = ("htmx.min.js", "hx-sse.min.js")


def visible(value: Any) -> Any:
    """Text without characters that a reader does not see. What a macro returns stays markup."""
    if isinstance(value, str) and not (value.isascii() and value.isprintable()) and not isinstance(value, Marked):
        shown = texts.plain(value.replace("\r", "\n").replace("\t", " "))
        return Markup(shown) if isinstance(value, Markup) else shown  # noqa: S704 - of markup
    return value


def sentence(text: str) -> str:
    """A message that stands alone: shown with a capital letter, unless it begins with a name; its text stays what it is."""
    first = text.partition(" ")[0].rstrip(",:;")
    if first.isalpha() and first.isascii() and first.islower():
        return Markup('<span class="said">{}</span>').format(visible(text))
    return text


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("fairlead.ui.pages"),
        autoescape=True,
        finalize=visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[Live],
    )
    made.globals |= {
        "gang_link": gang_link,
        "queue_link": queue_link,
        "gangs_link": gangs_link,
        "node_link": node_link,
        "moment": moment,
        "clock": clock,
        "hold_text": hold_text,
        "sentence": sentence,
        "age": age,
        "STATES": STATES,
        "MEANING": MEANING,
        "PHASES": PHASES,
        "ORDERS": ORDERS,
        "style_hash": _hash("style.css"),
        "page_hash": _hash("page.js"),
        "name_of": name_of,
        "who_mark": WHO,
        "stream_mark": STREAM,
        "theme_mark": THEME,
    }
    return made


def _page(template: str, facts: Facts | None, **values: Any) -> str:
    return (
        _environment()
        .get_template(template)
        .render(
            as_of=None if facts is None else facts.at,
            origin="" if facts is None else facts.origin,
            notices=[facts.late] if facts is not None and facts.late else [],
            **values,
        )
    )


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def page(marked: str, stream: str = "") -> str:
    """What is sent of what a function here returned: with the name of who asks, and what makes it live; "" for nothing."""
    shown_to = SHOWN_TO.get()
    who = _environment().get_template("who.html").render(shown_to=shown_to, themes=(None, *THEMES))
    theme = f' data-theme="{shown_to.theme}"' if shown_to.theme else ""
    return plain(marked, who=who, stream=stream, theme=theme)


def stream(address: str) -> str:
    """What opens the stream of a live page, for browsers that run scripts.

    The scripts are not deferred: htmx begins as soon as it runs unless the document is still loading, and an extension that comes after
    that is never asked.
    """
    hashes = {name: _hash(f"vendor/{name}") for name in SCRIPTS}
    return _environment().get_template("stream.html").render(address=address, scripts=SCRIPTS, hashes=hashes)


LOOKS_KEPT = 8
GANGS_MAX = 40  # that the map's legend names


class NodeItems:
    """What was made of the map, kept from one rendering to the next, by look; what changed is made again."""

    def __init__(self) -> None:
        self._of: OrderedDict[MapChoice, _Items] = OrderedDict()
        self._view: ClusterView | None = None
        self._groups: tuple[NodeGroup, ...] = ()
        self._gangs: tuple[tuple[str, int], ...] = ()

    def groups(self, view: ClusterView) -> tuple[NodeGroup, ...]:
        self._look_at(view)
        return self._groups

    def gangs(self, view: ClusterView) -> tuple[tuple[str, int], ...]:
        """Gangs and how many devices each holds, the largest first."""
        self._look_at(view)
        return self._gangs

    def of(self, look: Look) -> _Items:
        found = self._of.get(look.choice)
        if found is None or found.look != look:
            found = self._of[look.choice] = _Items(look)
        self._of.move_to_end(look.choice)
        while len(self._of) > LOOKS_KEPT:
            self._of.popitem(last=False)
        return found

    def _look_at(self, view: ClusterView) -> None:
        if self._view is not view:
            self._view, self._groups, self._gangs = view, node_groups(view), gangs_on(view)


class _Items:
    """The nodes and groups of one look."""

    def __init__(self, look: Look) -> None:
        self.look = look
        self._nodes: dict[tuple[str, bool], tuple[NodeView, Marked]] = {}
        self._tiles: dict[str, tuple[NodeGroup, Marked]] = {}

    def nodes(self, group: NodeGroup, *, chosen: str) -> Marked:
        return Marked("".join(self._node(node, is_chosen=node.name == chosen) for node in group.nodes))

    def tiles(self, groups: Iterable[NodeGroup]) -> Marked:
        """A bar of each group."""
        return Marked("".join(map(self._tile, groups)))

    def keep(self, nodes: int) -> None:
        """Forget those that are gone, where they are many."""
        if len(self._nodes) > 2 * nodes + LOOKS_KEPT:
            self._nodes.clear()
        if len(self._tiles) > nodes:
            self._tiles.clear()

    def _node(self, node: NodeView, *, is_chosen: bool) -> Marked:
        known = self._nodes.get((node.name, is_chosen))
        if known is None or known[0] is not node:
            item = _environment().get_template("node.html").render(
                node=node_map(node, self.look), key=name_of("n", node.name), is_chosen=is_chosen
            )  # fmt: skip
            known = self._nodes[node.name, is_chosen] = (node, Marked(item))
        return known[1]

    def _tile(self, group: NodeGroup) -> Marked:
        known = self._tiles.get(group.key)
        if known is None or known[0] != group:
            item = _environment().get_template("rack.html").render(
                group=group,
                bar=bar(group.nodes, self.look),
                key=name_of("r", group.key),
                link=f"/map{self.look.choice.query(group=group.key)}",
            )  # fmt: skip
            known = self._tiles[group.key] = (group, Marked(item))
        return known[1]


_LOOKS_FREE = "devices that claims of other namespaces hold are shown as free: which those are is not known here"


def overview(facts: Facts, view: Overview, day: Day, scope: Scope) -> str:
    return _page(
        "overview.html",
        facts,
        view=view,
        missing=_missing(facts, "nodes", "resourceslices", "gangs", "pods", "resourceclaims", "devicetaintrules"),
        day=day,
        areas=areas(day) if day.parts else None,
        idle_cost=amounts(day.idle_cost_for(scope)),
        every=scope.namespaces is None,
        OF_KIND_MAX=OF_KIND_MAX,
        GROUPS=tuple(GROUPS),
    )


def map_(facts: Facts, view: ClusterView, choice: MapChoice, *, items: NodeItems | None = None) -> str:
    """`items`: of the rendering before."""
    items = items or NodeItems()
    every = palette(facts.queues, view.queues)
    colours = {queue: every[queue] for queue in view.queues}
    groups = [each for each in items.groups(view) if choice.group in {"", each.key}]
    count = sum(len(each.nodes) for each in groups)
    look = Look(choice=replace(choice, node=""), colours=colours, dense=count > DENSE)
    kept = items.of(look)
    kept.keep(len(view.nodes))
    by_model = [(model, tuple(each)) for model, each in groupby(groups, key=lambda each: each.model)]
    # Where claims of other namespaces are not read, what they hold looks free.
    unread = [_LOOKS_FREE] if "resourceclaims" in facts.refused else []
    gangs = items.gangs(view) if choice.by == "gang" else ()
    return _page(
        "map.html",
        facts,
        view=view,
        choice=choice,
        look=look,
        items=kept,
        by_model=by_model,
        racked=count > RACKS,
        colours=colours,
        gangs=[(name, f"q{wanted(name)[0]}", gang_key(name), held) for name, held in gangs[:GANGS_MAX]],
        more_gangs=max(0, len(gangs) - GANGS_MAX),
        islands=any(len(gpus) > 1 for each in view.nodes for island, gpus in each.islands if island),
        crossed=any(gpu.note and gpu.holds for each in view.nodes for gpu in each.gpus),
        parts=any(gpu.parts for each in view.nodes for gpu in each.gpus),
        evicting=facts.hardware is not None and bool(facts.hardware.evicting),
        chosen=next((each for each in view.nodes if each.name == choice.node), None),
        missing=[*_missing(facts, "gangs", "pods", "resourceclaims", "devicetaintrules"), *unread],
        known_nodes=0 if facts.hardware is None else len(facts.hardware.nodes.all()),
        # Told where there is no device.
        waiting=0 if view.nodes else sum((raw.get("status") or {}).get("phase") == "Waiting" for raw in facts.gangs),
        now=facts.at,
        BYS=BYS_OF_MAP,
        LOADS=LOADS,
    )


def _missing(facts: Facts, *kinds: str) -> list[str]:
    """Why a page has less than there is."""
    return [facts.refused[kind] for kind in kinds if kind in facts.refused]


def queues(
    facts: Facts, lines: Sequence[QueueLine], used: Mapping[tuple[str, str], Sequence[float]] = MappingProxyType({})
) -> str:
    """`used`: of a day, by queue and flavor, as of `queue_history.day_of_use`."""
    return _page(
        "queues.html",
        facts,
        lines=lines,
        bars=bars(lines),
        sparks=sparks(lines, used),
        SPARK_POINTS=SPARK_POINTS,
        SPARK_HEIGHT=SPARK_HEIGHT,
    )


def gangs(facts: Facts, found: GangList) -> str:
    missing = _missing(facts, "gangs", "pods")
    return _page(
        "gangs.html", facts, found=found, choice=found.choice, missing=missing, evicts=partial(evicts, now=facts.at)
    )


def search(facts: Facts, found: Found) -> str:
    return _page(
        "search.html", facts, found=found, link_of=link_of, missing=_missing(facts, "gangs", "pods", "queues", "nodes")
    )


def gang(
    facts: Facts,
    view: GangView,
    moments: Sequence[Moment] = (),
    spread: Spread | None = None,
    lives: Lives | None = None,
    known: Container[tuple[str, str]] = (),
) -> str:
    """`known`: namespace and name of the gangs that have a page."""
    parts = {part.title: part.lines for part in view.explanation.parts}
    return _page(
        "gang.html",
        facts,
        view=view,
        line=view.line,
        parts=parts,
        moments=moments,
        spread=None if spread is None else gantt.spread_picture(spread),
        lives=None if lives is None else lives_picture(lives),
        linked=partial(linked, known=known, at=facts.at),
        FIRST=_FIRST,
        FOLDED=_FOLDED,
        FORECAST=_FORECAST,
        ELSEWHERE={*_FIRST, *(title for title, _ in _FOLDED), _FORECAST, "Devices it could use are held by"},
    )


# A reader comes for the reason: these stand first, in this order. Others are folded, and the rest follows as `fairlead explain` prints it.
_FIRST = ("What blocks it", "What would change it", "Why")
_FOLDED = (("In detail", "in-detail"), ("Why nothing is evicted for it", "blockers"))
_FORECAST = "Forecast of its start"


def time(facts: Facts, chart: TimeChart) -> str:
    held = {run.queue for group in chart.groups for run in group.runs}
    every = palette(facts.queues, held)
    colours = {queue: every[queue] for queue in held} if chart.choice.by == "node" else {}
    return _page(
        "time.html",
        facts,
        chart=chart,
        choice=chart.choice,
        picture=gantt.picture(chart, colours),
        colours=colours,
        address=gantt.address,
        moves=[
            ("earlier", chart.earlier),
            ("later", chart.later),
            ("closer", chart.closer),
            ("farther", chart.farther),
        ],
        since=_time(chart.since),
        until=_time(chart.until),
        begins="" if chart.begins is None else _time(chart.begins),
        missing=[*([chart.missing] if chart.missing else []), *_missing(facts, "gangs", "pods")],
        BYS=BYS,
        ZOOMS=ZOOMS,
        ENDS=gantt.ENDS,
    )


def cost(facts: Facts, view: CostView) -> str:
    return _page(
        "cost.html",
        facts,
        view=view,
        choice=view.choice,
        missing=[*([view.missing] if view.missing else []), *_missing(facts, "gangs")],
        GROUPS=[name for name in BY if facts.hardware is not None or name not in costs.OF_NODES],
        COST_WINDOWS=costs.WINDOWS,
        DATES=costs.DATES,
        BASES=BASES,
        IDLE_TO=costs.IDLE_TO,
    )


def what_if(
    facts: Facts, form: Form, named: Named, *, shown: Mapping[str, Any] | None = None, problem: str = ""
) -> str:
    """`shown`: the answer, as `fairlead.ui.what_if.written` words it; None: there is none yet. `problem`: why there is none."""
    return _page(
        "what_if.html",
        facts,
        form=form,
        named=named,
        shown=shown,
        problem=problem,
        STARTS=written.STARTS,
        SHARES=written.SHARES,
        HORIZONS=HORIZONS,
        NAMED_MAX=NAMED_MAX,
        SET=SET,
    )


def queue(
    facts: Facts,
    explanation: Explanation,
    history: QueueHistory,
    window: str,
    known: Container[tuple[str, str]] = (),
) -> str:
    """`known`: namespace and name of the gangs that have a page."""
    return _page(
        "queue.html",
        facts,
        line=history.line,
        explanation=explanation,
        history=history,
        pictures=pictures(history),
        ticks=ticks(history),
        linked=partial(linked, known=known, at=facts.at),
        chosen=window,
        WINDOWS=WINDOWS,
    )


def trouble(what: Trouble, facts: Facts | None = None) -> str:
    return _page("trouble.html", facts, what=what)


def login(*, problem: str, path: str, audiences: Sequence[str], cluster_tokens: bool) -> str:
    """The form of a login; `path`: where it leads to, on this server."""
    return _page(
        "login.html", None, problem=problem, path=path, audiences=tuple(audiences), cluster_tokens=cluster_tokens
    )


def arrived(address: str) -> str:
    """A page that goes on to an address of this server by itself."""
    return _page("arrived.html", None, address=address)
