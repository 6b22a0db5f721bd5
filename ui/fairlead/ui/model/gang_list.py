"""The page of gangs: which are shown, in which order, and what there is to choose from; pure."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args
from urllib.parse import urlencode

from fairlead.ui.model import plain_pods
from fairlead.ui.model.facts import Facts
from fairlead.ui.model.gangs import PHASES, line, order
from fairlead.ui.model.line import Line

PAGE_SIZE = 100
_PAGE = re.compile(r"[1-9][0-9]{0,8}")
Sort = Literal["line", "name", "age", "size", "queue"]
SORTS: tuple[Sort, ...] = get_args(Sort)
_KEYS: Mapping[Sort, Callable[[Line], Any]] = {
    "name": lambda each: (each.namespace, each.name),
    "age": lambda each: (-each.age_s, each.namespace, each.name),
    "size": lambda each: (-each.size, each.namespace, each.name),
    "queue": lambda each: (each.queue, each.position or sys.maxsize, each.namespace, each.name),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was chosen; "" is everything. `text` is looked for in names and in the reason."""

    namespace: str = ""
    queue: str = ""
    phase: str = ""
    text: str = ""
    sort: Sort = "line"
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Choice:
        """From a URL's query. Raises ValueError that names the field, the value and what may stand there."""
        sort, page = query.get("sort") or "line", query.get("page") or "1"
        if sort not in SORTS:
            raise ValueError(f"sort: {sort!r}: there is {', '.join(SORTS)}")
        phase = query.get("phase") or ""
        if phase and phase not in PHASES:
            raise ValueError(f"phase: {phase!r}: there is {', '.join(PHASES)}")
        if not _PAGE.fullmatch(page):
            raise ValueError(f"page: {page[:20]!r}: a number from 1 up")
        chosen = {name: (query.get(name) or "").strip() for name in ("namespace", "queue", "text")}
        return cls(**chosen, phase=phase, sort=next(each for each in SORTS if each == sort), page=int(page))

    def query(self, **changed: Any) -> str:
        """As a URL's query, "" where everything is chosen."""
        fields = {
            name: getattr(replace(self, **changed), name)
            for name in ("namespace", "queue", "phase", "text", "sort", "page")
        }
        kept = {name: value for name, value in fields.items() if value not in {"", 1, "line"}}
        return f"?{urlencode(kept)}" if kept else ""

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
    """`lines` are those of the page, `found` all that were chosen."""

    choice: Choice
    lines: tuple[Line, ...]
    found: tuple[Line, ...]
    total: int
    pages: int
    phases: Mapping[str, int]  # of all, by phase, in the order of phases
    queues: tuple[str, ...]
    namespaces: tuple[str, ...]

    @property
    def first(self) -> int:
        """The number of the page's first line, from 1 up."""
        return (self.choice.page - 1) * PAGE_SIZE + 1


def lines(facts: Facts) -> list[Line]:
    """As `fairlead gangs -A -o json` has them."""
    found = [line(raw, now=facts.at) for raw in facts.gangs]
    return order([*found, *plain_pods.lines(facts.pods, facts.gangs, now=facts.at)])


def gang_list(every: Sequence[Line], choice: Choice) -> GangList:
    """A page beyond the last is the last."""
    found = [each for each in every if choice.takes(each)]
    if choice.sort in _KEYS:
        found.sort(key=_KEYS[choice.sort])
    pages = max(1, -(-len(found) // PAGE_SIZE))
    choice = replace(choice, page=min(choice.page, pages))
    counts = Counter(each.phase for each in every)
    first = (choice.page - 1) * PAGE_SIZE
    return GangList(
        choice=choice,
        lines=tuple(found[first : first + PAGE_SIZE]),
        found=tuple(found),
        total=len(every),
        pages=pages,
        phases={phase: counts[phase] for phase in PHASES if counts[phase]},
        queues=tuple(sorted({each.queue for each in every if each.queue})),
        namespaces=tuple(sorted({each.namespace for each in every})),
    )
