"""A queue's budget and wait target: which period a moment is in, clock changes included, and what of them is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from itertools import pairwise
from typing import Any, get_args
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.api.base import ManifestError
from fairlead.api.budget import Per, period
from fairlead.api.queue import Queue

BERLIN = "Europe/Berlin"


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def utc(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%m-%d %H:%M")


def queue(**spec: Any) -> dict[str, Any]:
    return {"kind": "Queue", "metadata": {"name": "red"}, "spec": spec}


@pytest.mark.parametrize(
    ("per", "zone", "now", "start", "end"),
    [
        ("day", "UTC", "2026-11-23T23:59:59.9+00:00", "11-23 00:00", "11-24 00:00"),
        ("day", "UTC", "2026-11-24T00:00:00+00:00", "11-24 00:00", "11-25 00:00"),
        ("day", BERLIN, "2026-11-23T23:30:00+00:00", "11-23 23:00", "11-24 23:00"),
        ("day", BERLIN, "2026-03-29T12:00:00+02:00", "03-28 23:00", "03-29 22:00"),
        ("day", BERLIN, "2026-10-25T12:00:00+01:00", "10-24 22:00", "10-25 23:00"),
        ("week", "UTC", "2026-11-29T12:00:00+00:00", "11-23 00:00", "11-30 00:00"),
        ("week", "UTC", "2026-11-30T00:00:00+00:00", "11-30 00:00", "12-07 00:00"),
        ("month", "UTC", "2026-02-28T12:00:00+00:00", "02-01 00:00", "03-01 00:00"),
        ("month", BERLIN, "2026-12-31T23:30:00+00:00", "12-31 23:00", "01-31 23:00"),
        ("day", "America/Sao_Paulo", "2018-11-04T12:00:00+00:00", "11-04 03:00", "11-05 02:00"),
    ],
)
def test_a_period_begins_and_ends_at_midnight_of_its_zone(per: Per, zone: str, now: str, start: str, end: str) -> None:
    found = period(per, zone, at(now))
    assert (utc(found.start), utc(found.end)) == (start, end)


@given(
    st.sampled_from(get_args(Per)),
    st.sampled_from(["UTC", BERLIN, "America/Sao_Paulo", "Asia/Kathmandu", "Pacific/Apia", "Africa/Cairo"]),
    st.floats(at("1990-01-01T00:00:00+00:00"), at("2090-01-01T00:00:00+00:00")),
)
def test_periods_follow_one_another_without_a_gap(per: Per, zone: str, now: float) -> None:
    first = period(per, zone, now)
    assert first.start <= now < first.end
    following = [first]
    for _ in range(3):
        following.append(period(per, zone, following[-1].end))
    for before, after in pairwise(following):
        assert before.end == after.start < after.end
        assert datetime.fromtimestamp(after.start, ZoneInfo(zone)).hour <= 1, "midnight, or the end of a skip over it"


def test_what_is_written_is_exact() -> None:
    read = Queue.read(queue(budget={"gpuHours": "1000.5", "per": "month"}, waitTarget="10m")).spec
    assert read.budget is not None
    assert (read.budget.limit, read.budget.on_exhausted, read.budget.warn_at, read.budget.time_zone) == (
        Fraction(2001, 2), "warn", [80], "UTC",
    )  # fmt: skip
    assert read.wait_target == "10m"


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"gpuHours": 0}, "spec.budget.gpuHours: 0 GPU-hours are spent before they begin: write more, or set limit 0"),
        ({"gpuHours": "-1"}, "spec.budget.gpuHours: '-1' is no number of GPU-hours: write digits"),
        ({"gpuHours": 2.5}, "spec.budget.gpuHours: 2.5 is no number of GPU-hours: write digits, in quotes"),
        ({"gpuHours": True}, "spec.budget.gpuHours: True is no number of GPU-hours"),
        ({"gpuHours": "1e3"}, "spec.budget.gpuHours: '1e3' is no number of GPU-hours"),
        (
            {"gpuHours": None},
            "spec.budget: gpuHours: is required, or flavor and hours of a Flavor with measure Resource",
        ),
        ({"flavor": "cpu", "hours": 9}, "spec.budget: flavor: means nothing beside gpuHours: remove one of them"),
        ({"gpuHours": None, "hours": 9}, "spec.budget: flavor: is required with hours"),
        (
            {"gpuHours": None, "flavor": "cpu"},
            "spec.budget: hours: is required with flavor, such as hours: '1000' of cpu",
        ),
        ({"gpuHours": None, "flavor": "cpu", "hours": 0}, "spec.budget.hours: 0 hours are spent before they begin"),
        ({"per": "year"}, "spec.budget.per: "),
        ({"timeZone": "Berlin"}, "spec.budget.timeZone: 'Berlin' is no time zone; did you mean Europe/Berlin?"),
        ({"onExhausted": "Stop"}, "spec.budget.onExhausted: "),
        ({"warnAt": [0]}, "spec.budget.warnAt[0]: "),
        ({"warnAt": [101]}, "spec.budget.warnAt[0]: "),
        ({"warnAt": [80, 90, 80]}, "spec.budget: warnAt[2]: 80 is listed twice: remove one"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_write(spec: dict[str, Any], fault: str) -> None:
    with pytest.raises(ManifestError) as error:
        Queue.read(queue(budget={"gpuHours": "10", "per": "day"} | spec))
    assert f"Queue red: {fault}" in str(error.value)
