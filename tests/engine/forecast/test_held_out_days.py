"""The days by which forecasts are judged: what their programs are like, and what those who know more than a controller make of them."""

from __future__ import annotations

import dataclasses
from math import exp
from statistics import median

import pytest
from msgspec.structs import replace

from fairlead.engine.forecast.forecast import GangForecast
from fairlead.engine.forecast.run_times import Draws
from fairlead.engine.plan.decide import Engine, decide
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.plan import Plan
from fairlead.history.facts.snapshot_file import dump, load
from tests.support.engine.objects import claim_spec, device_request, gang
from tests.support.forecast import held_out
from tests.support.forecast.days import FAILED_PART, Days, Program
from tests.support.forecast.held_out import HeldOut, Knows, Reality, Spans, Start
from tests.support.forecast.oracles import ExactRunTimes, ProgramRunTimes

CONTENDED = Days(seed=301, nodes=8, teams=4, load=1.2, days=0.75)
SMALL = Days(seed=7, nodes=4, teams=2, users=2, load=1.3, days=0.9)
PROGRAM = Program("ml", "train", 1, 1, 1000.0, 0.3, None, 0)


def request(name: str) -> GangRequest:
    return replace(gang(name, 1, claim_spec(device_request(1))), namespace="ml")


def test_who_knows_every_run_and_all_that_comes_is_hardly_off_and_who_knows_less_is(monkeypatch: pytest.MonkeyPatch):
    """So what a forecast is off by is what it does not know, and not how it simulates."""
    monkeypatch.setattr(held_out, "REFRESH_S", 7200.0)
    found = Reality(SMALL).play(
        seed=1, spans=Spans(0.1, 0.2, 0.4), calibrated=False, samples=4, knows=(Knows.HISTORY, Knows.ALL)
    )
    starts = found[Knows.ALL].starts
    assert len(starts) > 10
    assert len(starts) == len(found[Knows.HISTORY].starts)
    assert found[Knows.ALL].median_error(first=True) < 0.1
    assert found[Knows.HISTORY].median_error(first=True) > 0.3


def test_decisions_of_a_day_are_the_same_on_tables_that_are_kept_and_on_the_same_facts_anew(
    monkeypatch: pytest.MonkeyPatch,
):
    """What is remembered between decisions changes none, nor do forecasts that were played on the same tables in between."""
    monkeypatch.setattr(held_out, "REFRESH_S", 7200.0)
    made: list[int] = []

    reality = Reality(CONTENDED)

    def decided(snapshot: Snapshot, now: float) -> Plan:
        plan = Engine.decide(reality.engine, snapshot, now)
        anew = load(dump(snapshot, now))
        assert decide(anew.snapshot, anew.now) == plan, f"at {now}"
        made.append(len(plan.evictions))
        return plan

    monkeypatch.setattr(reality.engine, "decide", decided)
    reality.play(seed=1, spans=Spans(0.7, 0.7, 0.71), calibrated=False, samples=1)
    assert len(made) > 100
    assert sum(made) > 5


def test_first_forecasts_are_told_apart_by_what_the_wait_began_with():
    said = GangForecast(150.0, 200.0, "")
    submitted = [Start("ml/a", 100.0, 102.0, said, 0.0, first=True)] * 3
    evicted = [Start("ml/b", 600.0, 5000.0, said, 0.0, first=True)] * 2
    days = HeldOut(starts=[*submitted, *evicted])
    assert days.median_error(first=True, evicted=False) == days.median_error(first=True) == 0.5
    assert days.median_error(first=True, evicted=True) == 0.75


def test_draws_from_a_program_have_its_distribution():
    times = ProgramRunTimes([PROGRAM], failing=0.0)
    drawn = sorted(times.ends_at(request("train-1"), 0.0, 0.0, Draws(1, n), ends_by=None) for n in range(800))
    assert drawn[400] == pytest.approx(1000.0, rel=0.05)
    assert drawn[728] == pytest.approx(1000.0 * exp(1.34 * 0.3), rel=0.06)
    later = [times.ends_at(request("train-1"), 0.0, 1500.0, Draws(1, n), ends_by=None) for n in range(80)]
    assert min(later) > 1500.0
    assert median(later) < 2000.0
    assert times.ends_at(request("train-1"), 0.0, 0.0, Draws(1, 0), ends_by=10.0) == 10.0
    failing = ProgramRunTimes([PROGRAM], failing=0.5)
    short = [failing.ends_at(request("train-1"), 0.0, 0.0, Draws(1, n), ends_by=None) for n in range(400)]
    assert 0.4 < sum(each < 3 * FAILED_PART * 1000.0 for each in short) / 400 < 0.6


def test_a_run_that_is_known_ends_when_it_ends_and_one_that_is_not_is_drawn():
    each = SMALL.submissions()[0]
    times = ExactRunTimes([each], SMALL.programs(), failing=0.0)
    known = replace(request(each.name), namespace=each.program.namespace)
    assert times.ends_at(known, 100.0, 150.0, Draws(1, 0), ends_by=None) == 100.0 + each.run_s
    to_come = replace(known, name=f"{each.name}~0-1")
    assert len({times.ends_at(to_come, 100.0, 150.0, Draws(1, n), ends_by=None) for n in range(4)}) == 4


def test_programs_that_report_leave_the_days_else_as_they_were():
    plain, reporting = SMALL.submissions(), dataclasses.replace(SMALL, reporting=0.5).submissions()
    assert [(each.at, each.name, each.run_s) for each in plain] == [
        (each.at, each.name, each.run_s) for each in reporting
    ]
    assert {each.program.reports for each in reporting} == {True, False}
    assert not any(each.program.reports for each in plain)
    off = sorted(each.said for each in reporting)
    assert off[len(off) // 2] == pytest.approx(1.0, rel=0.1)
    assert off[0] < 0.9
    assert off[-1] > 1.1


def test_steady_programs_have_one_spread_and_the_others_another():
    programs = Days(seed=3, spreads=(0.1, 0.6), steady=0.7).programs()
    assert {each.spread for each in programs} == {0.1, 0.6}
