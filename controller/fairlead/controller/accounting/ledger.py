"""One term's ledger: its feed and keeper, what becomes of it as metrics and as an event on the lease, and what queues spent.

What queues spent, for their budgets, is answered from memory: a period that is asked for is summed once, in a thread, and then by what
the ledger came to know since. Sums of adjacent windows are exact, so nothing is counted twice and nothing lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Protocol

from fairlead.controller.accounting.feed import GangDecisions, Known, LedgerFeed
from fairlead.controller.options import ControllerOptions
from fairlead.controller.report.events import Events
from fairlead.controller.report.metrics import Growing, Metrics
from fairlead.controller.spending import Spent
from fairlead.controller.watch.caches import Caches
from fairlead.history.ledger.entries import HELD, WHOLE_PPM
from fairlead.history.ledger.keeper import Keeper
from fairlead.history.ledger.store.place import LedgerError, LedgerTakenError
from fairlead.history.ledger.store.reader import Reader, open_reader
from fairlead.history.ledger.store.writer import open_writer
from fairlead.history.recording.reader import claim_ends
from fairlead.kube.limits import Sleep
from fairlead.kube.timestamps import HOUR_US, microseconds
from fairlead.kube.timing import Time


class Lease(Protocol):
    @property
    def identity(self) -> str: ...
    @property
    def transitions(self) -> int | None: ...


class LedgerTerm:
    """`run` until cancelled, then `close`, outside the event loop: it waits for the disk."""

    def __init__(
        self,
        options: ControllerOptions,
        caches: Caches,
        known: Known,
        metrics: Metrics,
        events: Events,
        decisions: GangDecisions,
        lease: Lease,
        time: Time,
    ) -> None:
        assert options.ledger is not None, "there is a ledger"
        self._metrics = metrics
        self._events = events
        self._growing = Growing()
        self._keeper = Keeper(
            partial(open_writer, options.ledger, writer=lease.identity),
            errors=(LedgerError,),
            taken=LedgerTakenError,
            clock=time.clock,
            lease_transitions=lease.transitions,
            keep_us=microseconds(options.ledger_keep_s),
            ends=None if options.record is None else partial(claim_ends, options.record),
        )
        self._feed = LedgerFeed(
            caches,
            known,
            self._keeper,
            self._report,
            decisions,
            metrics.failures,
            labels=options.ledger_labels,
            time=time,
        )

    async def run(self) -> None:
        await self._feed.run()

    def close(self) -> None:
        self._keeper.close()
        self._report()
        self._metrics.ledger_pending.set(0)
        self._metrics.ledger_as_of.set(0)  # the next leader's counts
        self._metrics.note_devices({})

    def _report(self) -> None:
        counts, metrics = self._keeper.counts, self._metrics
        self._growing.show("intervals", counts.intervals, metrics.ledger_intervals)
        self._growing.show("failures", counts.failures, metrics.ledger_failures)
        self._growing.show("gaps", counts.gaps, metrics.ledger_gaps)
        metrics.ledger_pending.set(counts.pending)
        metrics.ledger_as_of.set(counts.as_of_us / 1e6)
        metrics.note_devices(counts.devices)
        while (problem := self._keeper.problem()) is not None:
            self._events.lease(
                "LedgerProblem", f"The ledger: {problem}; decisions go on, what it misses is shown in its reports"
            )


log = logging.getLogger(__name__)

LOOK_S = 1.0  # for a period that is new
SUM_S = 30.0  # between two sums of one that is known
PERIODS_MAX = 64  # days, weeks and months, in several time zones; those that were asked for last


@dataclass(slots=True)
class _Period:
    until_us: int
    weighed: Counter[str] = field(default_factory=Counter)  # ppm × µs by queue
    pods: dict[tuple[str, str], Fraction] = field(default_factory=dict)  # units × µs by queue and flavor

    def copy(self) -> _Period:
        return _Period(self.until_us, Counter(self.weighed), dict(self.pods))


class LedgerSpending:
    """`flavored`: whether there are Flavors; then only devices that one takes count."""

    def __init__(self, ledger: str, flavored: Callable[[], bool], *, sleep: Sleep) -> None:
        self._ledger = ledger
        self._flavored = flavored
        self._sleep = sleep
        self._wanted: dict[int, None] = {}  # beginnings of periods, unix microseconds; the last asked for last
        self._periods: dict[int, _Period] = {}

    def spent(self, queue: str, since_us: int, flavor: str | None) -> Spent | None:
        self._wanted.pop(since_us, None)
        self._wanted[since_us] = None
        if len(self._wanted) > PERIODS_MAX:
            oldest = next(iter(self._wanted))
            del self._wanted[oldest]
            self._periods.pop(oldest, None)
        period = self._periods.get(since_us)
        if period is None:
            return None
        if flavor is not None:
            return Spent(period.pods.get((queue, flavor), Fraction(0)) / HOUR_US, period.until_us)
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
                period = _Period(since_us) if before is None else before.copy()
                if known[1] > period.until_us:
                    _add(period, reader, known[1], flavored)
                self._periods[since_us] = period


def _add(period: _Period, reader: Reader, until_us: int, flavored: bool) -> None:
    for each in reader.sums(period.until_us, until_us, ("queue",)):
        if each.bucket in HELD and (each.measure.flavor or not flavored):
            period.weighed[each.keys[0]] += each.time_us * each.measure.share_ppm
    for pods in reader.pod_sums(period.until_us, until_us, ("queue", "flavor")):
        queue, flavor = pods.keys
        period.pods[queue, flavor] = period.pods.get((queue, flavor), Fraction(0)) + pods.weighed
    period.until_us = until_us
