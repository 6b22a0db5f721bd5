"""The account of the ledger: each unit's time is split without gap or overlap, and claims' times are exact."""

from __future__ import annotations

import dataclasses
import random
from collections import defaultdict
from fractions import Fraction
from typing import Any

import pytest

from fairlead.history.ledger.account import Account
from fairlead.history.ledger.entries import (
    HELD,
    WHOLE_PPM,
    Allocation,
    ClaimEnded,
    ClaimSeen,
    Interval,
    Kept,
    Measure,
    Observation,
    PartSeen,
    Unit,
    UnitSeen,
    UsageSeen,
)
from fairlead.kube.timestamps import DAY_US

S = 1_000_000
T0 = 20_000 * DAY_US
WHOLE = Measure(share_ppm=WHOLE_PPM, flavor="h100", amount=Fraction(1))
NEW = Kept(as_of_us=None, next_number=1, open={})


def unit(name: str = "gpu-0", node: str = "n1") -> Unit:
    return Unit("gpu.fairlead.dev", node, name)


def seen(name: str = "gpu-0", vacancy: str = "free") -> UnitSeen:
    return UnitSeen(unit=unit(name), node="n1", whole=WHOLE, vacancy=vacancy)  # type: ignore[arg-type]


def claim(
    uid: str, at_s: float, *names: str, started_s: float | None = None, finished_s: float | None = None,
    share_ppm: int = WHOLE_PPM, usage: UsageSeen | None = None, queue: str = "team",
) -> ClaimSeen:  # fmt: skip
    measure = dataclasses.replace(WHOLE, share_ppm=share_ppm, amount=Fraction(share_ppm, WHOLE_PPM))
    return ClaimSeen(
        allocation=Allocation(claim_uid=uid, namespace="ml", claim=uid, allocated_us=at(at_s), queue=queue),
        parts=tuple(PartSeen(unit=unit(name), device=f"{name}-{uid}", measure=measure, usage=usage) for name in names),
        started_us=None if started_s is None else at(started_s),
        finished_us=None if finished_s is None else at(finished_s),
    )


def at(seconds: float) -> int:
    return T0 + round(seconds * S)


def ended(uid: str, at_s: float, by: str = "Completed", *, lost: bool = False) -> ClaimEnded:
    return ClaimEnded(claim_uid=uid, at_us=at(at_s), ended_by=by, lost=lost)  # type: ignore[arg-type]


