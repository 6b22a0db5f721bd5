"""Bars are judged as if the machine had the reference speed; the value itself stays."""

from typing import Any

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks import calibration
from benchmarks.calibration import Loop


def figure(value: float, unit: str, **more: Any) -> dict[str, Any]:
    return {"figure": "f", "value": value, "unit": unit, "bar": None, **more}


@pytest.mark.parametrize(
    ("given", "judged"),
    [
        (figure(3.0, "ms"), 2.0),
        (figure(3.0, "ms/pod"), 2.0),
        (figure(3.0, "us/device"), 2.0),
        (figure(3.0, "s"), 2.0),
        (figure(100.0, "decisions/s"), 150.0),
        (figure(100.0, "reviews/s/core"), 150.0),
        (figure(7.0, "writes/pod"), 7.0),
        (figure(1.5, "GiB"), 1.5),
        (figure(95.0, "%"), 95.0),
        (figure(12, "gangs"), 12),
        (figure(12, ""), 12),
        (figure(66.0, "s", scaled=False), 66.0),
        (figure(21.0, "s", fixed=15.0), 19.0),
        (figure(14.0, "s", fixed=15.0), 14.0),
    ],
)
def test_at_a_loop_of_300_ms_times_shrink_and_rates_grow(given: dict[str, Any], judged: float) -> None:
    assert calibration.judged(given, 0.30) == pytest.approx(judged)


def test_a_calibrated_figure_has_more_keys_and_the_same_value() -> None:
    given = figure(3.0, "ms") | {"bar": 2.5}
    found = calibration.calibrated(given, Loop(0.30, 0.30))
    assert found == {**given, "loop_s": 0.3, "judged": 2.0}
    assert benchmarks.met(found)
    assert not benchmarks.met(given)


def test_both_loops_are_shown_when_the_machine_changed_during_the_run() -> None:
    steady, drifting = Loop(0.20, 0.224), Loop(0.20, 0.232)
    assert str(steady) == "loop 0.212 s"
    assert str(drifting) == "loop 0.200 s before, 0.232 s after"
    assert "loop_before_s" not in calibration.calibrated(figure(1.0, "s"), steady)
    found = calibration.calibrated(figure(1.0, "s"), drifting)
    assert (found["loop_before_s"], found["loop_after_s"], found["loop_s"]) == (0.2, 0.232, 0.216)
