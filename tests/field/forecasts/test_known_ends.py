"""A known end bounds a forecast and is named: an eviction that is set, and the deadline of what holds the devices."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.controller.book.shown import ShownForecast
from fairlead.engine.forecast.calibration import Calibration, Outcome
from fairlead.engine.forecast.forecast import GangForecast, forecast
from fairlead.engine.forecast.run_times import GangKey, RunRecord, RunTimes
from fairlead.engine.forecast.simulation import LEAVING_S
from fairlead.engine.forecast.submissions import Submissions
from fairlead.engine.forecast.what_if import Change, compare
from fairlead.engine.types.reasons import Code, Reason
from tests.support.engine.objects import claim_spec, device_request, gang
from tests.support.engine.world import World, h100_world
from tests.support.forecast.clusters import left_with

WHOLE = claim_spec(device_request(8))
SET = 400.0  # for when the eviction is set
NOW = 100.0
SHORT = RunTimes([RunRecord(GangKey("ml", "victim", 1), 5.0)] * 20)
EARLY = Calibration([Outcome(20.0, 160.0, 160.0)] * 40)
"""Of forecasts that were far too late: it would put a start before the eviction."""


def evicting(at: float | None = SET, **victim: Any) -> World:
    """A node of 8 GPUs, whose gang is marked to be evicted then."""
    world = h100_world(1)
    runs = gang("victim", 1, WHOLE, **victim)
    assert world.carry_out(world.decide(runs), [runs]) == []
    running = world.running["ml/victim"]
    members = tuple(replace(each, leaving=True, evicted_at=at) for each in running.members)
    world.running["ml/victim"] = replace(running, members=members)
    world.now = NOW
    return world


@pytest.mark.parametrize("preemptor", [True, False])
def test_what_waits_for_a_set_eviction_starts_after_it_and_its_reason_and_forecast_name_the_time(preemptor: bool):
    world, waits = evicting(), gang("waits", 1, WHOLE, preemptor=preemptor)
    (waiting,) = world.decide(waits).waiting
    which = "pods that are evicted for it at" if preemptor else "pods that are evicted at"
    assert f"{which} 1970-01-01T00:06:40Z hold devices on node-00000" in waiting.reason.message
    assert waiting.reason.due == SET
    for calibration in (Calibration(), EARLY):
        found = forecast(world.snapshot(waits), NOW, SHORT, seed=1, calibration=calibration).gangs["ml/waits"]
        assert (found.p50, found.p90) == (SET + LEAVING_S, SET + LEAVING_S)
        assert "what is evicted for it goes at 1970-01-01T00:06:40Z" in found.because


def test_as_time_goes_on_the_forecast_stays_where_it_is():
    world, waits = evicting(), gang("waits", 1, WHOLE, preemptor=True)
    for now in (NOW, 250.0, 399.0, SET + 10):
        found = forecast(world.snapshot(waits), now, SHORT, seed=1).gangs["ml/waits"]
        assert found.p50 == found.p90 == SET + LEAVING_S


def test_a_pod_that_was_deleted_is_awaited_from_its_deletion_and_one_that_stays_on_takes_as_long_again():
    world, waits = evicting(None), gang("waits", 1, WHOLE, preemptor=True)
    running = world.running["ml/victim"]
    deleted = tuple(replace(each, leaving_since=90.0) for each in running.members)
    world.running["ml/victim"] = replace(running, members=deleted)
    at = {
        now: forecast(world.snapshot(waits), now, SHORT, seed=1).gangs["ml/waits"].p50 for now in (100.0, 110.0, 190.0)
    }
    assert at == {100.0: 90.0 + LEAVING_S, 110.0: 90.0 + LEAVING_S, 190.0: 290.0}


def test_pods_beyond_its_size_that_are_evicted_come_free_though_the_gang_runs_on():
    world = h100_world(1)
    runs = replace(gang("elastic", 2, claim_spec(device_request(4))), size=1)
    assert world.carry_out(world.decide(runs), [runs]) == []
    running = world.running["ml/elastic"]
    first, second = running.members
    world.running["ml/elastic"] = replace(running, members=(first, replace(second, leaving=True, evicted_at=SET)))
    world.now = NOW
    waits = gang("waits", 1, claim_spec(device_request(4)), preemptor=True)
    long = RunTimes([RunRecord(GangKey("ml", "elastic", 1), 1e6)] * 20)
    found = forecast(world.snapshot(waits), NOW, long, seed=1).gangs["ml/waits"]
    assert (found.p50, found.p90) == (SET + LEAVING_S, SET + LEAVING_S)


def test_a_gang_that_is_being_evicted_waits_again_and_comes_before_younger_ones():
    world = evicting(created=1.0)
    victim = gang("victim", 1, WHOLE, created=1.0)
    first = gang("first", 1, WHOLE, preemptor=True, created=2.0)
    later = gang("later", 1, WHOLE, created=3.0)
    found = forecast(
        world.snapshot(first, later), NOW, SHORT, seed=1, submissions=Submissions({"ml/victim": victim}), samples=8
    ).gangs
    alone = forecast(world.snapshot(first, later), NOW, SHORT, seed=1, samples=8).gangs
    again, without = found["ml/later"].p50, alone["ml/later"].p50
    assert again is not None and without is not None and again > without


def test_an_older_forecast_is_moved_behind_the_eviction_in_gang_status():
    before = GangForecast(124.0, 500.0, "32 samples")
    reason = Reason(code=Code.MAKING_ROOM, message="pods are evicted for it", could_ever_fit=True, due=SET)
    status = ShownForecast(before, NOW, before, NOW).status(left_with(reason))
    assert (status["p50"], status["p90"]) == ("1970-01-01T00:06:40Z", "1970-01-01T00:08:20Z")
    assert status["because"] == "what is evicted for it goes at 1970-01-01T00:06:40Z; 32 samples"


@pytest.mark.parametrize("late", [1.0, 8.0])
def test_nothing_starts_later_than_the_deadlines_of_what_holds_its_devices(late: float):
    """However much too early earlier forecasts were."""
    world = h100_world(2)
    runs = [gang(f"runs-{n}", 1, WHOLE, run_s=300.0 + n) for n in range(2)]
    assert world.carry_out(world.decide(*runs), runs) == []
    world.now = NOW
    calibration = Calibration([Outcome(100.0 * late, 100.0, 100.0)] * 40)
    waits = gang("waits", 1, WHOLE)
    found = forecast(world.snapshot(waits), NOW, RunTimes(()), seed=1, calibration=calibration).gangs["ml/waits"]
    assert found.p50 is not None and found.p90 is not None
    assert found.p50 <= found.p90 <= 310.0
    assert "by 1970-01-01T00:05:00Z at the latest, as deadlines of what runs say" in found.because


@pytest.mark.parametrize(
    ("ends_by", "found", "said"),
    [
        (150.0, (None, None), "its workload ends before it starts, at 1970-01-01T00:02:30Z"),
        (250.0, (200.0, None), "its workload may end before it starts, at 1970-01-01T00:04:10Z"),
        (300.0, (200.0, 300.0), ""),
    ],
)
def test_no_time_lies_beyond_the_deadline_of_the_workload_which_runs_while_it_waits(
    ends_by: float, found: tuple[float | None, float | None], said: str
):
    before = GangForecast(200.0, 300.0, "32 samples")
    waiting = left_with(Reason(code=Code.NO_DEVICES, message="full"), ends_by=ends_by)
    within = before.within(waiting)
    assert (within.p50, within.p90) == found
    assert within.because.startswith(said or "32 samples")
    assert within.within(waiting) == within


def test_forecast_and_what_if_know_the_deadline_of_a_request():
    world = h100_world(1)
    runs = gang("runs", 1, WHOLE, run_s=1000.0)
    assert world.carry_out(world.decide(runs), [runs]) == []
    world.now = NOW
    waits = gang("waits", 1, WHOLE, ends_by=500.0)
    (waiting,) = world.decide(waits).waiting
    assert waiting.ends_by == 500.0
    said = forecast(world.snapshot(waits), NOW, RunTimes(()), seed=1).gangs["ml/waits"]
    assert (said.p50, said.p90) == (None, None)
    assert "its workload ends before it starts, at 1970-01-01T00:08:20Z" in said.because
    change = Change(submit=(gang("more", 1, WHOLE),))
    found = compare(world.snapshot(waits), NOW, change, RunTimes(()), horizon_s=86_400.0).before
    assert found.starts["ml/waits"].p50_s is None
