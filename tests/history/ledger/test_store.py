"""What is committed is read back, by window and by what is asked for; the same on both databases."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from fractions import Fraction

import pytest

from fairlead.history.ledger.entries import (
    BUCKETS,
    GROUPS,
    WHOLE_PPM,
    Batch,
    Gap,
    Held,
    Kept,
    Measure,
    Sampled,
    Span,
    UnitDay,
    Wait,
)
from fairlead.history.ledger.store.place import LedgerTakenError
from fairlead.history.ledger.store.reader import Reader
from fairlead.history.ledger.store.writer import Writer
from fairlead.kube.timestamps import DAY_US, HOUR_US
from tests.support.ledger import MONDAY_US, WHOLE, a_day, allocation, interval, reading, unit, writing

TUESDAY_US = MONDAY_US + DAY_US
Day = tuple[Writer, Reader]


@pytest.fixture
def day(where: str) -> Iterator[Day]:
    """A ledger of one day, Monday."""
    with writing(where) as writer, reading(where) as reader:
        writer.commit(a_day())
        yield writer, reader


def hours(reader: Reader, since_us: int, until_us: int, *by: str) -> dict[tuple[object, ...], float]:
    return {(*each.keys, each.bucket): each.time_us / HOUR_US for each in reader.sums(since_us, until_us, by)}


def test_a_new_ledger_holds_nothing(where: str) -> None:
    with writing(where) as writer, reading(where) as reader:
        assert writer.kept() == Kept(as_of_us=None, next_number=1, open={})
        assert reader.known() is None
        assert reader.sums(0, 2**62, ("queue",)) == []
        assert not any([*reader.held(0, 2**62), *reader.unit_days(0, 2**50), *reader.waits(0, 2**62)])


def test_a_term_begins_with_the_open_intervals_as_they_were_written(where: str) -> None:
    rest = allocation(7, claim_uid="not-a-uuid", labels=(), gang="", queue="", user="")
    third = Measure(share_ppm=428_571, flavor="mig-3g", amount=Fraction(3, 7))
    sampled = Sampled(sampled_us=3, busy_us=2, memory_peak_bytes=0, memory_bytes=None)
    goes_on = interval("idle", MONDAY_US + 5, of=rest, number=9, measure=third, sampled=sampled, lost=True)
    with writing(where) as writer:
        writer.commit(a_day())
        writer.commit(Batch(as_of_us=TUESDAY_US + 1, intervals=((12, goes_on),)))
    with writing(where, "the next leader") as writer:
        assert writer.kept() == Kept(
            as_of_us=TUESDAY_US + 1, next_number=13, open={6: a_day().intervals[-1][1], 12: goes_on}
        )


def test_how_busy_the_devices_of_a_gang_were_is_read_stretch_by_stretch_and_of_no_other_gang(where: str) -> None:
    hour = [MONDAY_US + hour * HOUR_US for hour in range(25)]
    others = [
        interval("used", hour[1], hour[4], of=allocation(8, namespace="else"), number=3),
        interval("used", hour[1], hour[4], of=allocation(9, gang="other"), number=4),
        interval("used", hour[22], of=allocation(7), number=5),
    ]
    with writing(where) as writer, reading(where) as reader:
        writer.commit(a_day())
        writer.commit(Batch(as_of_us=hour[24], intervals=tuple(enumerate(others, 20))))
        found = reader.stretches("ml", "train", hour[6], hour[23], 100)
        assert [(each.node, each.device, each.bucket) for each in found] == [
            ("node-0", "gpu-0", "used"),
            ("node-0", "gpu-0", "idle"),
            ("node-0", "gpu-0", "used"),
            ("node-0", "gpu-5", "used"),
        ]
        assert [(each.start_us, each.end_us) for each in found] == [
            (hour[6], hour[9]), (hour[9], hour[10]), (hour[10], hour[20]), (hour[22], hour[23])
        ]  # fmt: skip
        # Half of what the samples say of six hours, of which five were seen and four busy.
        assert (found[0].sampled_us, found[0].busy_us) == (5 * HOUR_US // 2, 2 * HOUR_US)
        assert reader.stretches("ml", "train", hour[6], hour[23], 2) == found[2:]
        assert reader.stretches("ml", "none", 0, 2**62, 100) == []


def test_an_interval_is_replaced_by_its_number(day: Day) -> None:
    writer, reader = day
    last = a_day().intervals[-1][1]
    writer.commit(Batch(as_of_us=TUESDAY_US + HOUR_US, intervals=((6, last.ended(TUESDAY_US)),)))
    assert writer.kept() == Kept(as_of_us=TUESDAY_US + HOUR_US, next_number=7, open={})
    assert hours(reader, 0, 2**62)["free",] == 6.0


def test_a_commit_may_be_repeated(where: str) -> None:
    gap = Gap(start_us=MONDAY_US, end_us=MONDAY_US + 5, reason="the leader was down")
    wait = Wait(queue="research", namespace="ml", gang="train", queued_us=MONDAY_US - 60, admitted_us=MONDAY_US)
    batch = dataclasses.replace(a_day(), gaps=(gap,), waits=(wait,))
    with writing(where) as writer, reading(where) as reader:
        writer.commit(batch)
        once = reader.sums(0, 2**62, ("queue",))
        writer.commit(batch)
        assert reader.sums(0, 2**62, ("queue",)) == once
        assert list(reader.gaps(MONDAY_US + 4, MONDAY_US + 9)) == [gap]
        assert list(reader.gaps(MONDAY_US + 5, MONDAY_US + 9)) == []
        assert list(reader.waits(MONDAY_US, MONDAY_US + 1)) == [wait]
        assert list(reader.waits(MONDAY_US + 1, TUESDAY_US)) == []


def test_time_is_added_by_what_is_asked_for(day: Day) -> None:
    _, reader = day
    assert hours(reader, MONDAY_US, TUESDAY_US) == {("starting",): 1, ("used",): 16, ("idle",): 1, ("free",): 6}
    keys = (*GROUPS, "label=project", "label=none")
    used = next(each for each in reader.sums(MONDAY_US, TUESDAY_US, keys) if each.bucket == "used")
    assert dict(zip(keys, used.keys, strict=True)) == {
        "queue": "research", "namespace": "ml", "user": "ada@example.org", "gang": "train", "claim": "train-0", "flavor": "h100",
        "node": "node-0", "unit": "gpu.fairlead.dev/node-0/gpu-0", "device": "gpu-0", "bucket": "used", "day": "2026-09-21",
        "label=project": "p1", "label=none": "",
    }  # fmt: skip
    assert (used.measure, used.time_us, used.sampled_us, used.busy_us) == (
        WHOLE,
        16 * HOUR_US,
        5 * HOUR_US,
        4 * HOUR_US,
    )
    free = next(each for each in reader.sums(MONDAY_US, TUESDAY_US, ("queue", "flavor")) if each.bucket == "free")
    assert free.keys == ("", "")


def test_intervals_are_cut_to_the_window_and_their_samples_with_them(day: Day) -> None:
    _, reader = day
    (starting, used) = reader.sums(MONDAY_US + 2 * HOUR_US + 1, MONDAY_US + 4 * HOUR_US, ("queue",))[::-1]
    assert (starting.bucket, starting.time_us) == ("starting", HOUR_US - 1)
    assert (used.bucket, used.time_us) == ("used", HOUR_US)
    assert (used.sampled_us, used.busy_us) == (5 * HOUR_US // 6, 4 * HOUR_US // 6)
    assert hours(reader, MONDAY_US + 23 * HOUR_US, MONDAY_US + 30 * HOUR_US) == {("free",): 1}, "until it is known"
    assert reader.sums(MONDAY_US + 5, MONDAY_US + 5, ()) == []


def test_what_is_no_group_is_refused_by_name(where: str) -> None:
    with (
        writing(where),
        reading(where) as reader,
        pytest.raises(ValueError, match="by: 'colour' is nothing to sum by: give queue,"),
    ):
        reader.sums(0, 1, ("colour",))


def test_a_claim_is_told_by_device(day: Day) -> None:
    _, reader = day
    (held,) = reader.held(MONDAY_US, TUESDAY_US)
    assert held == Held(
        allocation=allocation(),
        unit=unit(),
        node="node-0",
        device="gpu-0",
        measure=WHOLE,
        times_us=(("used", 16 * HOUR_US), ("idle", HOUR_US), ("starting", HOUR_US)),
        sampled=Sampled(sampled_us=5 * HOUR_US, busy_us=4 * HOUR_US, memory_peak_bytes=7 * 2**30, memory_bytes=80 * 2**30),
        ended_by="Completed",
        lost=False,
    )  # fmt: skip
    (part,) = reader.held(MONDAY_US, MONDAY_US + 12 * HOUR_US)
    assert (part.times_us[0], part.ended_by) == (("used", 8 * HOUR_US), ""), "its end lies beyond"
    assert list(reader.held(MONDAY_US + 20 * HOUR_US, TUESDAY_US)) == []


def test_a_claim_has_one_span_on_each_device_through_its_states(day: Day) -> None:
    writer, reader = day
    begin, end = MONDAY_US + 2 * HOUR_US, MONDAY_US + 20 * HOUR_US
    whole = Span("ml", "research", "train", "train-0", MONDAY_US, "node-0", "h100", Fraction(1), 1_000_000, begin, end, False, "Completed", False, "gpu-0")  # fmt: skip
    assert list(reader.spans(MONDAY_US, TUESDAY_US)) == [whole]
    (cut,) = reader.spans(begin + 5, end - 5)
    assert cut == whole._replace(start_us=begin + 5, end_us=end - 5, goes_on=True, ended_by="")
    assert list(reader.spans(end, TUESDAY_US)) == []
    assert list(reader.spans(MONDAY_US, begin)) == []
    again = allocation(0, allocated_us=TUESDAY_US)  # the same claim, allocated again; it goes on
    twice = tuple(
        (number, interval("used", TUESDAY_US, of=again, number=number, lost=number == 8)) for number in (8, 9)
    )
    writer.commit(Batch(as_of_us=TUESDAY_US + HOUR_US, intervals=twice))
    on = [(each.node, each.start_us, each.end_us, each.goes_on, each.lost) for each in reader.spans(end, 2**62)]
    assert on == [
        ("node-1", TUESDAY_US, TUESDAY_US + HOUR_US, True, True),
        ("node-1", TUESDAY_US, TUESDAY_US + HOUR_US, True, False),
    ]


def test_what_is_lost_to_an_eviction_is_marked_back_to_its_beginning_and_no_other_claim(day: Day) -> None:
    writer, reader = day
    other = allocation(0, allocated_us=MONDAY_US + 20 * HOUR_US)  # the same claim, allocated again
    again = interval("used", other.allocated_us, TUESDAY_US, of=other, number=1)
    writer.commit(Batch(as_of_us=TUESDAY_US, intervals=((7, again),)))
    unknown = ("never seen", 5)
    writer.commit(Batch(as_of_us=TUESDAY_US, lost=((allocation().claim_uid, MONDAY_US), unknown)))
    marked = {(each.bucket, each.lost): each.time_us // HOUR_US for each in reader.sums(0, 2**62, ())}
    assert marked == {
        ("used", True): 16,
        ("idle", True): 1,
        ("starting", True): 1,
        ("used", False): 4,
        ("free", False): 6,
    }
    assert [each.lost for each in reader.held(0, 2**62)] == [True, False]


def test_a_units_day_adds_up_to_the_whole(day: Day) -> None:
    _, reader = day
    days = list(reader.unit_days(MONDAY_US - DAY_US, TUESDAY_US + DAY_US))
    weighed = {"used": 16, "idle": 1, "starting": 1, "free": 6}
    assert days == [
        UnitDay(unit=unit(), node="node-0", day_us=MONDAY_US, present_us=DAY_US, weighed=tuple((bucket, weighed[bucket] * HOUR_US * WHOLE_PPM) for bucket in BUCKETS if bucket in weighed))
    ]  # fmt: skip
    assert list(reader.broken_days(0, TUESDAY_US)) == []


def test_a_hole_and_an_overlap_are_found_though_their_sum_is_whole(where: str) -> None:
    hole = (interval("free", MONDAY_US, MONDAY_US + 10), interval("free", MONDAY_US + 20, MONDAY_US + 40))
    overlap = interval("broken", MONDAY_US + 30, MONDAY_US + 40)
    with writing(where) as writer, reading(where) as reader:
        writer.commit(Batch(as_of_us=TUESDAY_US, intervals=tuple(enumerate((*hole, overlap), 1))))
        (day,) = reader.unit_days(MONDAY_US, TUESDAY_US)
        assert sum(weighed for _, weighed in day.weighed) == WHOLE_PPM * day.present_us, "the sum alone does not tell"
        (broken,) = reader.broken_days(MONDAY_US, TUESDAY_US)
        assert (broken.unit, broken.start_us, broken.end_us, broken.share_ppm) == (
            unit(),
            MONDAY_US + 10,
            MONDAY_US + 20,
            0,
        )


def test_an_interval_longer_than_a_day_counts_in_each_day_that_it_covers(where: str) -> None:
    begin_us, end_us = MONDAY_US - 40 * DAY_US, MONDAY_US + 40 * DAY_US
    with writing(where) as writer, reading(where) as reader:
        writer.commit(Batch(as_of_us=end_us, intervals=((1, interval("free", begin_us, end_us)),)))
        assert hours(reader, MONDAY_US, TUESDAY_US, "day") == {("2026-09-21", "free"): 24}
        assert hours(reader, begin_us + 1, begin_us + HOUR_US + 1) == {("free",): 1}
        assert hours(reader, end_us - HOUR_US, end_us + HOUR_US) == {("free",): 1}
        assert len(list(reader.unit_days(begin_us, end_us))) == 80


def test_a_later_writer_takes_the_ledger_and_the_one_before_writes_nothing_more(where: str) -> None:
    with writing(where, "first") as first, writing(where, "second") as second, reading(where) as reader:
        with pytest.raises(LedgerTakenError, match="second opened it after first"):
            first.commit(a_day())
        with pytest.raises(LedgerTakenError):
            first.prune(2**62)
        assert reader.known() is None
        second.commit(a_day())
        assert reader.known() == (MONDAY_US, TUESDAY_US)


def test_an_interval_that_ends_before_it_starts_is_refused(where: str) -> None:
    with (
        writing(where) as writer,
        pytest.raises(ValueError, match=f"interval 3 of {unit()}: end_us: 4 is before start_us 5"),
    ):
        writer.commit(Batch(as_of_us=9, intervals=((3, interval("free", 5, 4)),)))
