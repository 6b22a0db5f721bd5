"""Every device selector that a real Kubernetes judged is judged alike: one test per recorded case.

A `compile-error` must be found without a device; a `runtime-error` is told from `no-match`. Where the worst-case cost was
recorded, ours may differ in the number, but never in whether the API admits the selector.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.cel import COST_MAX, CompileError, DeviceView, compile_selector
from fairlead.kube.resource import Device


def _cases(directory: Path) -> list[Any]:
    cases = []
    for path in sorted(directory.glob("cel*.jsonl.gz")):
        with gzip.open(path, "rt") as lines:
            for number, line in enumerate(lines):
                case = json.loads(line)
                cases.append(pytest.param(case, id=f"{path.name.partition('.')[0]}-{case.get('name', number)}"))
    return cases


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        directory = metafunc.config.getoption("--vectors")
        cases = _cases(Path(directory))
        if not cases:
            reason = f"no cel*.jsonl.gz in {directory}; pass --vectors DIR"
            cases = [pytest.param(None, id="absent", marks=pytest.mark.skip(reason=reason))]
        metafunc.parametrize("case", cases)


def _judged(case: dict[str, Any]) -> tuple[str, str | None, int | None]:
    """The verdict, why, and the estimated cost."""
    device = {
        "name": "device",
        "attributes": case.get("attributes") or {},
        "capacity": case.get("capacity") or {},
        "allowMultipleAllocations": case.get("allowMultipleAllocations"),
    }
    try:
        selector = compile_selector(case["expression"])
    except CompileError as error:
        return "compile-error", str(error), None
    verdict = selector.verdict(DeviceView.of(case["driver"], msgspec.convert(device, Device)))
    return verdict.outcome.value, verdict.reason, selector.estimated_cost


@pytest.mark.one_in(4)
def test_cel_verdict_agrees(case: dict[str, Any]) -> None:
    outcome, reason, cost = _judged(case)
    assert outcome == case["expect"], (case["expression"], reason, case.get("message"))
    recorded = case.get("estimatedCost")
    if recorded is not None and cost is not None:
        assert (cost > COST_MAX) == (recorded > COST_MAX)
