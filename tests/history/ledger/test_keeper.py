"""The keeper: what waits while a store refuses, what is begun anew, and when somebody else has the ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from fairlead.history.ledger import keeper
from fairlead.history.ledger.entries import Batch, ClaimEnded, Interval, Kept, Observation
from fairlead.history.ledger.keeper import Keeper

from .test_account import at, claim, seen, unit


class RefusedError(Exception):
    pass


class TakenError(RefusedError):
    pass


class Disk:
    """Of several writers, one after the other. `refuses`: with what every call fails."""

    def __init__(self) -> None:
        self.rows: dict[int, Interval] = {}
        self.batches: list[Batch] = []
        self.refuses: Exception | None = None
        self.opened = 0
        self.pruned: list[int] = []

    def open(self) -> Store:
        self.check()
        self.opened += 1
        return Store(self)

    def check(self) -> None:
        if self.refuses is not None:
            raise self.refuses


class Store:
    def __init__(self, disk: Disk) -> None:
        self.disk = disk

    def kept(self) -> Kept:
        self.disk.check()
        last = self.disk.batches[-1] if self.disk.batches else None
        return Kept(
            as_of_us=None if last is None else last.as_of_us,
            next_number=max(self.disk.rows, default=0) + 1,
            open={number: row for number, row in self.disk.rows.items() if row.end_us is None},
            lease_transitions=None if last is None else last.lease_transitions,
        )

    def commit(self, batch: Batch) -> None:
        self.disk.check()
        assert not self.disk.batches or batch.as_of_us >= self.disk.batches[-1].as_of_us, "in order"
        self.disk.rows |= dict(batch.intervals)
        self.disk.batches.append(batch)

    def prune(self, before_us: int) -> int:
        self.disk.pruned.append(before_us)
        return 0

    def close(self) -> None:
        pass


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "COMMIT_S", 0.01)


Make = Callable[..., Keeper]


@pytest.fixture
def make(disk: Disk, clock: Clock) -> Iterator[Make]:
    made: list[Keeper] = []

    def keep(transitions: int = 1, keep_us: int | None = None) -> Keeper:
        made.append(
            Keeper(
                disk.open,
                errors=(RefusedError,),
                taken=TakenError,
                clock=clock,
                lease_transitions=transitions,
                keep_us=keep_us,
            )
        )
        return made[-1]

    yield keep
    for each in made:
        each.close()


def until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.005)


def whole(now_s: float, **more: object) -> Observation:
    return Observation(now_us=at(now_s), units=(seen(), seen("gpu-1")), **more)  # type: ignore[arg-type]


def told(disk: Disk, now_s: float) -> bool:
    return bool(disk.batches) and disk.batches[-1].as_of_us >= at(now_s)


def begun(disk: Disk, clock: Clock, keep: Keeper) -> Keeper:
    keep.observe(whole(0), whole=True)
    clock.now += 1
    until(lambda: told(disk, 0), "the first look is written")
    return keep


def test_what_a_store_refuses_is_written_when_it_takes_it_again_and_nothing_is_lost(
    disk: Disk, clock: Clock, make: Make
):
    keep = make()
    wanted = [keep.wants_whole]
    keep.observe(whole(0), whole=True)
    assert [*wanted, keep.wants_whole] == [True, False]
    clock.now += 1
    until(lambda: told(disk, 0), "the first look is written")
    disk.refuses = RefusedError("no space left")
    keep.observe(Observation(now_us=at(5), claims=(claim("a", 4, "gpu-0"),)), whole=False)
    clock.now += 1
    until(lambda: keep.counts.failures == 1, "it is refused")
    assert keep.problem() == "no space left"
    assert keep.problem() is None
    keep.observe(
        Observation(now_us=at(9), ended=(ClaimEnded(claim_uid="a", at_us=at(8), ended_by="Completed"),)), whole=False
    )
    clock.now += keeper.RETRY_S
    until(lambda: keep.counts.failures == 2, "it is tried again")
    assert keep.problem() is None, "told once"
    assert keep.counts.pending > 0
    disk.refuses = None
    clock.now += keeper.RETRY_S
    until(lambda: told(disk, 9), "it is written")
    assert keep.counts.pending == 0
    assert not keep.wants_whole
    held = [row for row in disk.rows.values() if row.allocation]
    assert [(row.start_us, row.end_us, row.ended_by) for row in held] == [(at(4), at(8), "Completed")]
    assert keep.counts.gaps == 0


def test_beyond_the_bound_the_time_is_a_gap_with_its_reason(
    disk: Disk, clock: Clock, make: Make, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(keeper, "PENDING_MAX", 3)
    keep = begun(disk, clock, make())
    disk.refuses = RefusedError("the server is gone")
    for number in range(1, 4):
        keep.observe(Observation(now_us=at(number), claims=(claim(f"c{number}", number, "gpu-0"),)), whole=False)
        clock.now += keeper.RETRY_S
        until(lambda number=number: keep.counts.failures >= number or keep.wants_whole, "it is refused")  # type: ignore[misc]
    until(lambda: keep.wants_whole, "too much waits")
    disk.refuses = None
    clock.now += keeper.RETRY_S
    keep.observe(Observation(now_us=at(3.5)), whole=False)  # not taken: everything is wanted
    keep.observe(whole(60, claims=(claim("c3", 3, "gpu-0"),)), whole=True)
    clock.now += 1
    until(lambda: told(disk, 60), "it goes on")
    (gap,) = [gap for batch in disk.batches for gap in batch.gaps]
    assert (gap.start_us, gap.end_us, gap.reason) == (
        at(0),
        at(60),
        "the ledger could not be written: the server is gone",
    )
    story = sorted(
        (row.unit.name, row.bucket, row.start_us, row.end_us)
        for row in disk.rows.values()
        if row.end_us != row.start_us
    )
    assert story == [
        ("gpu-0", "starting", at(3), None),
        ("gpu-0", "unknown", at(0), at(3)),
        ("gpu-1", "free", at(60), None),
        ("gpu-1", "unknown", at(0), at(60)),
    ]


def test_a_leader_that_follows_directly_knows_that_what_was_free_stayed_free(disk: Disk, clock: Clock, make: Make):
    for transitions, now_s in ((4, 0), (5, 100), (7, 200)):
        keep = make(transitions)
        keep.observe(whole(now_s), whole=True)
        clock.now += 1
        until(lambda now_s=now_s: told(disk, now_s), "it is written")  # type: ignore[misc]
        keep.close()
    rows = sorted(
        (row.start_us, row.bucket, row.end_us)
        for row in disk.rows.values()
        if row.unit == unit() and row.end_us != row.start_us
    )
    assert rows == [(at(0), "free", at(100)), (at(100), "unknown", at(200)), (at(200), "free", None)]


def test_another_writer_ends_it_and_that_is_told(disk: Disk, clock: Clock, make: Make):
    keep = begun(disk, clock, make())
    disk.refuses = TakenError("another has it")
    keep.observe(Observation(now_us=at(5), claims=(claim("a", 4, "gpu-0"),)), whole=False)
    clock.now += 1
    until(lambda: keep.counts.failures == 1, "it is refused")
    disk.refuses = None
    clock.now += 100
    keep.observe(whole(200), whole=True)
    keep.close()
    assert (disk.opened, disk.batches[-1].as_of_us) == (1, at(0))
    assert keep.problem() == "another has it"


def test_a_defect_of_the_accounting_ends_no_thread(
    disk: Disk, clock: Clock, make: Make, caplog: pytest.LogCaptureFixture
):
    keep = begun(disk, clock, make())
    keep.observe(Observation(now_us="now"), whole=False)  # type: ignore[arg-type]
    until(lambda: keep.wants_whole, "everything is wanted again")
    clock.now += keeper.RETRY_S
    keep.observe(whole(60), whole=True)
    clock.now += 1
    until(lambda: told(disk, 60), "it goes on")
    assert "accounting failed" in caplog.text


def test_old_intervals_are_removed(disk: Disk, clock: Clock, make: Make):
    keep = make(keep_us=1_000_000)
    keep.observe(whole(100), whole=True)
    clock.now += 1
    until(lambda: bool(disk.pruned), "it is pruned")
    assert disk.pruned[0] == at(99)
