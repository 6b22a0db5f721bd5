"""Decisions are what they were when they were recorded, to the byte; and the comparison finds every kind of difference."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from fairlead.engine.types.plan import Admission, Plan
from tests.support import decisions
from tests.support import decisions_sources as sources
from tests.support.decisions_recorder import instead
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


def _another_message(plan: Plan) -> Plan:
    waiting = [replace(entry, reason=replace(entry.reason, message="because")) for entry in plan.waiting]
    return replace(plan, waiting=tuple(waiting))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """One source with one case, and one whose data are not there."""
    monkeypatch.setattr(sources, "SOURCES", {"test": lambda _data: iter([CASE]), "absent": lambda _data: None})


def altered(change: Callable[[Plan], Plan]) -> AbstractContextManager[None]:
    """Meanwhile, every decision is changed in some way before it is returned."""

    def made(original: Callable[..., Plan]) -> Callable[..., Plan]:
        return lambda *args, **more: change(original(*args, **more))

    return instead(made)


@pytest.mark.parametrize("source", sorted(QUICK - {"scenarios"}))
def test_the_quick_decisions_are_those_that_were_recorded(source: str):
    """Those of the scenarios are compared where these are tried: test_scenarios."""
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
