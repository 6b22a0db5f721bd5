"""The days by which forecasts are judged: what their programs are like, and what those who know more than a controller make of them."""

from __future__ import annotations

import pytest

from fairlead.engine.plan.decide import Engine, decide
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.plan import Plan
from fairlead.history.facts.snapshot_file import dump, load
from tests.support.forecast import held_out
from tests.support.forecast.days import Days
from tests.support.forecast.held_out import Knows, Reality, Spans

CONTENDED = Days(seed=301, nodes=8, teams=4, load=1.2, days=0.75)
SMALL = Days(seed=7, nodes=4, teams=2, users=2, load=1.3, days=0.9)


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
