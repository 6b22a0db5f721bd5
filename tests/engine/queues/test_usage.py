"""What is remembered of past use: half of it after a half-life, through restarts, failovers and clocks that jump."""

from __future__ import annotations

import pytest

from fairlead.engine.queues.usage_history import GAP_MAX_S, WRITE_S, RememberedUsage, UsageHistory
from fairlead.engine.types.plan import FlavorTotal, FlavorUse, QueueUse
from fairlead.engine.types.settings import QueueSpec

DAY = 86_400.0
SPECS = (QueueSpec(name="a", uid="uid-a"), QueueSpec(name="b", uid="uid-b"))
TOTALS = (FlavorTotal(flavor="gpu", devices=10, total=10, allocated=0),)
NOTHING = {spec.uid: RememberedUsage(parts={}, at=0.0) for spec in SPECS}


def uses(**held: int) -> list[QueueUse]:
    return [
        QueueUse(
            name=name,
            flavors=(FlavorUse(flavor="gpu", used=count, demand=count, fair_share=count),),
            waiting=0,
            admitted=1,
        )
        for name, count in held.items()
    ]


def run(memory: UsageHistory, start: float, seconds: float, *, step: float = 300.0) -> float:
    """Ticks, as the loop does."""
    now = start
    while now < start + seconds:
        now += step
        memory.tick(now)
    return now


def past(memory: UsageHistory, now: float) -> dict[str, float]:
    return {spec.name: spec.past_usage.get("gpu", 0.0) for spec in memory.with_past_usage(SPECS, now)}


def begun(half_life_s: float = DAY, remembered: dict[str, RememberedUsage] = NOTHING) -> UsageHistory:
    memory = UsageHistory(half_life_s)
    memory.restore(remembered)
    return memory


def test_holding_half_of_the_cluster_for_a_half_life_counts_a_quarter():
    memory = begun()
    memory.note(SPECS, uses(a=5, b=0), TOTALS, 1000.0)
    now = run(memory, 1000.0, DAY)
    assert past(memory, now) == {"a": pytest.approx(0.25, abs=0.001), "b": 0.0}
    memory.note(SPECS, uses(a=0, b=0), TOTALS, now)
    now = run(memory, now, DAY)
    assert past(memory, now)["a"] == pytest.approx(0.125, abs=0.001)


def test_a_new_queue_has_no_past_whatever_it_holds_at_first():
    memory = begun()
    memory.note(SPECS, uses(a=5, b=5), TOTALS, 50 * DAY)
    assert past(memory, 50 * DAY) == {"a": 0.0, "b": 0.0}


def test_what_was_written_is_taken_up_again_and_the_gap_counts_as_what_is_held_now():
    first = begun()
    first.note(SPECS, uses(a=5, b=0), TOTALS, 1000.0)
    now = run(first, 1000.0, DAY)
    written = {spec.uid: first.to_write(spec.uid, now) or RememberedUsage(parts={}, at=0.0) for spec in SPECS}
    second = begun(remembered=written)
    second.note(SPECS, uses(a=5, b=0), TOTALS, now + 3600.0)
    unbroken = begun()
    unbroken.note(SPECS, uses(a=5, b=0), TOTALS, 1000.0)
    assert past(second, now + 3600.0) == past(unbroken, run(unbroken, 1000.0, DAY + 3600.0))


def test_a_clock_that_goes_back_changes_nothing_and_one_that_jumps_ahead_little():
    memory = begun()
    memory.note(SPECS, uses(a=5, b=0), TOTALS, 1000.0)
    now = run(memory, 1000.0, DAY)
    before = past(memory, now)["a"]
    memory.tick(now - 10 * DAY)
    memory.tick(now - 10 * DAY + WRITE_S)
    assert past(memory, now - 10 * DAY + WRITE_S)["a"] == pytest.approx(before, abs=0.001)
    memory.tick(now + 10 * DAY)
    bound = before + 0.5 * (1 - 0.5 ** (2 * GAP_MAX_S / DAY))
    assert before <= past(memory, now + 10 * DAY)["a"] <= bound + 0.001


def test_a_status_is_written_at_most_once_a_minute_and_only_for_what_changed():
    memory = begun(half_life_s=3600.0)
    memory.note(SPECS, uses(a=5, b=0), TOTALS, 1000.0)
    assert memory.tick(1010.0) == []
    writes = 0
    for second in range(1020, 1000 + 3600, 10):
        for name in memory.tick(float(second)):
            assert name == "a"
            said = memory.to_write("uid-a", float(second))
            assert said is not None
            memory.written("uid-a", said)
            writes += 1
    assert 50 <= writes <= 60


def test_a_queue_that_is_made_anew_begins_anew():
    memory = begun(remembered={"uid-a": RememberedUsage(parts={"gpu": 0.5}, at=1000.0)})
    assert memory.with_past_usage(SPECS, 1000.0)[0].past_usage == {"gpu": 0.5}
    memory.restore({"uid-other": RememberedUsage(parts={}, at=0.0)})
    assert memory.with_past_usage((QueueSpec(name="a", uid="uid-other"),), 1000.0)[0].past_usage == {}


def test_what_is_held_counts_from_when_it_was_seen_and_not_before():
    memory = begun()
    memory.note(SPECS, uses(a=0, b=10), TOTALS, 1000.0)
    memory.note(SPECS, uses(a=10, b=0), TOTALS, 1000.0 + GAP_MAX_S)
    assert past(memory, 1000.0 + GAP_MAX_S) == {"a": 0.0, "b": pytest.approx(1 - 0.5 ** (GAP_MAX_S / DAY), abs=0.001)}


@pytest.mark.parametrize("away_s", [DAY, 30 * DAY, 40 * 365 * DAY])
def test_the_time_in_which_none_looked_counts_one_half_life_at_most(away_s: float):
    memory = begun(remembered={"uid-a": RememberedUsage(parts={"gpu": 0.8}, at=1e9)})
    memory.note(SPECS, uses(a=0), TOTALS, 1e9 + away_s)
    assert past(memory, 1e9 + away_s)["a"] == pytest.approx(0.4, abs=0.001)


def test_a_successor_whose_clock_is_behind_takes_over_without_loss_or_gain():
    """The status is from a time that has not come yet: it stands as it is, and counting goes on from now."""
    memory = begun(remembered={"uid-a": RememberedUsage(parts={"gpu": 0.5}, at=1e9)})
    now = 1e9 - 3 * DAY
    memory.note(SPECS, uses(a=5), TOTALS, now)
    assert past(memory, now)["a"] == 0.5
    memory.note(SPECS, uses(a=0), TOTALS, now + 1.0)
    now = run(memory, now + 1.0, DAY)
    assert past(memory, now)["a"] == pytest.approx(0.25, abs=0.001)
    assert memory.tick(now + WRITE_S) == ["a"]  # what is new is written, though the status says a later time
    said = memory.to_write("uid-a", now + WRITE_S)
    assert said is not None
    assert said.at == now + WRITE_S
