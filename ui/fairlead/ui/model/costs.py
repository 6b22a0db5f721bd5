"""The page of costs: what was asked, read from its address, and a bill as lines that are shown and linked; pure.

The figures are those of `fairlead cost`; nothing is computed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, urlencode

from fairlead.api.texts import counted
from fairlead.history.cost import window, written
from fairlead.history.cost.bill import BASES, IDLES, Asked, Bill, Idle
from fairlead.history.cost.bill import Line as BillLine
from fairlead.history.cost.usage import Figures, Money, hours
from fairlead.history.cost.window import CostError
from fairlead.history.cost.written import amounts, number
from fairlead.history.ledger.entries import BUCKETS
from fairlead.history.prices import rounded
from fairlead.kube.resources import Raw
from fairlead.ui.model.queues import line as queue_line
from fairlead.ui.model.scope import Scope

WINDOWS: Mapping[str, str] = {
    "1d": "1 day", "7d": "7 days", "30d": "30 days", "month": "this month", "last-month": "last month",
}  # fmt: skip
DATES = "dates"  # in place of a window: those of `from` and `to`
IDLE_TO: Mapping[Idle, str] = {"holder": "its holder", "queue": "its queue", "shared": "all by their use"}
USUAL = "30d"
SHOWN_MAX = 500  # lines; CSV and JSON have all
NAMED_MAX = 300  # of each kind, in the form
OF_NODES = frozenset({"node", "device", "unit"})
NEXT: Mapping[str, str] = {
    "queue": "namespace",
    "namespace": "gang",
    "user": "gang",
    "flavor": "queue",
    "gang": "claim",
    "day": "queue",
    "node": "gang",
}
"""What a line is opened into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a viewer chose; `by` and `where` as they are written, so that an address has what was typed."""

    asked: Asked
    window: str
    by: str
    where: tuple[str, ...]

    @classmethod
    def of(cls, query: Iterable[tuple[str, str]], scope: Scope) -> Choice:
        """The choice in the pairs of a URL's query. Raises CostError that names what is wrong, as `fairlead cost` does."""
        pairs = [(name, value.strip()) for name, value in query]
        last = dict(pairs)
        by = ",".join(value for name, value in pairs if name == "by" and value) or "queue"
        where = tuple(dict.fromkeys(value for name, value in pairs if name == "where" and value))
        span = last.get("window") or USUAL
        if span == DATES:
            span = f"{last.get('from') or ''}..{last.get('to') or ''}"
            if ".." in {span[:2], span[-2:]}:
                raise CostError("from, to: choose both dates, or another window")
        asked = Asked(
            by=window.parse_by([by]),
            where=window.parse_where(where),
            basis=_one_of("basis", last.get("basis") or "allocated", BASES),
            idle=_one_of("idle", last.get("idle") or "holder", IDLES),
            namespaces=scope.namespaces,
        )
        if not scope.cluster and OF_NODES & {*asked.by, *(name for name, _ in asked.where)}:
            raise CostError(f"--by {by}: {scope.cluster_why}")
        return cls(asked=asked, window=span, by=by, where=where)

    @property
    def groups(self) -> tuple[str, ...]:
        """As they were chosen, and one more to choose."""
        return (*self.by.split(","), "")

    @property
    def dates(self) -> tuple[str, str]:
        """First and last of a window of two dates; empty for others."""
        first, _, last = self.window.partition("..")
        return (first, last) if len(first) == len(last) == len("2026-11-01") else ("", "")

    def query(self, *, without: str = "", also: str = "", **changed: str) -> str:
        """The choice as a URL's query. `without`, `also`: a condition that is left out, or added."""
        fields = {"by": self.by, "window": self.window, "basis": self.asked.basis, "idle": self.asked.idle, **changed}
        usual = {"by": "queue", "window": USUAL, "basis": "allocated", "idle": "holder"}
        pairs = [(name, value) for name, value in fields.items() if value and value != usual.get(name)]
        where = [each for each in self.where if each != without] + ([also] if also and also not in self.where else [])
        pairs += [("where", each) for each in where]
        return f"?{urlencode(pairs)}" if pairs else ""


def _one_of(name: str, value: str, there: Sequence[Any]) -> Any:
    if value not in there:
        raise CostError(f"--{name} {value[:40]}: there is {', '.join(there)}")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """Texts as they are shown. `links` of its keys, "" for none. Widths are percents of the longest line's hours."""

    keys: tuple[str, ...]
    links: tuple[str, ...]
    kind: str
    figures: tuple[str, ...]  # in the order of the view's columns
    widths: tuple[tuple[str, float], ...]
    opened: str  # the address of what it is made of