class Ledger:
    """An account, and all that it wrote, as a store keeps it."""

    def __init__(self) -> None:
        self.rows: dict[int, Interval] = {}
        self.as_of_us: int | None = None
        self.lost: list[tuple[str, int]] = []
        self.gaps: list[tuple[int, int]] = []
        self.account = Account(NEW)

    def begin(self, now_s: float, *, sole: bool = True, ends: Any = None, **what: object) -> None:
        """Another leader, which sees everything that is there."""
        still_open = {number: row for number, row in self.rows.items() if row.end_us is None}
        kept = Kept(as_of_us=self.as_of_us, next_number=max(self.rows, default=0) + 1, open=still_open)
        self.account = Account(kept)
        more = {} if ends is None else {"ends": ends}
        self.account.resume(Observation(now_us=at(now_s), **what), sole=sole, **more)  # type: ignore[arg-type]
        self._write()

    def observe(self, now_s: float, **what: object) -> None:
        self.account.observe(Observation(now_us=at(now_s), **what))  # type: ignore[arg-type]
        self._write()

    def _write(self) -> None:
        batch = self.account.take()
        for number, row in batch.intervals:
            assert self.rows.get(number, row).start_us == row.start_us
            assert number not in self.rows or self.rows[number].end_us is None, "what ended is not written again"
            self.rows[number] = row
        self.as_of_us = batch.as_of_us
        self.lost += batch.lost
        self.gaps += [((gap.start_us - T0) // S, (gap.end_us - T0) // S) for gap in batch.gaps]

    def story(self, name: str = "gpu-0") -> list[tuple[str, str, float, float | None]]:
        """Bucket, claim, and seconds since T0, of one unit; empty intervals aside."""
        rows = sorted(
            (row for row in self.rows.values() if row.unit.name == name and row.end_us != row.start_us),
            key=lambda row: (row.start_us, row.allocation is None, row.device),
        )
        return [
            (
                row.bucket,
                row.allocation.claim_uid if row.allocation else "",
                (row.start_us - T0) / S,
                None if row.end_us is None else (row.end_us - T0) / S,
            )
            for row in rows
        ]

    def check(self) -> None:
        """Each unit's shares are the whole unit at each instant, from its first to its last."""
        assert self.as_of_us is not None
        open_shares: dict[tuple[str, str], int] = defaultdict(int)
        for row in self.rows.values():
            if row.end_us is None:
                open_shares[row.bucket, row.measure.flavor] += row.measure.share_ppm
        assert self.account.devices() == dict(open_shares)
        by_unit = defaultdict(list)
        for row in self.rows.values():
            by_unit[row.unit].append(row)
        for rows in by_unit.values():
            steps: dict[int, int] = defaultdict(int)
            for row in rows:
                end_us = self.as_of_us if row.end_us is None else row.end_us
                assert row.start_us <= end_us
                assert (row.allocation is not None) == (row.bucket in HELD)
                steps[row.start_us] += row.measure.share_ppm
                steps[end_us] -= row.measure.share_ppm
            level, times = 0, sorted(steps)
            for number, time_us in enumerate(times):
                level += steps[time_us]
                assert level == (WHOLE_PPM if number + 1 < len(times) else 0), rows


def test_a_claim_is_starting_used_and_idle_and_the_gpu_is_free_before_and_after():
    ledger = Ledger()
    ledger.begin(0, units=(seen(),))
    ledger.observe(5, claims=(claim("a", 4, "gpu-0"),))
    ledger.observe(11, claims=(claim("a", 4, "gpu-0", started_s=10),))
    idle = UsageSeen(idle=True, since_us=at(30), sampled_us=at(60), busy_percent=0)
    ledger.observe(61, claims=(claim("a", 4, "gpu-0", started_s=10, usage=idle),))
    busy = UsageSeen(idle=False, since_us=at(70), sampled_us=at(90), busy_percent=80)
    ledger.observe(91, claims=(claim("a", 4, "gpu-0", started_s=10, usage=busy),))
    ledger.observe(91.5, claims=(claim("a", 4, "gpu-0", started_s=10, usage=busy),))
    ledger.observe(100, ended=(ended("a", 99.5),))
    assert ledger.story() == [
        ("free", "", 0, 4), ("starting", "a", 4, 10), ("used", "a", 10, 30), ("idle", "a", 30, 70), ("used", "a", 70, 99.5),
        ("free", "", 99.5, None),
    ]  # fmt: skip
    ledger.check()
    used = next(row for row in ledger.rows.values() if row.start_us == at(70))
    assert (used.ended_by, used.sampled.sampled_us, used.sampled.busy_us) == ("Completed", 20 * S, 16 * S)


def test_a_claim_that_is_first_seen_when_it_has_ended_its_work():
    ledger = Ledger()
    ledger.begin(0, units=(seen(),))
    ledger.observe(60, claims=(claim("a", 4, "gpu-0", started_s=10, finished_s=50),))
    ledger.observe(61, ended=(ended("a", 61),), claims=(claim("b", 61, "gpu-0"),))
    assert ledger.story() == [
        ("free", "", 0, 4), ("starting", "a", 4, 10), ("used", "a", 10, 50), ("idle", "a", 50, 61), ("starting", "b", 61, None),
    ]  # fmt: skip
    ledger.check()


def test_parts_of_one_gpu_and_what_is_left_of_it_are_fragmented():
    ledger = Ledger()
    ledger.begin(0, units=(seen(),), claims=(claim("a", 0, "gpu-0", share_ppm=428_571),))
    ledger.observe(5, units=(seen(vacancy="fragmented"),))
    ledger.observe(9, claims=(claim("b", 8, "gpu-0", share_ppm=571_429),))
    ledger.observe(20, ended=(ended("a", 20),))
    assert ledger.story() == [
        ("starting", "a", 0, 20), ("free", "", 0, 5), ("fragmented", "", 5, 8), ("starting", "b", 8, None), ("fragmented", "", 20, None),
    ]  # fmt: skip
    ledger.check()
    left = next(row for row in ledger.rows.values() if row.bucket == "fragmented" and row.end_us is None)
    assert (left.measure.share_ppm, left.measure.amount) == (428_571, Fraction(428_571, WHOLE_PPM))


def test_shares_of_a_device_that_is_overdrawn_are_scaled_and_their_amounts_are_not():
    ledger = Ledger()
    ledger.begin(0, units=(seen(),))
    ledger.observe(1, claims=(claim("a", 1, "gpu-0", share_ppm=800_000), claim("b", 1, "gpu-0", share_ppm=700_000)))
    ledger.check()
    rows = [row for row in ledger.rows.values() if row.end_us is None]
    assert sorted((row.measure.share_ppm, row.measure.amount) for row in rows) == [
        (466_667, Fraction(7, 10)),
        (533_333, Fraction(8, 10)),
    ]
    ledger.observe(3, ended=(ended("b", 3),))
    ledger.check()
    assert {row.measure.share_ppm for row in ledger.rows.values() if row.end_us is None} == {800_000, 200_000}


def test_a_restart_that_nobody_used_leaves_no_gap():
    """The claim is the same one, and what was free stayed free: nobody else could have allocated it."""
    ledger = Ledger()
    ledger.begin(0, units=(seen(), seen("gpu-1")), claims=(claim("a", 0, "gpu-0"),))
    ledger.observe(2, claims=(claim("a", 0, "gpu-0", started_s=1),))
    ledger.begin(100, units=(seen(), seen("gpu-1")), claims=(claim("a", 0, "gpu-0", started_s=1),))
    ledger.observe(120)
    assert ledger.story() == [("starting", "a", 0, 1), ("used", "a", 1, None)]
    assert ledger.story("gpu-1") == [("free", "", 0, None)]
    assert ledger.gaps == []
    ledger.check()


def test_what_happened_while_nobody_looked_is_unknown_until_the_next_thing_that_is_known():
    ledger = Ledger()
    ledger.begin(0, units=(seen(), seen("gpu-1")), claims=(claim("a", 0, "gpu-0", started_s=0),))
    ledger.observe(10)
    ledger.begin(310, units=(seen(), seen("gpu-1")), claims=(claim("b", 120, "gpu-1"), claim("c", 200, "gpu-0")))
    assert ledger.story() == [("used", "a", 0, 10), ("unknown", "", 10, 200), ("starting", "c", 200, None)]
    assert ledger.story("gpu-1") == [("free", "", 0, 120), ("starting", "b", 120, None)]
    assert [row.ended_by for row in ledger.rows.values() if row.allocation and row.allocation.claim_uid == "a"] == [
        "Unknown"
    ]
    assert ledger.gaps == [(10, 310)]
    ledger.check()


def test_a_claim_that_a_recorded_decision_saw_gone_was_held_until_then():
    ledger = Ledger()
    ledger.begin(0, units=(seen(), seen("gpu-1")), claims=(claim("a", 0, "gpu-0", started_s=0), claim("b", 0, "gpu-1")))
    ledger.observe(10)
    asked: list[frozenset[str]] = []

    def ends(claims: frozenset[str]) -> dict[str, int]:
        asked.append(claims)
        return {"a": at(40), "b": at(5), "c": at(50)}  # of b it knows nothing: the ledger saw it later

    ledger.begin(100, units=(seen(), seen("gpu-1")), ends=ends)
    assert asked == [frozenset({"a", "b"})]
    assert ledger.story() == [("used", "a", 0, 40), ("unknown", "", 40, 100), ("free", "", 100, None)]
    assert ledger.story("gpu-1") == [("starting", "b", 0, 10), ("unknown", "", 10, 100), ("free", "", 100, None)]
    assert ledger.gaps == [(10, 100)]
    ledger.check()


def test_after_another_leader_what_seemed_free_is_unknown():
    ledger = Ledger()
    ledger.begin(0, units=(seen(), seen("gpu-1")))
    ledger.observe(10)
    ledger.begin(60, sole=False, units=(seen(), seen("gpu-1")), claims=(claim("b", 40, "gpu-1"),))
    assert ledger.story() == [("free", "", 0, 10), ("unknown", "", 10, 60), ("free", "", 60, None)]
    assert ledger.story("gpu-1") == [("free", "", 0, 10), ("unknown", "", 10, 40), ("starting", "b", 40, None)]
    ledger.check()


def test_one_claim_allocated_twice_has_two_stories():
    ledger = Ledger()
    ledger.begin(0, units=(seen(), seen("gpu-1")), claims=(claim("a", 0, "gpu-0"),))
    ledger.observe(50, claims=(claim("a", 30, "gpu-1"),))
    assert ledger.story() == [("starting", "a", 0, 30), ("free", "", 30, None)]
    assert ledger.story("gpu-1") == [("free", "", 0, 30), ("starting", "a", 30, None)]
    ledger.check()


def test_work_lost_to_an_eviction_is_marked_and_a_node_that_goes_ends_its_units():
    ledger = Ledger()
    ledger.begin(0, units=(seen(), seen("gpu-1")), claims=(claim("a", 0, "gpu-0"), claim("b", 0, "gpu-1")))
    ledger.observe(10, ended=(ended("a", 9, "Evicted", lost=True),), gone=(unit("gpu-1"),))
    assert ledger.lost == [("a", at(0))]
    assert ledger.story("gpu-1") == [("starting", "b", 0, 10)]
    ledger.observe(20, units=(seen("gpu-1"),))
    assert ledger.story("gpu-1") == [("starting", "b", 0, 10), ("free", "", 20, None)]


def test_a_clock_that_is_set_back_stops_the_ledger_and_never_turns_it():
    ledger = Ledger()
    ledger.begin(100, units=(seen(),))
    ledger.observe(40, claims=(claim("a", 30, "gpu-0", started_s=35),))
    ledger.observe(50, ended=(ended("a", 50),))
    ledger.begin(60, units=(seen(),))
    ledger.observe(130, units=(seen(vacancy="broken"),))
    assert ledger.story() == [("free", "", 100, 130), ("broken", "", 130, None)]
    assert ledger.as_of_us == at(130)


def test_intervals_of_claims_end_at_midnight_and_go_on():
    ledger = Ledger()
    ledger.begin(0, units=(seen(), seen("gpu-1")), claims=(claim("a", 0, "gpu-0", started_s=0),))
    day_s = DAY_US / S
    ledger.observe(2.5 * day_s)
    assert ledger.story() == [("used", "a", 0, day_s), ("used", "a", day_s, 2 * day_s), ("used", "a", 2 * day_s, None)]
    assert ledger.story("gpu-1") == [("free", "", 0, None)]
    assert {row.ended_by for row in ledger.rows.values()} == {""}
    ledger.check()


def play_month(ledger: Ledger, seed: int) -> tuple[dict[str, int], set[str]]:
    """Thirty days of some GPUs, whole and in parts, and of leaders that come and go.

    Returns the exact time of each claim that a leader saw end, in microseconds, and the claims that ended while none looked.
    """
    chance = random.Random(seed)
    names = [f"gpu-{number}" for number in range(4)]
    held: dict[str, tuple[ClaimSeen, str]] = {}
    truth_us: dict[str, int] = {}  # of claims that ended, and that a leader saw end
    now_s, number, hidden = 0.0, 0, set[str]()
    ledger.begin(0, units=tuple(map(seen, names)))
    while now_s < 30 * DAY_US / S:
        new: dict[str, ClaimSeen] = {}
        short: list[ClaimSeen] = []  # came and went between two looks
        ends: list[ClaimEnded] = []
        blind = chance.random() < 0.15  # no leader looks: what happens is not told
        for _ in range(chance.randrange(1, 6)):
            now_s += chance.expovariate(1 / 2000)
            if held and chance.random() < 0.5:
                uid = chance.choice(sorted(held))
                own, _ = held.pop(uid)
                if uid in new:
                    short.append(new.pop(uid))
                if blind:
                    hidden.add(uid)
                else:
                    ends.append(ended(uid, now_s, "Evicted", lost=chance.random() < 0.3))
                    truth_us[uid] = at(now_s) - own.allocation.allocated_us
            free = [name for name in names if name not in {where for _, where in held.values()}]
            if free and chance.random() < 0.7:
                number += 1
                now_s = float(int(now_s) + 1)
                where = chance.choice(free)
                own = claim(
                    f"c{number}",
                    now_s,
                    where,
                    started_s=now_s + chance.choice((0, 3)),
                    share_ppm=chance.choice((WHOLE_PPM, 250_000)),
                )
                held[f"c{number}"] = (own, where)
                new[f"c{number}"] = own
        now_s += 5
        everything = tuple(own for own, _ in held.values())
        if blind:
            ledger.begin(now_s, units=tuple(map(seen, names)), claims=everything, sole=chance.random() < 0.5)
        else:
            ledger.observe(now_s, ended=tuple(ends), claims=(*new.values(), *short))
    return truth_us, hidden


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(12))
def test_thirty_days_with_restarts_are_the_exact_integral(seed: int):
    """The difference is 0 where time is known."""
    ledger = Ledger()
    truth_us, hidden = play_month(ledger, seed)
    ledger.check()
    told_us: dict[str, int] = defaultdict(int)
    for row in ledger.rows.values():
        if row.allocation is not None and row.end_us is not None:
            told_us[row.allocation.claim_uid] += row.end_us - row.start_us
    assert truth_us
    assert {uid: told_us[uid] for uid in truth_us} == truth_us
    for uid in hidden & told_us.keys():
        ends_by = {row.ended_by for row in ledger.rows.values() if row.allocation and row.allocation.claim_uid == uid}
        assert "Unknown" in ends_by
