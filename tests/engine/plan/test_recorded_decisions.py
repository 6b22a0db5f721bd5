"""Decisions are what they were when they were recorded, to the byte; and the comparison finds every kind of difference."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from fairlead.engine.plan import decide as entrance
from fairlead.engine.types.plan import Admission, Plan
from tests.support import decisions
from tests.support import decisions_sources as sources
from tests.support.decisions_recorder import instead, record
from tests.support.decisions_sources import Case, Data, selected
from tests.support.engine.objects import claim_spec, device_request, gang
from tests.support.engine.world import h100_world

QUICK = {"scenarios", "traces", "clusters", "claims", "soak"}
NOWHERE = Data(Path("/nowhere"), Path("/nowhere"))


def _two_nodes() -> None:
    """Four decisions: two gangs land, one waits."""
    world = h100_world(2)
    gangs = [gang(f"job{number}", 2, claim_spec(device_request(4)), created=float(number)) for number in range(3)]
    plan = world.decide(*gangs)
    left = world.carry_out(plan, gangs)
    for _ in range(3):
        world.now += 1.0
        world.decide(*left)


CASE = Case("test/two-nodes", _two_nodes)


def _swapped(admission: Admission) -> Admission:
    """With the devices of its first two claims in each other's place."""
    first, second, *rest = admission.claims
    claims = (
        structs.replace(first, allocation=second.allocation),
        structs.replace(second, allocation=first.allocation),
        *rest,
    )
    return structs.replace(admission, claims=claims)


def _swap_devices(plan: Plan) -> Plan:
    return replace(plan, admissions=tuple(_swapped(entry) for entry in plan.admissions))


def _another_order(plan: Plan) -> Plan:
    return replace(plan, admissions=plan.admissions[::-1])


def _another_message(plan: Plan) -> Plan:
    waiting = [replace(entry, reason=replace(entry.reason, message="because")) for entry in plan.waiting]
    return replace(plan, waiting=tuple(waiting))


def _another_moment(plan: Plan) -> Plan:
    return replace(plan, due=17.0)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """One source with one case, and one whose data are not there."""
    monkeypatch.setattr(sources, "SOURCES", {"test": lambda _data: iter([CASE]), "absent": lambda _data: None})


def altered(change: Callable[[Plan], Plan]) -> AbstractContextManager[None]:
    """Meanwhile, every decision is changed in some way before it is returned."""

    def made(original: Callable[..., Plan]) -> Callable[..., Plan]:
        return lambda *args, **more: change(original(*args, **more))

    return instead(made)


@pytest.mark.parametrize("source", [name for name in sources.SOURCES if name in QUICK])
def test_the_quick_decisions_are_those_that_were_recorded(source: str):
    cases = [case for case in selected(source, NOWHERE)[0] if case.quick]
    known = decisions.read(decisions.RECORD)
    told: list[str] = []
    assert decisions.compare_all(cases, known, told.append) == [], "\n".join(told)
    assert cases


def test_the_quick_decisions_are_many():
    cases, _ = selected("quick", NOWHERE)
    known = decisions.read(decisions.RECORD)
    assert {case.name.partition("/")[0] for case in cases} == QUICK
    assert sum(known[case.name].count for case in cases) >= 3_000


def test_the_record_holds_all_that_can_be_run_here_and_enough_of_it():
    cases, _ = selected("full", NOWHERE)
    known = decisions.read(decisions.RECORD)
    assert {case.name for case in cases} <= known.keys()
    assert {name.partition("/")[0] for name in known} == set(sources.SOURCES)


@pytest.mark.usefixtures("small")
def test_recording_twice_gives_the_same_bytes(tmp_path: Path):
    files = [tmp_path / "first", tmp_path / "second"]
    for file in files:
        assert decisions.main(["record", str(file)]) == 0
    assert files[0].read_bytes() == files[1].read_bytes()
    assert decisions.read(files[0]).keys() == {CASE.name}


@pytest.mark.parametrize(
    ("change", "how"),
    [
        (_swap_devices, "differs"),
        (_another_order, "differs"),
        (_another_moment, "differs"),
        (_another_message, "differs in its texts only"),
    ],
)
def test_a_changed_plan_is_a_difference_that_names_the_case(change: Callable[[Plan], Plan], how: str):
    known = decisions.record_all([CASE], lambda _line: None)
    assert known[CASE.name].count == 4
    told: list[str] = []
    assert decisions.compare_all([CASE], known, told.append) == []
    with altered(change):
        assert decisions.compare_all([CASE], known, told.append) == [CASE.name]
    assert told == [f"same: {CASE.name} (4)", f"{how}: {CASE.name} (4)"]


def test_a_case_that_fails_or_is_unknown_is_a_difference():
    def fail() -> None:
        raise KeyError("gone")

    told: list[str] = []
    assert decisions.compare_all([replace(CASE, run=fail), CASE], {}, told.append) == [CASE.name, CASE.name]
    assert told == [f"failed: KeyError: 'gone': {CASE.name} (0)", f"is not in the record: {CASE.name} (4)"]


def test_decide_is_what_it_was_when_the_recording_has_ended():
    before = entrance.decide
    assert record(_two_nodes) == record(_two_nodes)
    assert entrance.decide is before


def test_a_line_that_is_no_record_is_named(tmp_path: Path):
    file = tmp_path / "record"
    file.write_text("a 1 b c\nbroken\n")
    with pytest.raises(ValueError, match="line 2: 'broken'"):
        decisions.read(file)


@pytest.mark.usefixtures("small")
def test_what_cannot_be_run_keeps_its_line_and_what_is_no_case_any_more_loses_it(tmp_path: Path):
    file = tmp_path / "record"
    file.write_text("absent/case 1 b c\ntest/of-old 1 b c\n")
    assert decisions.main(["compare", str(file)]) == 1
    assert decisions.main(["record", str(file)]) == 0
    assert decisions.read(file).keys() == {"absent/case", CASE.name}
    assert decisions.main(["compare", str(file)]) == 0


@pytest.mark.usefixtures("small")
def test_a_comparison_ends_with_exit_code_1_where_something_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "record"
    assert decisions.main(["record", str(file)]) == 0
    with altered(_another_message):
        assert decisions.main(["compare", str(file)]) == 1
    assert f"1 cases differ: {CASE.name}" in capsys.readouterr().out
    assert decisions.main(["compare", str(file), "--only", "typo"]) == 2


@pytest.mark.usefixtures("small")
def test_the_plans_of_one_case_can_be_written_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "plans.jsonl"
    assert decisions.main(["compare", str(tmp_path / "none"), "--dump", CASE.name, str(out)]) == 0
    assert f"4 decisions of {CASE.name}" in capsys.readouterr().out
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [len(line["decision"]["admissions"]) for line in lines] == [2, 0, 0, 0]
    assert lines[0]["texts"]["waiting"][0][0].endswith(".")
