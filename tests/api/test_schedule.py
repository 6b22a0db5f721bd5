"""A queue's schedule: when its entries are in force, clock changes included, and what of it is refused."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import example, given
from hypothesis import strategies as st

from fairlead.api import schedules
from fairlead.api.base import ManifestError
from fairlead.api.queue import Queue
from fairlead.api.recurrence import Recurrence, checked_cron

HOUR = 3600.0
BERLIN = "Europe/Berlin"


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def utc(moment: float | None) -> str | None:
    return None if moment is None else datetime.fromtimestamp(moment, UTC).strftime("%m-%d %H:%M")


def end(recurrence: Recurrence, moment: str) -> str | None:
    span = recurrence.span(at(moment))
    return None if span is None else utc(span.end)


def queue(schedule: Any, **spec: Any) -> dict[str, Any]:
    return {"kind": "Queue", "metadata": {"name": "red"}, "spec": {**spec, "schedule": schedule}}


def entry(name: str = "nights", **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "start": "0 20 * * 1-5",
        "for": "11h",
        "timeZone": BERLIN,
        "flavors": [{"flavor": "h100", "deserved": 16, "limit": 32}],
    } | fields


# -- when ----------------------------------------------------------------------------------------------------------


def test_a_span_begins_with_its_start_and_ends_before_its_end() -> None:
    nights = Recurrence("0 20 * * 1-5", 11 * HOUR, BERLIN)
    assert end(nights, "2026-11-23T19:59:59.999+01:00") is None
    assert end(nights, "2026-11-23T20:00+01:00") == "11-24 06:00"
    assert end(nights, "2026-11-24T06:59:59.999+01:00") == "11-24 06:00"
    assert end(nights, "2026-11-24T07:00+01:00") is None
    assert utc(nights.next_start(at("2026-11-27T20:00+01:00"))) == "11-30 19:00", "after Friday comes Monday"


CRONS = [
    "30 2 * * *",
    "0 1-3 * * *",
    "0,45 2 * * *",
    "*/20 * * * *",
    "15 * * * *",
    "0 0 * * 0",
    "0 0 * * *",
    "59 23 * * *",
    "30 0 */2 * *",
]
# Clock changes at 02:00, at midnight, of half an hour, in winter time only; and a day that was skipped.
CHANGES = {
    BERLIN: ["2026-03-29T01:00Z", "2026-10-25T01:00Z"],
    "America/Havana": ["2026-03-08T05:00Z", "2026-11-01T05:00Z"],
    "Australia/Lord_Howe": ["2026-04-04T15:00Z", "2026-10-03T15:30Z"],
    "Europe/Dublin": ["2026-03-29T01:00Z", "2026-10-25T01:00Z"],
    "Pacific/Apia": ["2011-12-30T10:00Z"],
    "UTC": ["2026-03-29T01:00Z"],
}


@given(
    st.sampled_from([(zone, change) for zone, changes in CHANGES.items() for change in changes]),
    st.sampled_from(CRONS),
    st.integers(1, 300),
    st.integers(-26 * 60, 26 * 60),
)
@example((BERLIN, "2026-10-25T01:00Z"), "30 2 * * *", 60, 10)
def test_spans_are_those_of_all_starts_found_one_by_one(
    change: tuple[str, str], cron: str, minutes: int, offset: int
) -> None:
    """Against the plain way: all starts from four days before, in order, each with its length."""
    zone, around = change
    moment, length_s = at(around) + offset * 60.0, minutes * 60.0
    recurrence = Recurrence(cron, length_s, zone)
    starts: list[float] = []
    for found in CronSim(cron, datetime.fromtimestamp(at(around), ZoneInfo(zone)) - timedelta(days=5)):
        if found.timestamp() > at(around) + 12 * 86400:
            break
        starts.append(found.timestamp())
    starts = sorted(set(starts))
    inside = [start for start in starts if start <= moment < start + length_s]
    span = recurrence.span(moment)
    assert (span is not None) == bool(inside)
    assert recurrence.next_start(moment) == min(start for start in starts if start > moment)
    if span is not None and span.known:
        last = inside[-1]
        for start, after in pairwise(starts[starts.index(last) :]):
            last = start
            if after > start + length_s:
                break
        assert span.end == last + length_s
        assert recurrence.span(span.end) is None
        assert recurrence.span(span.end - 0.5) == span


# -- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cron", ["0 0 30 2 *", "0 0 31 2,4,6 *", "0 0 */31 2 1#5"])
def test_a_cron_expression_that_never_comes_is_refused(cron: str) -> None:
    with pytest.raises(ManifestError, match=r"^Queue red: spec\.schedule\[0\]\.start: .* never comes"):
        Queue.read(queue([entry(start=cron)]))


@pytest.mark.parametrize("cron", ["0 0 29 2 *", "0 0 L * *", "0 9 * * MON#1", "0 0 30 2 1"])
def test_a_cron_expression_that_comes_seldom_is_taken(cron: str) -> None:
    assert checked_cron(cron) == cron


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"start": "@daily"}, "spec.schedule[0].start: '@daily' has 1 fields: write five"),
        ({"start": "0 0 0 * * *"}, "has 6 fields: write five"),
        ({"start": "61 0 * * *"}, "its field minute cannot be met"),
        ({"timeZone": "Berlin"}, "spec.schedule[0].timeZone: 'Berlin' is no time zone; did you mean Europe/Berlin?"),
        ({"timeZone": "../etc/passwd"}, "write an IANA name such as Europe/Berlin, or UTC"),
        ({"for": "30s"}, "spec.schedule[0]: for 30s is less than a minute"),
        ({"for": "soon"}, "spec.schedule[0].for: 'soon' is no duration"),
        ({"flavors": []}, "spec.schedule[0].flavors: "),
        ({"flavors": [{"flavor": "h100"}]}, "replaces nothing of flavor 'h100': write one of borrowingLimit, deserved"),
        ({"flavors": [{"flavor": "h100", "limit": 1}] * 2}, "flavors[1].flavor: 'h100' is listed twice"),
        ({"flavors": [{"flavor": "h100", "limit": 3}]}, "while nights is in force limit 3 is below deserved 4"),
        ({"end": "0 7 * * 1-5"}, "spec.schedule[0].end: unknown field"),
    ],
)
def test_a_mistake_is_refused_by_its_path(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ManifestError) as raised:
        Queue.read(queue([entry(**fields)], flavors=[{"flavor": "h100", "deserved": 4}]))
    assert said in str(raised.value)
    assert str(raised.value).startswith("Queue red: spec")


def test_entries_may_not_add_flavors_without_end() -> None:
    many = [{"flavor": f"f{number}", "deserved": 1} for number in range(16)]
    assert Queue.read(queue([entry(flavors=many)])).spec.schedule
    with pytest.raises(ManifestError, match="the queue has 17, more than 16"):
        Queue.read(queue([entry(flavors=many)], flavors=[{"flavor": "h100"}]))


# -- what is in force ----------------------------------------------------------------------------------------------


def of(*entries: dict[str, Any], **spec: Any) -> Queue:
    return Queue.read(queue(list(entries), **spec))


def test_of_entries_in_force_together_the_later_wins_field_by_field() -> None:
    found = of(
        entry(flavors=[{"flavor": "h100", "deserved": 16, "limit": 32}, {"flavor": "a100", "weight": 2}]),
        entry("monday", start="0 0 * * 1", **{"for": "1d"}, flavors=[{"flavor": "h100", "limit": 24}]),
        flavors=[{"flavor": "h100", "deserved": 4, "limit": 8, "borrowingLimit": 2}],
    )
    now = schedules.at(found.spec.schedule, at("2026-11-23T20:30+01:00"))
    assert [(each.entry.name, utc(each.until)) for each in now.in_force] == [
        ("nights", "11-24 06:00"),
        ("monday", "11-23 23:00"),
    ]
    assert utc(now.change) == "11-23 23:00"
    h100, a100 = schedules.quotas(found.spec.flavors, [each.entry for each in now.in_force])
    assert (h100.deserved, h100.limit, h100.borrowing_limit) == (16, 24, 2)
    assert (a100.deserved, a100.limit, a100.weight) == (0, None, 2)


def test_an_entry_that_is_always_in_force_is_said_so() -> None:
    found = of(
        entry(start="0 * * * *", **{"for": "2h"}), entry("days", start="0 8 * * *", **{"for": "1d"}), entry("nights2")
    )
    said = list(schedules.always_in_force(found.spec.schedule))
    assert [text.partition(" ")[0] for text in said] == ["spec.schedule[0]:", "spec.schedule[1]:"]
    assert "nights starts again before it ends ('0 * * * *' for 2h): it is in force all the time" in said[0]
    now = schedules.at(found.spec.schedule[:1], at("2026-11-23T11:00Z"))
    assert [each.until for each in now.in_force] == [None]
    assert now.change is not None
    assert not now.known
