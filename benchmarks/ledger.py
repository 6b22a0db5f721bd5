"""What a ledger of a million intervals costs: bytes on disk, a week by queue and flavor, and a commit of what changes in five seconds.

    python -m benchmarks ledger
    python -m benchmarks ledger -- --intervals 100000 --without-postgres

A cluster of 4,000 GPUs to which 20,000 claims a day come, in gangs of four on average: each is starting, used, idle, used again, and its
GPU free afterwards, so a million intervals are ten days, and the week has 700,000 of them. Every held interval has samples.
Bars: 100 MB, and 1 s, both on SQLite, whose times are CPU times of this process: it reads from the page cache, and syncs are the disk's.
The same on PostgreSQL where it is installed, without bars and by the clock, since its work is that of another process.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

from fairlead.history.ledger.entries import Allocation, Batch, Bucket, Interval, Measure, Sampled, Unit
from fairlead.history.ledger.store.copying import backup
from fairlead.history.ledger.store.reader import open_reader
from fairlead.history.ledger.store.writer import Writer, open_writer
from fairlead.kube.timestamps import DAY_US, SECOND_US
from tests.support.postgres import NoServerError, server

Clock = Callable[[], float]
BEGIN_US = 1_790_000_000_000_000 // DAY_US * DAY_US
GPUS = 4_000
CLAIMS_A_DAY = 20_000
OF_A_CLAIM = 5  # intervals, with the free one behind it
GANG = 4
ROWS = 20_000  # of one commit while the ledger is filled
COMMITS = 100  # measured
CYCLE_S = 5.0  # what one of these covers
BYTES_BAR_MB = 100.0
WEEK_BAR_S = 1.0


class Cluster:
    """Intervals in the order in which they begin, as a leader would number them."""

    def __init__(self) -> None:
        self._random = Random(43)
        self._free_since = [BEGIN_US] * GPUS
        self._numbers = 0
        self._claims = 0
        self._flavors = [f"flavor-{number}" for number in range(4)]

    def claims(self) -> Iterator[list[tuple[int, Interval]]]:
        """The intervals of one claim after another; arrivals are even."""
        step_us = DAY_US // CLAIMS_A_DAY
        while True:
            arrived_us = BEGIN_US + self._claims * step_us
            if self._claims % GANG == 0:
                user = self._random.randrange(400)
                queue = user // 8
                gang = f"train-{self._claims // GANG:06}"
            self._claims += 1
            # The GPU that is free for longest.
            minor = min(self._random.sample(range(GPUS), 40), key=self._free_since.__getitem__)
            allocation = Allocation(
                claim_uid=str(uuid.UUID(int=self._random.getrandbits(128), version=4)),
                namespace=f"team-{queue:02}",
                claim=f"{gang}-{self._claims % GANG}-gpu-{self._random.getrandbits(20):05x}",
                allocated_us=max(arrived_us, self._free_since[minor]),
                gang=gang,
                queue=f"queue-{queue:02}",
                user=f"user-{user:03}@example.org",
                labels=(("project", f"project-{user % 40:02}"),),
            )
            yield self._of_claim(minor, allocation)

    def _of_claim(self, minor: int, allocation: Allocation) -> list[tuple[int, Interval]]:
        free_since_us = self._free_since[minor]
        start_us = allocation.allocated_us
        made = []
        if free_since_us < start_us:
            made.append(self._interval(minor, "free", free_since_us, start_us, None))
        # Nine tenths of 4,000 GPUs in use by 20,000 claims a day: 4.3 hours each.
        run_s = min(self._random.expovariate(1 / 15_500), 10 * 15_500)
        for bucket, part in (("starting", 0.01), ("used", 0.5), ("idle", 0.1), ("used", 0.39)):
            end_us = start_us + max(1, round(run_s * part * SECOND_US)) + self._random.randrange(SECOND_US)
            made.append(self._interval(minor, bucket, start_us, end_us, allocation))  # type: ignore[arg-type]
            start_us = end_us
        number, last = made[-1]
        made[-1] = number, last.ended(start_us, "Completed")
        self._free_since[minor] = start_us
        return made

    def _interval(
        self, minor: int, bucket: Bucket, start_us: int, end_us: int, allocation: Allocation | None
    ) -> tuple[int, Interval]:
        self._numbers += 1
        node = f"gpu-node-{minor // 8:04}"
        busy = self._random.random() * (0.04 if bucket == "idle" else 1.0)
        sampled = Sampled()
        if allocation is not None:
            sampled_us = (end_us - start_us) // SECOND_US * SECOND_US
            peak_bytes = self._random.randrange(80 * 2**30)
            sampled = Sampled(sampled_us=sampled_us, busy_us=round(sampled_us * busy), memory_peak_bytes=peak_bytes, memory_bytes=80 * 2**30)  # fmt: skip
        measure = Measure(share_ppm=1_000_000, flavor=self._flavors[minor % 4], amount=Fraction(1), capacity_type="on-demand")  # fmt: skip
        return self._numbers, Interval(
            unit=Unit("gpu.fairlead.dev", node, f"gpu-{minor % 8}"),
            node=node,
            bucket=bucket,
            measure=measure,
            start_us=start_us,
            end_us=end_us,
            device="" if allocation is None else f"gpu-{minor % 8}",
            allocation=allocation,
            sampled=sampled,
        )


def fill(writer: Writer, intervals: int) -> tuple[Cluster, Iterator[list[tuple[int, Interval]]], int]:
    """Whose claims come next, and until when the ledger is known."""
    cluster = Cluster()
    claims = cluster.claims()
    rows: list[tuple[int, Interval]] = []
    written = as_of_us = 0
    while written < intervals:
        of_claim = next(claims)
        rows += of_claim
        as_of_us = max(as_of_us, *(interval.end_us or 0 for _, interval in of_claim))
        if len(rows) >= ROWS or written + len(rows) >= intervals:
            writer.commit(Batch(as_of_us=as_of_us, intervals=tuple(rows)))
            written += len(rows)
            rows = []
    return cluster, claims, as_of_us


def commits(writer: Writer, claims: Iterator[list[tuple[int, Interval]]], as_of_us: int, clock: Clock) -> list[float]:
    """Seconds of each: a cycle's claims begin, as many end, and samples of a hundred others are written."""
    each = max(1, round(CLAIMS_A_DAY * CYCLE_S / 86_400))
    others = [interval for _ in range(100) for interval in next(claims)[:1]]
    taken = []
    for _ in range(COMMITS):
        rows = [interval for _ in range(each) for interval in next(claims)]
        began = clock()
        writer.commit(Batch(as_of_us=as_of_us, intervals=(*rows, *others)))
        taken.append(clock() - began)
    return sorted(taken)


