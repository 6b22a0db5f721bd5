"""Fair share agrees with the numbers of public schedulers' own tests: one test per recorded case.

What is compared: water-filling division (`kai_division`), the same with past use (`derived_time_based`), half-life decay
(`kueue_afs_decay`). Kinds about victims and about other projects' formulas are skipped until the queues need them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairlead.controller.fairshare import Claimant, divide
from fairlead.controller.fairshare_usage import decayed

_LATER = {
    "kai_reclaim": "reclaim is not built yet",
    "kueue_fair_preemption": "preemption is not built yet",
    "kueue_drs": "Kueue's dominant resource share: our order has its own measure until reclaim needs one",
    "kueue_afs_usage": "entry penalties are not built yet",
    "slurm_fair_tree": "shares of users within a queue are not built",
    "volcano_hdrf_stated": "hierarchical DRF is not built",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    directory: Path = metafunc.config.getoption("--vectors")
    cases = []
    for path in sorted(directory.glob("fairshare*.json")) if directory.is_dir() else ():
        for case in json.loads(path.read_text())["vectors"]:
            later = _LATER.get(case["kind"])
            marks = [pytest.mark.skip(reason=later)] if later else []
            cases.append(pytest.param(case, id=f"{path.stem}-{case['id']}", marks=marks))
    if not cases:
        skip = pytest.mark.skip(reason=f"no fairshare*.json in {directory}; pass --vectors DIR")
        cases = [pytest.param({}, id="absent", marks=skip)]
    metafunc.parametrize("case", cases)


def _unbounded(value: float) -> float | None:
    return None if value == -1 else value


def test_the_numbers_are_the_published_ones(case: dict[str, Any]) -> None:
    inputs, expected = case["inputs"], case["expected"]
    if case["kind"] == "kueue_afs_decay":
        consumed = 0.0
        for _ in range(inputs["samples"]):
            consumed = decayed(
                consumed, inputs["constant_usage"], elapsed_s=inputs["sample_s"], half_life_s=inputs["half_life_s"]
            )
        assert consumed == pytest.approx(expected["consumed"], abs=expected["tolerance"])
        return
    if case["kind"] not in {"kai_division", "derived_time_based"}:
        pytest.skip(f"kind {case['kind']} is unknown here")
    queues = [
        Claimant(
            name=queue["name"],
            demand=queue["request"],
            deserved=_unbounded(queue["deserved"]),
            limit=_unbounded(queue["limit"]),
            weight=queue["weight"],
            priority=queue["priority"],
            usage=queue.get("usage", 0),
        )
        for queue in inputs["queues"]
    ]
    shares, left = divide(inputs["total"], queues, k=inputs["k"])
    got = {queue.name: float(share) for queue, share in zip(queues, shares, strict=True)}
    assert got == pytest.approx(expected["fair_share"])
    if "remaining" in expected:
        assert float(left) == pytest.approx(expected["remaining"])
