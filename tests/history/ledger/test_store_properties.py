"""For any intervals: sums over a window are the integral over the intervals, samples too, so they add up over adjacent windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.history.ledger.entries import HELD, WHOLE_PPM, Batch, Bucket, Interval, Measure, Sampled
from fairlead.history.ledger.store.reader import Reader, open_reader
from fairlead.history.ledger.store.schema import LEDGER, METADATA
from fairlead.history.ledger.store.writer import Writer, open_writer
from fairlead.kube.timestamps import DAY_US
from tests.support.engine.examples import examples
from tests.support.ledger import MONDAY_US, allocation, interval

SPAN_US = 5 * DAY_US
MOMENTS = st.integers(0, SPAN_US)
BUCKETS: st.SearchStrategy[Bucket] = st.sampled_from(["used", "idle", "free", "broken"])
Store = tuple[Writer, Reader]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One for all examples, each of which empties it first: a database takes longer to make than an example."""
    where = str(tmp_path_factory.mktemp("ledger"))
    if request.param == "postgresql":
        where = request.getfixturevalue("postgres").new_database()
    writer, reader = open_writer(where, writer="examples"), open_reader(where)
    yield writer, reader
    reader.close()
    writer.close()


def empty(writer: Writer) -> None:
    with writer._database.transaction() as connection:
        for table in METADATA.sorted_tables:
            if table is not LEDGER:
                connection.execute(table.delete())
        connection.execute(LEDGER.update().values(as_of_us=None, next_number=1))
    writer._interning.forget()


@st.composite
def timelines(draw: st.DrawFn) -> list[Interval]:
    """Two units, each cut where moments fall, from the first to the last of them; the last interval may go on."""
    made: list[Interval] = []
    for number in range(2):
        moments = sorted(draw(st.sets(MOMENTS, min_size=1, max_size=8)))
        for place, begin_us in enumerate(moments):
            last = place + 1 == len(moments)
            end_us = (SPAN_US if draw(st.booleans()) else None) if last else moments[place + 1]
            bucket: Bucket = draw(BUCKETS)
            length_us = (SPAN_US if end_us is None else end_us) - begin_us
            sampled_us = draw(st.integers(0, length_us)) if bucket in HELD else 0
            of = (
                allocation(draw(st.integers(0, 3)), queue=draw(st.sampled_from(["a", "b"]))) if bucket in HELD else None
            )
            share_ppm = draw(st.sampled_from([WHOLE_PPM, 428_571]))
            made += [
                    interval(
                        bucket, MONDAY_US + begin_us, None if end_us is None else MONDAY_US + end_us, of=of, number=number,
                        measure=Measure(share_ppm=share, flavor=draw(st.sampled_from(["", "h100"]))),
                        sampled=Sampled(sampled_us=sampled_us, busy_us=draw(st.integers(0, sampled_us))),
                        lost=draw(st.booleans()),
                    )
                for share in sorted({share_ppm, WHOLE_PPM - share_ppm} - {0})
            ]  # fmt: skip
    return made


WINDOWS = st.tuples(MOMENTS, MOMENTS, MOMENTS).map(lambda moments: [MONDAY_US + moment for moment in sorted(moments)])


def write(writer: Writer, intervals: list[Interval]) -> None:
    empty(writer)
    writer.commit(Batch(as_of_us=MONDAY_US + SPAN_US, intervals=tuple(enumerate(intervals, 1))))


def until(value: int, one: Interval, moment_us: int) -> int:
    """What of a value that is spread over the interval lies before the moment, rounded down."""
    end_us = MONDAY_US + SPAN_US if one.end_us is None else one.end_us
    covered_us = min(max(moment_us, one.start_us), end_us) - one.start_us
    return value * covered_us // (end_us - one.start_us) if end_us > one.start_us else 0


def integral(intervals: list[Interval], since_us: int, until_us: int) -> Counter[tuple[object, ...]]:
    found: Counter[tuple[object, ...]] = Counter()
    for one in intervals:
        end_us = MONDAY_US + SPAN_US if one.end_us is None else one.end_us
        key = (one.allocation.queue if one.allocation else "", one.measure.flavor, one.bucket, one.lost, one.measure)
        time_us = max(0, min(end_us, until_us) - max(one.start_us, since_us))
        if time_us:
            found[*key, "time"] += time_us
            found[*key, "sampled"] += until(one.sampled.sampled_us, one, until_us) - until(
                one.sampled.sampled_us, one, since_us
            )
            found[*key, "busy"] += until(one.sampled.busy_us, one, until_us) - until(one.sampled.busy_us, one, since_us)
    return +found


def summed(reader: Reader, since_us: int, until_us: int, *by: str) -> Counter[tuple[object, ...]]:
    found: Counter[tuple[object, ...]] = Counter()
    for each in reader.sums(since_us, until_us, ("queue", "flavor", *by)):
        key = (*each.keys[:2], each.bucket, each.lost, each.measure)
        found[*key, "time"] += each.time_us
        found[*key, "sampled"] += each.sampled_us
        found[*key, "busy"] += each.busy_us
    return +found


@settings(max_examples=examples(60))
@given(intervals=timelines(), window=WINDOWS)
def test_sums_are_the_integral_over_the_intervals(store: Store, intervals: list[Interval], window: list[int]) -> None:
    writer, reader = store
    write(writer, intervals)
    since_us, _, until_us = window
    want = integral(intervals, since_us, until_us)
    assert summed(reader, since_us, until_us) == want
    assert summed(reader, since_us, until_us, "unit", "gang") == want
    assert summed(reader, since_us, until_us, "day") == want


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(intervals=timelines(), window=WINDOWS)
def test_claims_and_days_have_the_same_time_as_sums(store: Store, intervals: list[Interval], window: list[int]) -> None:
    writer, reader = store
    write(writer, intervals)
    since_us, _, until_us = window
    want: Counter[str] = Counter()
    weighed: Counter[str] = Counter()
    for each in reader.sums(since_us, until_us, ()):
        want[each.bucket] += each.time_us
        weighed[each.bucket] += each.time_us * each.measure.share_ppm
    held: Counter[str] = Counter()
    for one in reader.held(since_us, until_us):
        held.update(dict(one.times_us))
    assert held == {bucket: time_us for bucket, time_us in want.items() if bucket in HELD}
    days: Counter[str] = Counter()
    for day in reader.unit_days(since_us, until_us):
        assert sum(part for _, part in day.weighed) == WHOLE_PPM * day.present_us
        days.update(dict(day.weighed))
    assert days == weighed
    assert list(reader.broken_days(since_us, until_us)) == []
