"""Every allocation that a real Kubernetes judged is judged alike, through `decide`: one test per recorded case.

Allocated exactly when the record says so, and then valid by a judge that shares no code with the allocator, with the same
alternatives of `firstAvailable`. Where the record is an error, a reason is given and no failing device is used.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from fairlead.engine.plan.decide import decide
from tests.support.engine.case import snapshot_of
from tests.support.engine.judge import faults
from tests.support.engine.objects import plain_json


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    directory: Path = metafunc.config.getoption("--vectors")
    cases = []
    for path in sorted(directory.glob("allocation*.jsonl.gz")) if directory.is_dir() else ():
        with gzip.open(path, "rb") as lines:
            for index, line in enumerate(lines):
                cases.append(pytest.param(line, id=f"{path.name.partition('.')[0]}-{index}"))
    if not cases:
        skip = pytest.mark.skip(reason=f"no allocation*.jsonl.gz in {directory}; pass --vectors DIR")
        cases = [pytest.param(b"", id="absent", marks=skip)]
    metafunc.parametrize("line", cases)


def _alternatives(results: list[dict[str, Any]]) -> set[str]:
    return {result["request"] for result in results if "/" in result["request"]}


@pytest.mark.one_in(4)
def test_the_allocation_is_the_one_that_kubernetes_should_give(line: bytes) -> None:
    case = json.loads(line)
    expect = case["expect"]
    plan = decide(snapshot_of(case), 0.0)
    if not plan.admissions:
        assert str(plan.waiting[0].reason)
        assert expect["result"] != "allocated", plan.waiting[0].reason
        return
    assert expect["result"] != "unallocatable", plan.admissions
    answers = {claim.key: plain_json(claim.allocation) for claim in plan.admissions[0].claims}
    wrong = faults(
        nodes=[case["node"]],
        classes=case["classes"],
        slices=case["slices"],
        answers=[
            (claim, case["node"]["metadata"]["name"], answers[claim["metadata"]["uid"]]) for claim in case["claims"]
        ],
        allocated=case["allocated"],
        consumed=case["consumed"],
    )
    assert not wrong
    for claim, recorded in zip(case["claims"], expect.get("results", ()), strict=False):
        got = answers[claim["metadata"]["uid"]]["devices"]["results"]
        assert _alternatives(got) == _alternatives(recorded["devices"].get("results") or [])
