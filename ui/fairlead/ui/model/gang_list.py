"""The page of gangs: which are shown, in which order, and what there is to choose from; pure.

Lines are kept from one reading to the next: one is made again when its gang changed, or when it is shown. Order, filters and counts do
not depend on the time, so they are made of lines as old as their gangs. Ages and forecasts do: `fresh` has them as of the facts. What
gangs hold is counted for those of the page, and for all where it orders them. Finished gangs are a list of their own unless they were chosen.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import urlencode

from fairlead.kube.resources import Raw
from fairlead.ui.model import plain_pods
from fairlead.ui.model.facts import Facts
from fairlead.ui.model.gang_devices import Held
from fairlead.ui.model.gangs import PHASES, Line, line, order_key

PAGE_SIZE = 100
_PAGE = re.compile(r"[1-9][0-9]{0,8}")
Sort = Literal["line", "name", "age", "waited", "size", "queue"]
SORTS: tuple[Sort, ...] = get_args(Sort)
ORDERS = (*SORTS, "gpus", "idle")  # of the page, which knows what gangs hold
LARGEST_FIRST = frozenset({"age", "waited", "size", "gpus", "idle"})
_KEYS: Mapping[str, Callable[[Line], Any]] = {
    "name": lambda each: (each.namespace, each.name),
    "age": lambda each: (-each.age_s, each.namespace, each.name),
    "waited": lambda each: (-(each.waited_s or 0.0), each.namespace, each.name),
    "size": lambda each: (-each.size, each.namespace, each.name),
    "queue": lambda each: (each.queue, each.position or sys.maxsize, each.namespace, each.name),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was chosen; "" is everything. `text` is looked for in names and in the reason. `sort`: one of `ORDERS`, with a `-` before it for
    the other way round.
    """

    namespace: str = ""
    queue: str = ""
    phase: str = ""
    text: str = ""
    sort: str = "line"
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Choice:
        """The choice in a URL's query. Raises ValueError that names the field, the value and what may stand there."""
        sort, page = query.get("sort") or "line", query.get("page") or "1"
        if sort.removeprefix("-") not in ORDERS:
            there_is = f"there is {', '.join(ORDERS)}, each with a - before it for the other way round"
            raise ValueError(f"sort: {sort[:40]!r}: {there_is}")
        phase = query.get("phase") or ""
        if phase and phase not in PHASES:
            raise ValueError(f"phase: {phase!r}: there is {', '.join(PHASES)}")
        if not _PAGE.fullmatch(page):
            raise ValueError(f"page: {page[:20]!r}: a number from 1 up")
        chosen = {name: (query.get(name) or "").strip() for name in ("namespace", "queue", "text")}
        return cls(**chosen, phase=phase, sort=sort, page=int(page))

    def query(self, **changed: Any) -> str:
        """The choice as a URL's query, "" where everything is chosen."""
        fields = {
            name: getattr(replace(self, **changed), name)
            for name in ("namespace", "queue", "phase", "text", "sort", "page")
        }
        kept = {name: value for name, value in fields.items() if value not in {"", 1, "line"}}
        return f"?{urlencode(kept)}" if kept else ""

    def turned(self, sort: str) -> str:
        """The query with that order, or the other way round where it is in that order; from the first page on."""
        return self.query(sort=f"-{sort}" if self.sort == sort else sort, page=1)

    def direction(self, sort: str) -> str:
        """As aria-sort has it; "" where another order was chosen."""
        if self.sort.removeprefix("-") != sort:
            return ""
        return "descending" if (sort in LARGEST_FIRST) != self.sort.startswith("-") else "ascending"

    @staticmethod
    def key(sort: str) -> Callable[[Line], Any] | None:
        """What lines are sorted by; None for the order in which they are."""
        return _KEYS.get(sort)

    @property
    def chooses(self) -> bool:
        """Whether it may leave any out."""
        return bool(self.namespace or self.queue or self.phase or self.text)

    def takes(self, each: Line) -> bool:
        text = self.text.casefold()
        return (
            (not self.namespace or each.namespace == self.namespace)
            and (not self.queue or each.queue == self.queue)
            and (not self.phase or each.phase == self.phase)
            and (
                not text
                or any(
                    text in said.casefold() for said in (each.namespace, each.name, each.queue, each.reason, each.why)
                )
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GangList:
    """`lines` are those of the page, `listed` how many all its pages have; `finished` as many as a page has of `ended`, the others.

    `found` are all that were chosen, with ages as of when their gangs changed last. `held`: of those that are shown, by namespace/name.
    """

    choice: Choice
    lines: tuple[Line, ...]
    listed: int
    finished: tuple[Line, ...]
    ended: int
    found: tuple[Line, ...]
    held: Mapping[str, Held]
    total: int
    pages: int
    phases: Mapping[str, int]  # of all, by phase, in the order of phases
    queues: tuple[str, ...]
    namespaces: tuple[str, ...]
    fresh: Callable[[Line], Line]

    @property
    def first(self) -> int:
        """The number of the page's first line, from 1 up."""
        return (self.choice.page - 1) * PAGE_SIZE + 1

    def all_fresh(self) -> Iterable[Line]:
        """All that were chosen, with ages as of the page's."""
        return map(self.fresh, self.found)


def gang_list(
    all_lines: GangLines, choice: Choice, *, now: float, held: Callable[[Collection[str]], Mapping[str, Held]]
) -> GangList:
    """A page beyond the last is the last. `now`: unix seconds; ages of the page's lines are as of then. `held`: of gangs, by namespace/name."""
    every = all_lines.every
    found = every if not choice.chooses else tuple(each for each in every if choice.takes(each))
    found = _sorted(found, choice.sort, held)
    listed, ended = found, tuple[Line, ...]()
    if not choice.phase:
        listed = tuple(each for each in found if each.phase != "Finished")
        ended = tuple(each for each in found if each.phase == "Finished")
    pages = max(1, -(-len(listed) // PAGE_SIZE))
    choice = replace(choice, page=min(choice.page, pages))
    first = (choice.page - 1) * PAGE_SIZE
    fresh = partial(all_lines.fresh, now=now)
    lines = tuple(fresh(each) for each in listed[first : first + PAGE_SIZE])
    return GangList(
        choice=choice,
        lines=lines,
        listed=len(listed),
        finished=tuple(fresh(each) for each in ended[:PAGE_SIZE]),
        ended=len(ended),
        found=found,
        held=held(frozenset(map(_id, lines))),
        total=len(every),
        pages=pages,
        phases=all_lines.phases,
        queues=all_lines.queues,
        namespaces=all_lines.namespaces,
        fresh=fresh,
    )


def _sorted(
    found: tuple[Line, ...], sort: str, held: Callable[[Collection[str]], Mapping[str, Held]]
) -> tuple[Line, ...]:
    by = sort.removeprefix("-")
    key = _KEYS.get(by)
    if by in {"gpus", "idle"}:
        holds = held(frozenset(map(_id, found)))

        def key(each: Line) -> Any:
            has = holds.get(_id(each), Held(0, 0))
            return -((has.idle or 0) if by == "idle" else has.devices), each.namespace, each.name

    kept = found if key is None else tuple(sorted(found, key=key))
    return kept[::-1] if sort.startswith("-") else kept


def _id(each: Line) -> str:
    return f"{each.namespace}/{each.name}"


@dataclass(frozen=True, eq=False)
class GangLines:
    """`every`: in the order of `fairlead gangs -A`. `made_of`: the Gang of each, by namespace and name, or the pod (True)."""

    every: tuple[Line, ...]
    made_of: Mapping[tuple[str, str], tuple[Raw, bool]]

    def fresh(self, known: Line, *, now: float) -> Line:
        raw, is_pod = self.made_of[known.namespace, known.name]
        return plain_pods.line(raw, now=now) if is_pod else line(raw, now=now)

    @cached_property
    def phases(self) -> Mapping[str, int]:
        """How many there are of each phase, in the order of phases."""
        counts = Counter(each.phase for each in self.every)
        return {phase: counts[phase] for phase in PHASES if counts[phase]}

    @cached_property
    def queues(self) -> tuple[str, ...]:
        return tuple(sorted({each.queue for each in self.every if each.queue}))

    @cached_property
    def namespaces(self) -> tuple[str, ...]:
        return tuple(sorted({each.namespace for each in self.every}))


class LineMemory:
    """The lines of one cluster's gangs as they were last, for viewers of the same rights."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Entry] = {}
        self._facts: Facts | None = None
        self._lines: GangLines | None = None

    def of(self, facts: Facts) -> GangLines:
        before = self._facts
        self._facts = facts
        if self._lines is not None and before is not None and before.gangs is facts.gangs and before.pods is facts.pods:
            return self._lines
        found: dict[tuple[str, str], _Entry] = {}
        plain = filter(plain_pods.is_plain, facts.pods)
        for raw, is_pod in (*((gang, False) for gang in facts.gangs), *((pod, True) for pod in plain)):
            key = (raw["metadata"].get("namespace", ""), raw["metadata"]["name"])
            if is_pod and key in found:
                continue
            entry = self._known.get(key)
            if entry is None or entry.raw is not raw:
                made = (plain_pods.line if is_pod else line)(raw, now=facts.at)
                entry = _Entry(raw, made, order_key(made), is_pod)
            found[key] = entry
        self._known = found
        self._lines = GangLines(
            every=tuple(each.line for each in sorted(found.values(), key=lambda each: each.order)),
            made_of={key: (each.raw, each.is_pod) for key, each in found.items()},
        )
        return self._lines


class _Entry(NamedTuple):
    raw: Raw
    line: Line
    order: tuple[int, int, str, str]
    is_pod: bool
