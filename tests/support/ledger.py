"""Intervals of a few units, for tests of the ledger's store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

from fairlead.history.ledger.entries import Allocation, Batch, Bucket, Interval, Measure, Sampled, Unit
from fairlead.history.ledger.store.reader import Reader, open_reader
from fairlead.history.ledger.store.writer import Writer, open_writer
from fairlead.kube.timestamps import DAY_US, HOUR_US

MONDAY_US = 1_790_000_000_000_000 // DAY_US * DAY_US  # any midnight
WHOLE = Measure(share_ppm=1_000_000, flavor="h100", amount=Fraction(1), capacity_type="spot")
FREE = Measure(share_ppm=1_000_000)


@contextmanager
def writing(where: str, writer: str = "a leader") -> Iterator[Writer]:
    made = open_writer(where, writer=writer)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def reading(where: str) -> Iterator[Reader]:
    made = open_reader(where)
    try:
        yield made
    finally:
        made.close()


def unit(number: int = 0) -> Unit:
    return Unit("gpu.fairlead.dev", f"node-{number // 8}", f"gpu-{number % 8}")


def allocation(number: int = 0, **fields: Any) -> Allocation:
    made: dict[str, Any] = {
        "claim_uid": f"00000000-0000-4000-8000-{number:012x}",
        "namespace": "ml",
        "claim": f"train-{number}",
        "allocated_us": MONDAY_US,
        "gang": "train",
        "queue": "research",
        "user": "ada@example.org",
        "labels": (("project", "p1"), ("team", "räume")),
    }
    return Allocation(**(made | fields))


def interval(
    bucket: Bucket,
    start_us: int,
    end_us: int | None = None,
    *,
    of: Allocation | None = None,
    number: int = 0,
    **fields: Any,
) -> Interval:
    """Of unit `number`."""
    made: dict[str, Any] = {
        "unit": unit(number),
        "node": unit(number).pool,
        "measure": FREE if of is None else WHOLE,
        "device": "" if of is None else unit(number).name,
        "allocation": of,
    }
    return Interval(bucket=bucket, start_us=start_us, end_us=end_us, **(made | fields))


def a_day() -> Batch:
    """One GPU: free, then held by a claim (starting, used, idle, used), then free, which goes on; known until the day's end."""
    held = allocation()
    at = [MONDAY_US + hour * HOUR_US for hour in (0, 2, 3, 9, 10, 20)]
    sampled = Sampled(sampled_us=5 * HOUR_US, busy_us=4 * HOUR_US, memory_peak_bytes=7 * 2**30, memory_bytes=80 * 2**30)
    return Batch(
        as_of_us=MONDAY_US + DAY_US,
        intervals=(
            (1, interval("free", at[0], at[1])),
            (2, interval("starting", at[1], at[2], of=held)),
            (3, interval("used", at[2], at[3], of=held, sampled=sampled)),
            (4, interval("idle", at[3], at[4], of=held)),
            (5, interval("used", at[4], at[5], of=held, ended_by="Completed")),
            (6, interval("free", at[5])),
        ),
    )
