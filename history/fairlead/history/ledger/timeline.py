"""One unit's time: what holds parts of it, and its open intervals, whose shares add up to the whole unit at each instant.

Times only go forward: a change that is told late counts from the unit's last change on, so that no interval is rewritten.
Where claims hold more of a unit than there is (a shared device of which one has the memory and another the cores), their shares are
scaled down to the whole; amounts, for prices, are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from fairlead.history.ledger.entries import WHOLE_PPM, Allocation, Bucket, Interval, Measure, Sampled, Unit

# Claim UID, when it was allocated, device; UNHELD for what no claim holds.
Key = tuple[str, int, str]
UNHELD: Key = ("", 0, "")


@dataclass(slots=True)
class Part:
    """A device that a claim holds."""

    allocation: Allocation
    device: str
    measure: Measure
    bucket: Bucket
    since_us: int  # when it came into the bucket, as it was told
    sampled_us: int | None = None  # the last sample that was counted

    @property
    def key(self) -> Key:
        return (self.allocation.claim_uid, self.allocation.allocated_us, self.device)


class Book:
    """Numbered intervals: those that are open, and those that changed since the last `take`.

    `shares`: of open ones, by bucket and flavor, in millionths of a whole device.
    """

    def __init__(self, next_number: int = 1) -> None:
        self.open: dict[int, Interval] = {}
        self.shares: Counter[tuple[Bucket, str]] = Counter()
        self._next = next_number
        self._changed: dict[int, Interval] = {}
        self._written: set[int] = set()  # open ones that a store has

    def restore(self, intervals: dict[int, Interval]) -> None:
        self.open.update(intervals)
        for interval in intervals.values():
            self._count(interval, 1)
        self._written.update(intervals)

    def begin(self, interval: Interval) -> int:
        number = self._next
        self._next += 1
        self.open[number] = self._changed[number] = interval
        self._count(interval, 1)
        return number

    def change(self, number: int, interval: Interval) -> None:
        self._count(self.open[number], -1)
        self._count(interval, 1)
        self.open[number] = self._changed[number] = interval

    def end(self, number: int, at_us: int, ended_by: str = "") -> None:
        interval = self.open.pop(number)
        self._count(interval, -1)
        if interval.start_us == at_us and number not in self._written:
            del self._changed[number]  # it never was
            return
        self._written.discard(number)
        self._changed[number] = interval.ended(at_us, ended_by)

    def _count(self, interval: Interval, sign: int) -> None:
        self.shares[interval.bucket, interval.measure.flavor] += sign * interval.measure.share_ppm

    def take(self) -> tuple[tuple[int, Interval], ...]:
        """What changed since the last call, by number."""
        changed, self._changed = self._changed, {}
        self._written.update(changed.keys() & self.open.keys())
        return tuple(sorted(changed.items(), key=lambda entry: entry[0]))


@dataclass(slots=True)
class Timeline:
    unit: Unit
    node: str
    whole: Measure
    vacancy: Bucket
    since_us: int  # its last change
    parts: dict[Key, Part] = field(default_factory=dict)
    rows: dict[Key, int] = field(default_factory=dict)  # numbers of its open intervals

    def settle(self, book: Book, at_us: int, ended_by: str = "") -> None:
        """Ends and begins intervals so that they are as the parts are, from `at_us` on, or from the last change if that is later.

        `ended_by`: why a claim came free that has no interval any more.
        """
        at_us = self.since_us = max(at_us, self.since_us)
        wanted = dict(self._wanted(at_us))
        for key, number in list(self.rows.items()):
            interval = wanted.get(key)
            if interval is not None and _same(interval, book.open[number]):
                del wanted[key]
                continue
            book.end(number, at_us, "" if interval is not None or key == UNHELD else ended_by)
            del self.rows[key]
        for key, interval in wanted.items():
            self.rows[key] = book.begin(interval)

    def cut(self, book: Book, at_us: int) -> None:
        """Ends the intervals of claims at this time, and begins them again."""
        if at_us <= self.since_us:
            return
        self.since_us = at_us
        for key, number in self.rows.items():
            if key != UNHELD:
                now = book.open[number]
                book.end(number, at_us)
                self.rows[key] = book.begin(replace(now, start_us=at_us, sampled=Sampled()))

    def close(self, book: Book, at_us: int, ended_by: str = "") -> None:
        """The unit is gone."""
        at_us = max(at_us, self.since_us)
        for key, number in self.rows.items():
            book.end(number, at_us, "" if key == UNHELD else ended_by)
        self.rows.clear()

    def _wanted(self, start_us: int) -> Iterator[tuple[Key, Interval]]:
        base = Interval(unit=self.unit, node=self.node, bucket=self.vacancy, measure=self.whole, start_us=start_us)
        held = sum(part.measure.share_ppm for part in self.parts.values())
        left = WHOLE_PPM
        for index, (key, part) in enumerate(sorted(self.parts.items())):
            share = part.measure.share_ppm
            if held > WHOLE_PPM:
                last = index + 1 == len(self.parts)
                share = left if last else share * WHOLE_PPM // held
            left -= share
            measure = part.measure if share == part.measure.share_ppm else replace(part.measure, share_ppm=share)
            yield (
                key,
                replace(base, bucket=part.bucket, measure=measure, device=part.device, allocation=part.allocation),
            )
        if left > 0:
            rest = replace(self.whole, share_ppm=left, amount=self.whole.amount * left / WHOLE_PPM)
            yield UNHELD, replace(base, measure=rest if left < WHOLE_PPM else self.whole)


def _same(one: Interval, other: Interval) -> bool:
    return (one.bucket, one.measure, one.allocation, one.node) == (
        other.bucket,
        other.measure,
        other.allocation,
        other.node,
    )
