"""The scenario tables: each is run, decides what was recorded of it, and is listed in the docs."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.api.drivers import NVIDIA
from tests.support import decisions, quick_yaml
from tests.support.decisions_sources import ROOT, Case, scenario_case, scenarios
from tests.support.engine.scenario import Scenario

CASES = list(scenarios())
NAMES = [f"{table}: {body['name']}" for table, body in CASES]


@pytest.fixture(scope="module")
def recorded() -> decisions.Records:
    return decisions.read(decisions.RECORD)


@pytest.mark.parametrize(("table", "body"), CASES, ids=NAMES)
def test_it_goes_as_the_table_says_and_as_recorded(table: str, body: dict[str, Any], recorded: decisions.Records):
    """With devices as our driver publishes them. `make decisions RECORD=1 ONLY=scenarios` records what changed."""
    faults: list[str] = []
    case = Case(scenario_case(table, body["name"]), lambda: faults.extend(Scenario(body).check()))
    how, _ = decisions.difference(case, recorded.get(case.name))
    assert not faults, f"{body['name']}:\n" + "\n".join(faults)
    assert how is None, f"{case.name} {how}"


@pytest.mark.parametrize("body", [body for _, body in CASES], ids=NAMES)
def test_it_goes_so_with_devices_as_nvidias_driver_publishes_them(body: dict[str, Any]):
    assert not (faults := Scenario(body, NVIDIA).check()), f"{body['name']}:\n" + "\n".join(faults)


def test_there_are_enough_of_them_and_no_two_have_one_name():
    assert len(CASES) >= 60
    assert len(set(NAMES)) == len(NAMES)


def test_the_pages_list_every_scenario_and_no_other():
    pages = sorted((ROOT / "docs").glob("scenarios*.md"))
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    listed = [line for line in lines if line.startswith("| ") and not line.startswith("| scenario |")]
    assert sorted(listed) == sorted(f"| {body['name']} | {body['shows']} |" for _, body in CASES)


def test_a_fault_names_the_step_and_what_was_wanted():
    body = {
        "name": "wrong",
        "steps": [{"at": 0, "submit": {"a": {"gpus": 9}}, "admitted": ["a"]}],
    }
    faults = Scenario(body).check()
    assert any("step 0 (at 0 s): admitted [], wanted ['a']" in fault for fault in faults)


def test_a_word_that_is_never_read_is_a_fault():
    """`on`, unquoted, is True in YAML: what scenarios wanted under it went unchecked for long."""
    body = quick_yaml.load("{name: wrong, steps: [{at: 0, on: {}, submit: {a: {gpu: 9}}, evicted: {b: {how: x}}}]}")
    faults = [fault for fault in Scenario(body).check() if "no word" in fault]
    assert [fault.partition(" is no word")[0] for fault in faults] == [
        "step 0: True",
        "step 0: gang a: 'gpu'",
        "step 0: eviction of b: 'how'",
    ]
