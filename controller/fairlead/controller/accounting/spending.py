"""What queues spent, from the ledger, for their budgets. Implements `spending.source.Spending`.

Answers come from memory: a period that is asked for is summed once, in a thread, and then by what the ledger came to know since. Sums
of adjacent windows are exact, so nothing is counted twice and nothing lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

from fairlead.controller.spending.source import Spent
from fairlead.history.ledger.entries import HELD, WHOLE_PPM
from fairlead.history.ledger.store.place import LedgerError
from fairlead.history.ledger.store.reader import Reader, open_reader
from fairlead.kube.limits import Sleep
from fairlead.kube.timestamps import HOUR_US

log = logging.getLogger(__name__)

LOOK_S = 1.0  # for a period that is new
SUM_S = 30.0  # between two sums of one that is known
PERIODS_MAX = 64  # days, weeks and months, in several time zones; those that were asked for last


@dataclass(slots=True)
class _Period:
    until_us: int
    weighed: Counter[str] = field(default_factory=Counter)  # ppm × µs by queue


class LedgerSpending:
    """`flavored`: whether there are Flavors; then only devices that one takes count."""

    def __init__(self, ledger: str, flavored: Callable[[], bool], *, sleep: Sleep) -> None:
        self._ledger = ledger
        self._flavored = flavored
        self._sleep = sleep
        self._wanted: dict[int, None] = {}  # beginnings of periods, unix microseconds; the last asked for last
        self._periods: dict[int, _Period] = {}

    def spent(self, queue: str, since_us: int) -> Spent | None:
        self._wanted.pop(since_us, None)
        self._wanted[since_us] = None
        if len(self._wanted) > PERIODS_MAX:
            oldest = next(iter(self._wanted))
            del self._wanted[oldest]
            self._periods.pop(oldest, None)
        period = self._periods.get(since_us)
        if period is None:
            return None
        return Spent(Fraction(period.weighed[queue], WHOLE_PPM * HOUR_US), period.until_us)

    async def run(self) -> None:
        """Never returns."""
        waited_s = 0.0
        while True:
            if self._wanted.keys() - self._periods.keys() or waited_s >= SUM_S:
                waited_s = 0.0
                with contextlib.suppress(LedgerError):  # the keeper tells of it
                    await asyncio.to_thread(self._extend, list(self._wanted), self._flavored())
            await self._sleep(LOOK_S)
            waited_s += LOOK_S

    def _extend(self, wanted: list[int], flavored: bool) -> None:
        with contextlib.closing(open_reader(self._ledger)) as reader:
            known = reader.known()
            if known is None:
                return
            for since_us in wanted:
                before = self._periods.get(since_us)
                period = _Period(since_us) if before is None else _Period(before.until_us, Counter(before.weighed))
                if known[1] > period.until_us:
                    _add(period, reader, known[1], flavored)
                self._periods[since_us] = period


def _add(period: _Period, reader: Reader, until_us: int, flavored: bool) -> None:
    for each in reader.sums(period.until_us, until_us, ("queue",)):
        if each.bucket in HELD and (each.measure.flavor or not flavored):
            period.weighed[each.keys[0]] += each.time_us * each.measure.share_ppm
    period.until_us = until_us
