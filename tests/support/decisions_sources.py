"""Where decisions come from: named cases, each a run that follows from its name alone.

A source is a function from the directories with data that are not part of this repository to its cases; None says that what it
needs is not there. A case's name begins with its source's and has no blanks. Cases are independent of one another and of their
order. Those marked quick need nothing outside the repository and take seconds together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from tests.support import decisions_clusters as clusters
from tests.support import decisions_traces as traces
from tests.support.engine.scenario import Scenario

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "tests" / "engine" / "scenarios"
SEEDS = 30  # of each kind of random cluster
SEEDS_LARGE = 6  # of kinds whose decisions take ten times as long
TRACE_SEEDS = (42, 43, 44, 45)


@dataclass(frozen=True, slots=True)
class Data:
    """Directories that may not be there."""

    vectors: Path
    traces: Path


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    run: Callable[[], object]
    quick: bool = False


def _scenarios(_data: Data) -> Iterator[Case]:
    for path in sorted(TABLES.glob("*.yaml")):
        for body in yaml.safe_load(path.read_text(encoding="utf-8")):
            yield Case(f"scenarios/{path.stem}/{_slug(body['name'])}", partial(_scenario, body), quick=True)


def _scenario(body: dict[str, Any]) -> None:
    Scenario(body).check()


def _traces(_data: Data) -> Iterator[Case]:
    yield Case("traces/small-0", traces.made_up(0, nodes=8, pods=120), quick=True)
    for seed in range(1, 5):
        yield Case(f"traces/small-{seed}", traces.made_up(seed, nodes=60, pods=500))


def _openb(data: Data) -> Iterator[Case] | None:
    if not traces.has_files(data.traces):
        return None
    return (Case(f"openb/seed-{seed}", traces.recorded(data.traces, seed)) for seed in TRACE_SEEDS)


def _clusters(_data: Data) -> Iterator[Case]:
    for kind in clusters.KINDS:
        for seed in range(SEEDS_LARGE if kind.name == "large" else SEEDS):
            run = partial(clusters.live, kind, seed)
            yield Case(f"clusters/{kind.name}-{seed:02}", run, quick=seed == 0 and kind.name != "large")


SOURCES: dict[str, Callable[[Data], Iterator[Case] | None]] = {
    "scenarios": _scenarios,
    "traces": _traces,
    "clusters": _clusters,
    "openb": _openb,
}


def selected(only: str, data: Data) -> tuple[list[Case], list[str]]:
    """The cases of a source, or of `full` or `quick`; and the sources among them whose data are not there.

    Raises KeyError for a source that does not exist.
    """
    names: Sequence[str] = list(SOURCES) if only in {"full", "quick"} else [only]
    found: list[Case] = []
    absent: list[str] = []
    for name in names:
        cases = SOURCES[name](data)
        if cases is None:
            absent.append(name)
            continue
        found += [case for case in cases if case.quick or only != "quick"]
    return found, absent if only != "quick" else []


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
