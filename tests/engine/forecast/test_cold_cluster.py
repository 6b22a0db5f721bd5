"""First forecasts of a cluster that has seen few runs: as wide as what is not known, and right as often as they say."""

from __future__ import annotations

from math import exp
from random import Random

import pytest

from fairlead.engine.forecast.run_times import GangKey, RunRecord, RunTimes, Source, SurvivalCurve
from tests.support.engine.objects import claim_spec, device_request, gang

CLUSTERS = 1_000
TYPICAL_S = 600.0


def next_runs(seen: int, spread: float) -> tuple[float, float, float]:
    """Of so many cold clusters, each with runs of its own: the parts of next runs before p50 and before p90, and the median of p90 / p50.

    `spread`: of run times, in their logarithm; 1.1 is a factor of three.
    """
    draw = Random(f"{seen} {spread}")
    early = late = 0
    widths = []
    for _ in range(CLUSTERS):
        first, *rest = (TYPICAL_S * exp(draw.gauss(0, spread)) for _ in range(seen + 1))
        curve = SurvivalCurve([(run_s, True) for run_s in rest])
        p50, p90 = curve.draw(0.0, 0.5), curve.draw(0.0, 0.1)
        early += first <= p50
        late += first <= p90
        widths.append(p90 / p50)
    return early / CLUSTERS, late / CLUSTERS, sorted(widths)[CLUSTERS // 2]


@pytest.mark.parametrize("spread", [0.3, 0.7, 1.1, 1.6])
@pytest.mark.parametrize("seen", [1, 2, 3, 5, 12, 40])
def test_half_of_the_next_runs_end_before_p50_and_nine_tenths_before_p90(seen: int, spread: float):
    before_p50, before_p90, _ = next_runs(seen, spread)
    assert 0.45 <= before_p50 <= 0.55
    assert before_p90 >= 0.85
    if seen >= 12:
        assert before_p90 <= 0.94


def test_the_fewer_runs_were_seen_the_wider_it_is():
    widths = [next_runs(seen, 0.5)[2] for seen in (1, 2, 3, 5, 12)]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 10


def test_one_run_says_little_of_another_job():
    """A run of nine minutes was seen; the job that runs now may take one minute or an hour and a half."""
    times = RunTimes([RunRecord(GangKey("ml", "train", 8), 540.0)])
    asked = gang("other", 1, claim_spec(device_request()), namespace="research")
    assert times.source(asked, None) is Source.CLUSTER
    curve = SurvivalCurve([(540.0, True)])
    assert curve.draw(0.0, 0.5) == pytest.approx(540.0)
    assert curve.draw(0.0, 0.1) > 5_400
