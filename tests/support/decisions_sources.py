"""Where decisions come from: named cases, each a run that follows from its name alone.

A source is a function from the directories with data that are not part of this repository to its cases; None says that what it
needs is not there. A case's name begins with its source's and has no blanks. Cases are independent of one another and of their
order. Those marked quick need nothing outside the repository and take seconds together.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.queues import reclaim, replay
from fairlead.engine.plan.decide import decide
from tests.support import decisions_claims as claims
from tests.support import decisions_clusters as clusters
from tests.support import decisions_traces as traces
from tests.support import quick_yaml
from tests.support.engine.case import snapshot_of
from tests.support.engine.scenario import Scenario

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "tests" / "engine" / "scenarios"
TRACE_SEEDS = (42, 43, 44, 45)
CLAIMS = (40, 500)  # cases, and allocations of each
SOAK_DAYS = 2
VECTORS_PER_CASE = 100


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


def scenarios() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each with the name of its table."""
    for path in sorted(TABLES.glob("*.yaml")):
        for body in quick_yaml.load(path.read_text(encoding="utf-8")):
            yield path.stem, body


def scenario_case(table: str, name: str) -> str:
    return f"scenarios/{table}/{_slug(name)}"


def _scenarios(_data: Data) -> Iterator[Case]:
    for table, body in scenarios():
        yield Case(scenario_case(table, body["name"]), partial(_scenario, body), quick=True)


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
        for seed in range(kind.seeds):
            run = partial(clusters.live, kind, seed)
            yield Case(f"clusters/{kind.name}-{seed:02}", run, quick=seed == 0 and kind.name != "large")


def _claims(_data: Data) -> Iterator[Case]:
    cases, each = CLAIMS
    yield Case("claims/few", partial(claims.decide_many, -1, 100), quick=True)
    for seed in range(cases):
        yield Case(f"claims/{seed:02}", partial(claims.decide_many, seed, each))


def _soak(_data: Data) -> Iterator[Case]:
    yield Case("soak/day", partial(_live_on, 11, 0.1), quick=True)
    yield Case("soak/days", partial(_live_on, 7, SOAK_DAYS))


def _live_on(seed: int, days: float) -> None:
    from tests.engine.test_soak import Soak

    Soak(seed).run(days)


def _allocation(data: Data) -> Iterator[Case] | None:
    """Allocations that a real Kubernetes judged."""
    paths = sorted(data.vectors.glob("allocation*.jsonl.gz"))
    return _allocation_cases(paths) if paths else None


def _allocation_cases(paths: Sequence[Path]) -> Iterator[Case]:
    for path in paths:
        with gzip.open(path, "rb") as file:
            lines = list(file)
        for start in range(0, len(lines), VECTORS_PER_CASE):
            run = partial(_decide_vectors, lines[start : start + VECTORS_PER_CASE])
            yield Case(f"allocation/{path.name.partition('.')[0]}-{start:04}", run)


def _decide_vectors(lines: Sequence[bytes]) -> None:
    for line in lines:
        decide(snapshot_of(json.loads(line)), 0.0)


def _fairshare(data: Data) -> Iterator[Case] | None:
    """What other schedulers' own tests expect, as far as that takes whole decisions."""
    paths = sorted(data.vectors.glob("fairshare*.json"))
    return _fairshare_cases(paths) if paths else None


def _fairshare_cases(paths: Sequence[Path]) -> Iterator[Case]:
    from tests.conformance import test_fairshare as conformance

    for path in paths:
        for case in json.loads(path.read_text(encoding="utf-8"))["vectors"]:
            if case["kind"] == "kueue_fair_preemption" and conformance._differs(case) is None:
                run = partial(conformance.test_the_numbers_are_the_published_ones, case)
                yield Case(f"fairshare/{_slug(str(case['id']))}", run)


def _benchmarks(_data: Data) -> Iterator[Case]:
    yield Case("benchmarks/kueue-baseline", partial(replay.replay, replay.BASELINE))
    yield Case("benchmarks/reclaim", reclaim.reclaim_figures)


SOURCES: dict[str, Callable[[Data], Iterator[Case] | None]] = {
    "scenarios": _scenarios,
    "traces": _traces,
    "clusters": _clusters,
    "claims": _claims,
    "soak": _soak,
    "benchmarks": _benchmarks,
    "allocation": _allocation,
    "fairshare": _fairshare,
    "openb": _openb,
}


def selected(only: str, data: Data) -> tuple[list[Case], list[str]]:
    """The cases of `full`, `quick`, a source, or those whose names begin so; and the sources whose data are not there.

    Raises KeyError for a source that does not exist.
    """
    names: Sequence[str] = list(SOURCES) if only in {"full", "quick"} else [only.partition("/")[0]]
    found: list[Case] = []
    absent: list[str] = []
    for name in names:
        cases = SOURCES[name](data)
        if cases is None:
            absent.append(name)
            continue
        found += [case for case in cases if is_selected(case, only)]
    return found, absent if only != "quick" else []


def is_selected(case: Case, only: str) -> bool:
    if only in {"full", "quick"}:
        return case.quick or only == "full"
    return case.name.startswith(only if "/" in only else f"{only}/")


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
