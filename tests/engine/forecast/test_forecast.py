"""Forecasts: what starts when, from `decide` over drawn run times; what they rest on; and that they leave nothing behind."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import count
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.engine.forecast.calibration import Calibration, Outcome
from fairlead.engine.forecast.forecast import CpuBudget, Forecast, forecast, quantile
from fairlead.engine.forecast.pending_window import at_pace
from fairlead.engine.forecast.run_times import (
    Draws,
    GangKey,
    Progress,
    RunRecord,
    RunTimes,
    Source,
    SurvivalCurve,
    name_stem,
)
from fairlead.engine.forecast.simulation import Resolution, Simulation
from fairlead.engine.forecast.submissions import Arrivals, Submissions
from fairlead.engine.plan.decide import decide
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.reasons import Code, Reason
from tests.support.engine.objects import claim_spec, device_request, gang
from tests.support.engine.world import World, h100_world

HOUR = 3600.0
NOW = 1_000_000.0


def history(name: str, hours: Sequence[float], size: int = 1) -> list[RunRecord]:
    return [RunRecord(GangKey("ml", name, size), each * HOUR) for each in hours]


def whole_nodes(name: str, size: int = 1, **more: Any) -> GangRequest:
    return gang(name, size, claim_spec(device_request(8)), created=more.pop("created", NOW), **more)


def full_world(nodes: int = 2, *, started: float = NOW - HOUR, **more: Any) -> World:
    """Each node is held by a gang `run-N`."""
    world = h100_world(nodes)
    world.now = started
    gangs = [whole_nodes(f"run-{number}", created=started, **more) for number in range(nodes)]
    assert world.carry_out(world.decide(*gangs), gangs) == []
    world.now = NOW
    return world


def of(world: World, *gangs: GangRequest, times: RunTimes | None = None, **more: object) -> Forecast:
    times = times or RunTimes(history("run", [2.0] * 20))
    return forecast(world.snapshot(*gangs), world.now, times, seed=1, **more)  # type: ignore[arg-type]


def test_a_gang_that_can_start_now_has_now_as_its_forecast():
    found = of(h100_world(2), whole_nodes("a", 2)).gangs["ml/a"]
    assert (found.p50, found.p90, found.because) == (0.0, 0.0, "it can start now")


def test_what_waits_for_a_run_starts_when_that_run_is_likely_to_end():
    found = of(full_world(1), whole_nodes("a")).gangs["ml/a"]
    assert found.p50 is not None
    assert found.p90 is not None
    assert abs(found.p50 - (NOW + HOUR)) < 0.2 * HOUR
    assert found.p90 >= found.p50
    assert "ml/run-0 ends" in found.because
    assert "like gangs before (1)" in found.because


def test_a_gang_that_can_never_run_says_so_instead():
    found = of(full_world(2), whole_nodes("a", 3)).gangs["ml/a"]
    assert found.never
    assert (found.p50, found.p90) == (None, None)
    assert found.because.startswith("cannot run: ")


def test_a_gang_whose_pods_are_missing_has_no_forecast():
    short = whole_nodes("a", 2)
    found = of(full_world(2), replace(short, size=3)).gangs["ml/a"]
    assert not found.never
    assert found.p50 is None
    assert found.because.startswith("no forecast yet: ")


def test_the_same_arguments_give_the_same_forecast_and_another_seed_another():
    waiting = [whole_nodes(f"a-{number}") for number in range(3)]
    times = RunTimes(history("run", [1.0, 1.5, 2.0, 3.0, 5.0]))
    snapshot = full_world(2).snapshot(*waiting)
    first = forecast(snapshot, NOW, times, seed=1)
    assert forecast(snapshot, NOW, times, seed=1) == first
    assert forecast(full_world(2).snapshot(*waiting), NOW, times, seed=1).gangs == first.gangs
    assert forecast(snapshot, NOW, times, seed=2).gangs != first.gangs


@pytest.mark.parametrize("seed", range(8))
def test_a_forecast_leaves_the_tables_as_they_were(seed: int):
    random = Random(seed)
    world = full_world(3, run_s=4 * HOUR)
    waiting = [whole_nodes(f"a-{number}", random.randint(1, 3), priority=random.choice([0, 5])) for number in range(6)]
    before = decide(world.afresh().snapshot(*waiting), NOW)
    of(world, *waiting, samples=3)
    assert decide(world.snapshot(*waiting), NOW) == before
    assert {claim.uid for claim in world.inventory.claims()} == set(world.answers)
    assert world.faults() == []


def test_the_budget_is_kept_and_what_it_cost_is_said():
    ticks = count(0.0, 0.01)
    waiting = [whole_nodes(f"a-{number}", created=NOW + number) for number in range(30)]
    found = of(full_world(2), *waiting, budget=CpuBudget(0.15, lambda: next(ticks)))
    assert found.samples >= 1
    assert found.cut
    assert all(each.p50 is not None or "later than" in each.because for each in found.gangs.values())
    assert "work ahead" in found.gangs[waiting[15].id].because


@pytest.mark.parametrize(("horizon_s", "samples"), [(0.0, 1), (-1.0, 1), (10.0, 0)])
def test_a_horizon_or_a_number_of_samples_of_zero_is_refused(horizon_s: float, samples: int):
    with pytest.raises(ValueError, match="needs a horizon and samples"):
        of(h100_world(1), whole_nodes("a"), horizon_s=horizon_s, samples=samples)


def test_a_declared_limit_bounds_a_run_and_progress_goes_before_history():
    world = full_world(1, run_s=1.5 * HOUR)  # half an hour is left of it
    bounded = of(world, whole_nodes("a"), times=RunTimes(history("run", [50.0] * 9))).gangs["ml/a"]
    assert bounded.p90 is not None
    assert bounded.p90 <= NOW + 0.5 * HOUR + 1
    told = RunTimes(history("run", [50.0] * 9), {"ml/run-0": Progress(600.0, NOW)})
    found = of(full_world(1), whole_nodes("a"), times=told).gangs["ml/a"]
    assert found.p50 is not None
    assert abs(found.p50 - NOW - 600.0) < 120.0
    assert Source.PROGRESS in found.because


def test_an_evicted_gang_waits_again_and_the_preemptor_starts_once_it_is_gone():
    world = full_world(1)
    high = whole_nodes("high", priority=10)
    simulation = Simulation(
        world.snapshot(high), NOW, RunTimes(history("run", [30.0] * 5)), horizon_s=100 * HOUR,
        submissions=Submissions(again=world.requests),
    )  # fmt: skip
    sample = simulation.sample(Draws(1, 0))
    assert [(gang_id, beneficiary) for _, gang_id, beneficiary in sample.evicted] == [("ml/run-0", "ml/high")]
    assert 0 < sample.starts["ml/high"] - NOW < 120


@pytest.mark.parametrize("seed", range(10))
def test_decisions_without_reasons_admit_and_evict_the_same(seed: int):
    random = Random(seed)
    world = full_world(random.randint(2, 5), run_s=random.choice([None, 4 * HOUR]))
    waiting = [
        whole_nodes(f"a-{number}", random.randint(1, 3), priority=random.choice([0, 5]), created=NOW - 900 * number)
        for number in range(7)
    ]
    for _ in range(3):
        snapshot = world.snapshot(*waiting)
        whole, bare = decide(snapshot, world.now), world.engine.decide_unexplained(snapshot, world.now)
        assert (bare.admissions, bare.evictions, bare.due) == (whole.admissions, whole.evictions, whole.due)
        assert len(whole.waiting) + len(whole.admissions) == len(waiting)
        assert bare.waiting == ()
        looked = world.engine.decide_without_blockers(snapshot, world.now)
        assert [dataclasses.replace(each, reason=_unblocked(each.reason)) for each in whole.waiting] == [
            dataclasses.replace(each, reason=_unblocked(each.reason)) for each in looked.waiting
        ]
        assert dataclasses.replace(looked, waiting=()) == dataclasses.replace(whole, waiting=())
        assert [each.reason.never for each in looked.waiting] == [each.reason.never for each in whole.waiting]
        waiting = world.carry_out(whole, waiting)
        world.now += HOUR


def _unblocked(reason: Reason) -> Reason:
    """Without what blockers say, and what follows from them."""
    return dataclasses.replace(reason, blockers=(), code=Code.NO_DEVICES, advice="")


def test_each_eight_samples_draw_once_from_each_eighth():
    draws = [Draws(1, number).uniform("run", "ml/a") for number in range(24)]
    for first in (0, 8, 16):
        assert sorted(int(8 * each) for each in draws[first : first + 8]) == list(range(8))
    others = [Draws(1, number).uniform("run", "ml/b") for number in range(24)]
    assert [int(8 * each) for each in others] != [int(8 * each) for each in draws]


@pytest.mark.parametrize("window", [2, 5, 1000])
def test_a_window_of_any_size_starts_every_gang(window: int):
    line = [whole_nodes(f"a-{number}", 1 + number % 3, created=NOW + number) for number in range(40)]
    simulation = Simulation(
        full_world(3).snapshot(*line), NOW, RunTimes(history("run", [2.0] * 9)), horizon_s=1e9,
        resolution=Resolution(0.1, 5.0, window),
    )  # fmt: skip
    assert simulation.sample(Draws(1, 0)).starts.keys() == {each.id for each in line}


def test_where_no_run_has_ended_a_run_lasts_as_long_again():
    found = of(full_world(1), whole_nodes("a"), times=RunTimes(()), samples=64).gangs["ml/a"]
    assert found.p50 is not None
    assert NOW + 0.5 * HOUR < found.p50 < NOW + 2 * HOUR
    assert Source.NONE in found.because


def test_beyond_the_budget_gangs_of_a_queue_start_as_its_gangs_end():
    line = [replace(whole_nodes(name, size, created=created), queue=queue) for name, size, created, queue in (
        ("a", 1, 1.0, "q"), ("b", 1, 2.0, "q"), ("c", 2, 3.0, "q"), ("other", 1, 4.0, "idle"),
    )]  # fmt: skip
    queues = {gang.id: gang.queue or "" for gang in line}
    starts = at_pace(
        line, now=0.0, until=1000.0, queue_of=lambda gang: queues[gang.id], devices_of=lambda gang: 8 * gang.size,
        run_s_of=lambda gang: 50.0, running={"q": [(200.0, 8), (100.0, 8)]},
    )  # fmt: skip
    assert starts == {"ml/a": 100.0, "ml/b": 150.0, "ml/c": 200.0, "ml/other": 200.0}


def test_beyond_the_budget_what_is_submitted_meanwhile_joins_the_line_by_priority_and_age():
    """The queue holds one node until 100. `high` comes before that and goes first, `late` is younger, `after` comes too late."""
    line = [whole_nodes("a", created=1.0), whole_nodes("b", created=2.0)]
    coming = [(at, whole_nodes(name, priority=priority)) for at, name, priority in (
        (50.0, "high", 9), (60.0, "late", 0), (130.0, "after", 9), (900.0, "never", 9),
    )]  # fmt: skip
    seen: list[float] = []

    def arrivals() -> Iterator[tuple[float, GangRequest]]:
        for at, request in coming:
            seen.append(at)
            yield at, request

    def starts(until: float) -> dict[str, float]:
        return at_pace(
            line, now=0.0, until=until, queue_of=lambda gang: "q", devices_of=lambda gang: 8,
            run_s_of=lambda gang: 50.0, running={"q": [(100.0, 8)]}, coming=arrivals(),
        )  # fmt: skip

    assert starts(800.0) == {"ml/a": 200.0, "ml/b": 250.0}  # after high at 100 and after at 150
    assert seen == [50.0, 60.0, 130.0, 900.0]
    assert starts(220.0) == {"ml/a": 200.0}
    assert starts(10.0) == {}


@pytest.mark.slow
def test_what_comes_later_and_goes_first_delays_a_forecast():
    """Each hour of the past two gangs of higher priority came, which run for two hours."""
    past = [whole_nodes(f"high-{number}", priority=9, created=NOW - 1800.0 * number) for number in range(1, 100)]
    arrivals = Arrivals(past, since=NOW - 50 * HOUR, now=NOW)
    times = RunTimes([*history("run", [2.0] * 20), *history("high", [2.0] * 20)])
    alone, among = (
        of(full_world(1), whole_nodes("a"), times=times, submissions=Submissions(new=each)) for each in (None, arrivals)
    )
    first, second = (each.gangs["ml/a"] for each in (alone, among))
    assert first.p50 is not None
    assert second.p50 is None or second.p50 > first.p50 + HOUR


# -- run times -----------------------------------------------------------------------------------------------------


def test_of_few_like_runs_only_the_median_counts():
    """Spreads are those of all programs: three runs say little of their own, and a tenth lie beyond the longest of nine."""
    random = Random(1)
    others = [
        RunRecord(GangKey("ml", f"program-{number}", 1), random.lognormvariate(7 + number % 3, 0.2))
        for number in range(60)
        for _ in range(6)
    ]
    times = RunTimes([*others, *history("few", [0.9, 1.0, 1.1])])
    gang = whole_nodes("few-7")
    drawn = sorted(times.ends_at(gang, 0.0, 0.0, Draws(1, number), ends_by=None) / HOUR for number in range(400))
    assert drawn[200] == pytest.approx(1.0, rel=0.1)
    assert drawn[20] == pytest.approx(0.7, rel=0.15)  # lognormal: exp(-1.64 * 0.22)
    assert drawn[380] == pytest.approx(1.43, rel=0.15)
    assert times.source(gang, None) is Source.LIKE


def test_runs_of_the_same_user_come_before_those_of_others_under_the_same_name():
    runs = [
        RunRecord(GangKey("ml", "train", 1, user), hours * HOUR) for user, hours in [("ada", 1.0), ("bob", 9.0)] * 12
    ]
    times = RunTimes(runs, users={"ml/train-7": "ada", "ml/train-8": "bob", "ml/train-9": "eve"})

    def middle(name: str) -> float:
        drawn = [times.ends_at(whole_nodes(name), 0.0, 0.0, Draws(1, number), ends_by=None) for number in range(200)]
        return sorted(drawn)[100] / HOUR

    assert middle("train-7") == pytest.approx(1.0, rel=0.01)
    assert middle("train-8") == pytest.approx(9.0, rel=0.01)
    assert middle("train-7~0-3") == pytest.approx(1.0, rel=0.01), "as of the gang that an arrival is drawn from"
    assert times.source(whole_nodes("train-9"), None) is Source.LIKE, "a new user: those of all"


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("train-llama-7-x7k2p", "train-llama"),
        ("sweep-12", "sweep"),
        ("bert", "bert"),
        ("resnet50-v2", "resnet50"),
        ("7", "7"),
        ("etl-20260101", "etl"),
        ("job~3-1", "job"),
    ],
)
def test_names_of_like_gangs_have_one_stem(name: str, stem: str):
    assert name_stem(name) == stem


def test_a_survival_curve_counts_what_still_runs():
    ended = SurvivalCurve([(HOUR, True), (2 * HOUR, True), (4 * HOUR, True)])
    assert [round(ended.left(each * HOUR), 2) for each in (1, 2, 4)] == [0.75, 0.5, 0.25]
    censored = SurvivalCurve([(HOUR, True), (2 * HOUR, False), (4 * HOUR, True)])
    assert censored.left(4 * HOUR) > ended.left(4 * HOUR)


@pytest.mark.parametrize("seed", range(20))
def test_draws_are_never_shorter_than_what_has_run_and_longer_for_smaller_numbers(seed: int):
    random = Random(seed)
    curve = SurvivalCurve([(random.lognormvariate(8, 1), random.random() < 0.7) for _ in range(random.randint(1, 40))])
    elapsed = random.lognormvariate(8, 1.5)
    drawn = [curve.draw(elapsed, uniform / 20) for uniform in range(1, 20)]
    assert all(each >= elapsed for each in drawn)
    assert drawn == sorted(drawn, reverse=True)


# -- quantiles and calibration -------------------------------------------------------------------------------------


def test_a_quantile_among_infinite_waits_is_not_known():
    waits = [10.0, 20.0, float("inf"), float("inf")] * 5
    assert quantile(sorted(waits), 0.3) == pytest.approx(16, abs=5)
    assert quantile(sorted(waits), 0.9) is None
    assert quantile([], 0.5) is None


def test_calibration_corrects_what_was_off():
    late = [Outcome(200.0 + 4 * number, 100.0, 150.0) for number in range(50)]
    factors = Calibration(late)
    p50, p90 = factors.corrected((100.0, 150.0))
    assert p50 == pytest.approx(260, rel=0.1)  # of the median, 280 to 300, what is certain
    assert p90 == pytest.approx(380, rel=0.1)
    assert Calibration().corrected((5.0, None)) == (5.0, None)
    assert factors.corrected((0.0, 0.0)) == (0.0, 0.0)  # what can start now is certain
    inward = Calibration(Outcome(200.0 + 4 * number, 100.0, 1_000.0) for number in range(50))
    p50, p90 = inward.corrected((100.0, 150.0))
    assert p50 is not None and p90 == p50  # each corrected by itself, p90 would be before p50
    once, _ = Calibration(late[:1]).corrected((100.0, 150.0))
    assert once is not None and once < 110  # one start says little


def test_a_forecast_that_is_right_on_average_is_left_as_it_is():
    """Though half of the starts were twice as late as it said, and half twice as early."""
    random = Random(1)
    spread = [Outcome(100.0 * random.choice([0.5, 2.0]), 100.0 + number, 220.0 + number) for number in range(60)]
    p50, p90 = Calibration(spread).corrected((100.0, 220.0))
    assert p50 == 100.0
    assert p90 is not None and p90 < 220.0


def test_short_and_long_waits_are_corrected_apart():
    early = [Outcome(50.0 + number, 100.0 + number, 200.0 + number) for number in range(60)]
    late = [Outcome(90_000.0 + number, 30_000.0 + number, 40_000.0 + number) for number in range(60)]
    both = Calibration([*early, *late])
    short, _ = both.corrected((120.0, 220.0))
    long, _ = both.corrected((30_000.0, 40_000.0))
    assert short is not None and short < 120
    assert long is not None and long > 80_000