def _seconds(work: Callable[[], Any], clock: Clock, runs: int = 3) -> float:
    """The median."""
    taken = []
    for _ in range(runs):
        began = clock()
        work()
        taken.append(clock() - began)
    return sorted(taken)[runs // 2]


def _figures(where: str, intervals: int, label: str, directory: Path, clock: Clock) -> list[dict[str, Any]]:
    writer = open_writer(where, writer="bench")
    began = clock()
    _, claims, as_of_us = fill(writer, intervals)
    filled_s = clock() - began
    writer.close()  # of SQLite: the log goes into the file
    reader = open_reader(where)
    since_us, until_us = as_of_us - 10 * DAY_US, as_of_us - 3 * DAY_US
    size = reader.info().size_bytes
    week_s = _seconds(lambda: reader.sums(since_us, until_us, ("queue", "flavor")), clock)
    others = {
        "week-by-gang": lambda: reader.sums(since_us, until_us, ("gang",)),
        "week-by-day-and-queue": lambda: reader.sums(since_us, until_us, ("day", "queue")),
        "week-of-claims": lambda: sum(1 for _ in reader.held(since_us, until_us)),
        "week-of-units": lambda: sum(1 for _ in reader.unit_days(since_us, until_us)),
        "week-checked": lambda: sum(1 for _ in reader.broken_days(since_us, until_us)),
        "backup": lambda: backup(where, str(directory / f"backup-{time.monotonic_ns()}.sqlite")),
    }
    taken = {name: _seconds(work, clock, runs=1) for name, work in others.items()}
    reader.close()
    writer = open_writer(where, writer="bench")
    committed = commits(writer, claims, as_of_us, clock)
    pruned_s = _seconds(lambda: writer.prune(until_us), clock)
    writer.close()
    return [
        {"figure": f"{label}/disk", "value": round(size / 1e6, 1), "unit": "MB", "bar": BYTES_BAR_MB if clock is time.process_time else None, "scaled": False, "intervals": intervals},
        {"figure": f"{label}/week-by-queue-and-flavor", "value": round(week_s, 3), "unit": "s", "bar": WEEK_BAR_S if clock is time.process_time else None},
        *({"figure": f"{label}/{name}", "value": round(value, 3), "unit": "s", "bar": None} for name, value in taken.items()),
        {"figure": f"{label}/fill", "value": round(intervals / filled_s), "unit": "intervals/s", "bar": None},
        {"figure": f"{label}/commit-p50", "value": round(1000 * committed[len(committed) // 2], 2), "unit": "ms", "bar": None},
        {"figure": f"{label}/commit-p99", "value": round(1000 * committed[int(len(committed) * 0.99)], 2), "unit": "ms", "bar": None},
        {"figure": f"{label}/prune-step", "value": round(1000 * pruned_s, 1), "unit": "ms", "bar": None},
    ]  # fmt: skip


def figures(*words: str) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks ledger --")
    parser.add_argument("--intervals", type=int, default=1_000_000)
    parser.add_argument("--without-postgres", action="store_true", help="SQLite alone")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        found = _figures(str(directory / "ledger"), options.intervals, "ledger/sqlite", directory, time.process_time)
        with contextlib.suppress(NoServerError):
            if not options.without_postgres:
                with server() as running:
                    found += _figures(running.new_database(), options.intervals, "ledger/postgresql", directory, time.perf_counter)  # fmt: skip
    return found
