"""Decisions of a day by which forecasts are judged."""

from __future__ import annotations

import pytest

from fairlead.engine.plan.decide import Engine, decide
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.plan import Plan
from fairlead.history.facts.snapshot_file import dump, load
from tests.support.forecast import held_out
from tests.support.forecast.days import Days
from tests.support.forecast.held_out import Reality, Spans

CONTENDED = Days(seed=301, nodes=8, teams=4, load=1.2, days=0.75)


@pytest.mark.slow
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
