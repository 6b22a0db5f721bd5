"""One term's ledger: its feed, its keeper, and what becomes of it as metrics and as an event on the lease."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from fairlead.controller.accounting.decisions import GangDecisions
from fairlead.controller.accounting.feed import Known, LedgerFeed
from fairlead.controller.options import ControllerOptions
from fairlead.controller.report.events import Events
from fairlead.controller.report.metrics import Growing, Metrics
from fairlead.controller.watch.caches import Caches
from fairlead.history.ledger.keeper import Keeper
from fairlead.history.ledger.store.place import LedgerError, LedgerTakenError
from fairlead.history.ledger.store.writer import open_writer
from fairlead.history.recording.reader import claim_ends
from fairlead.kube.timestamps import microseconds
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
