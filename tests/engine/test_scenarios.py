"""The scenario tables: each is run, and each is listed in the docs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairlead.api import names
from fairlead.api.drivers import NVIDIA
from tests.support import quick_yaml
from tests.support.engine.scenario import Scenario

HERE = Path(__file__).resolve().parent
TABLES = {
    path.stem: quick_yaml.load(path.read_text(encoding="utf-8")) for path in sorted((HERE / "scenarios").glob("*.yaml"))
}
CASES = [(f"{table}: {body['name']}", body) for table, bodies in TABLES.items() for body in bodies]


@pytest.mark.parametrize("driver", [names.DRIVER, NVIDIA])
@pytest.mark.parametrize("body", [pytest.param(body, id=name) for name, body in CASES])
def test_it_goes_as_the_table_says(body: dict[str, Any], driver: str):
    """With devices as our driver publishes them, and as NVIDIA's does."""
    assert not (faults := Scenario(body, driver).check()), f"{body['name']}:\n" + "\n".join(faults)


def test_there_are_enough_of_them_and_no_two_have_one_name():
    assert len(CASES) >= 60
    assert len({name for name, _ in CASES}) == len(CASES)


def test_the_pages_list_every_scenario_and_no_other():
    pages = sorted((HERE.parents[1] / "docs").glob("scenarios*.md"))
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
