"""The lines of all gangs, kept from one reading to the next: a line is made again when its gang changed, or when it is shown; pure.

Order, filters and counts do not depend on the time, so they are made of lines as old as their gangs. Ages and forecasts do: `fresh` has
them as of the facts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from fairlead.kube.resources import Raw
from fairlead.ui.model import plain_pods
from fairlead.ui.model.facts import Facts
from fairlead.ui.model.gangs import PHASES, line, order_key
from fairlead.ui.model.line import Line


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
        for raw in facts.gangs:
            meta = raw["metadata"]
            key = (meta.get("namespace", ""), meta["name"])
            entry = self._known.get(key)
            if entry is None or entry.raw is not raw:
                entry = _entry(raw, line(raw, now=facts.at), is_pod=False)
            found[key] = entry
        for raw in filter(plain_pods.is_plain, facts.pods):
            meta = raw["metadata"]
            key = (meta["namespace"], meta["name"])
            if key in found:
                continue
            entry = self._known.get(key)
            if entry is None or entry.raw is not raw:
                entry = _entry(raw, plain_pods.line(raw, now=facts.at), is_pod=True)
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


def _entry(raw: Raw, made: Line, *, is_pod: bool) -> _Entry:
    return _Entry(raw, made, order_key(made), is_pod)