COLUMNS = (
    "GPU-hours",
    "used",
    "idle",
    "starting",
    "lost",
    "no samples",
    "utilised",
    "allocated cost",
    "charged",
    "uncharged",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostView:
    """`all_time` is what became of all device time, in words; "" where the viewer may not see that. `budgets`: queues and what they spent.
    `columns`: COLUMNS, and one for each flavor of which pods requested something. `unpriced`: hours without a price.
    `uncharged`: whether something has a cost that nobody is charged. `named`: what a bill may be narrowed to, by group.
    """

    choice: Choice
    window: str
    missing: str
    by: tuple[str, ...]
    columns: tuple[str, ...]
    lines: tuple[CostLine, ...]
    total: tuple[str, ...]
    more: int
    unpriced: tuple[str, ...]
    all_time: str
    gaps: int
    budgets: tuple[tuple[str, str], ...]
    uncharged: bool
    named: Mapping[str, tuple[str, ...]]


def cost_view(bill: Bill, choice: Choice, queues: Iterable[Raw], gangs: Iterable[Raw] = ()) -> CostView:
    """`queues`, `gangs`: those that the viewer may see."""
    flavors = written.pod_units(bill)
    longest = max((sum(line.figures.weighed.values()) for line in bill.lines), default=0)
    lines = [queue_line(raw) for raw in queues]
    budgets = [(line.name, line.budget) for line in lines if line.budget]
    namespaces = {str(raw["metadata"].get("namespace") or "") for raw in gangs}
    named = {"queue": {line.name for line in lines}, "namespace": namespaces - {""}}
    return CostView(
        choice=choice,
        window=str(bill.known.window),
        missing=bill.known.missing,
        by=bill.asked.by,
        columns=(*COLUMNS, *(f"{name} {unit}" for name, unit in flavors.items())),
        lines=tuple(_line(line, choice, longest, tuple(flavors)) for line in bill.lines[:SHOWN_MAX]),
        total=(
            *_figures(bill.figures, bill.charged, bill.uncharged, held=True, every=True),
            *_pods(bill.figures, flavors),
        ),
        more=max(0, len(bill.lines) - SHOWN_MAX),
        unpriced=(
            *([f"{number(hours(bill.figures.unpriced))} GPU-hours"] if bill.figures.unpriced else []),
            *written.unpriced_pods(bill),
        ),
        all_time=_all_time(bill) if choice.asked.namespaces is None else "",
        gaps=len(bill.conservation.gaps),
        budgets=tuple(budgets),
        uncharged=any(bill.uncharged.values()),
        named={group: tuple(sorted(names)[:NAMED_MAX]) for group, names in named.items() if names},
    )


def as_json(bill: Bill) -> dict[str, Any]:
    """The bill as `fairlead cost -o json` prints it; without what became of all device time where a viewer sees a part of it."""
    found = written.bill_json(bill)
    if bill.asked.namespaces is not None:
        del found["deviceTime"]
    return found


def _line(line: BillLine, choice: Choice, longest: int, flavors: tuple[str, ...]) -> CostLine:
    use = line.kind == "use"
    by = choice.asked.by
    opened = ""
    if use and by[-1] in NEXT and all(line.keys):
        own = [f"{name}={key}" for name, key in zip(by, line.keys, strict=True) if name != "day"]
        narrowed = replace(choice, where=tuple(dict.fromkeys((*choice.where, *own))))
        opened = f"/cost{narrowed.query(by=NEXT[by[-1]])}" if own else ""
    return CostLine(
        keys=line.keys,
        links=tuple(_link(name, key, dict(zip(by, line.keys, strict=True))) if use else "" for name, key in zip(by, line.keys, strict=True)),
        kind="" if use else written.kind(line),
        figures=(*_figures(line.figures, line.charged, line.uncharged, held=use), *_pods(line.figures, flavors)),
        widths=tuple(
            (bucket, round(100.0 * line.figures.weighed[bucket] / longest, 2))
            for bucket in BUCKETS
            if longest and line.figures.weighed.get(bucket)
        ),
        opened=opened,
    )  # fmt: skip


def _link(name: str, key: str, keys: Mapping[str, str]) -> str:
    if not key:
        return ""
    if name == "gang":
        return f"/gangs/{quote(keys['namespace'], safe='')}/{quote(key, safe='')}"
    if name == "queue":
        return f"/queues/{quote(key, safe='')}"
    if name == "namespace":
        return f"/gangs?{urlencode({'namespace': key})}"
    return f"/map?{urlencode({'node': key})}#node" if name == "node" else ""


def _figures(figures: Figures, charged: Money, uncharged: Money, *, held: bool, every: bool = False) -> tuple[str, ...]:
    """`held`: with what only time in claims has. `every`: hours of all buckets, for the total."""
    whole = figures.held if held and not every else sum(figures.weighed.values())
    own = [figures.weighed.get("used", 0), figures.weighed.get("idle", 0), figures.weighed.get("starting", 0)]
    own += [figures.lost, figures.held - figures.sampled]
    busy = written.utilisation(figures)
    return (
        number(hours(whole)) if whole else "",
        *(number(hours(each)) if held and figures.held else "" for each in own),
        "" if busy is None else f"{rounded(busy * 100, 0)} %",
        amounts(figures.money(buckets=figures.weighed)),
        amounts(charged),
        amounts(uncharged),
    )


def _pods(figures: Figures, flavors: Iterable[str]) -> list[str]:
    return [number(figures.pods[name].hours) if name in figures.pods else "" for name in flavors]


def _all_time(bill: Bill) -> str:
    found = bill.conservation
    parts = ", ".join(f"{bucket} {found.percent[bucket]} %" for bucket in BUCKETS if found.weighed[bucket])
    units = counted(found.units, "device")
    return f"All device time, {number(hours(found.total))} h of {units}: {parts or 'none'}."
