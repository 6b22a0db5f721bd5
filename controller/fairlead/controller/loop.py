"""The controller's loop: reconcile what changed, run a scheduling cycle, report; then wait until something changes.

It never polls and never waits for a write. It wakes for a change in the caches, for a gang's deadline, when time alone
may change a decision, and for garbage collection.
"""

from __future__ import annotations

import asyncio
import logging

from fairlead.controller.commit.node_requests import NodeRequests
from fairlead.controller.commit.nominated_nodes import NominatedNodes
from fairlead.controller.commit.part import Part, Shared
from fairlead.controller.cycle import Cycle
from fairlead.controller.gangs.membership.gangs import GangId
from fairlead.controller.reconcile import GangReconciler
from fairlead.controller.reporting import Reporting

log = logging.getLogger(__name__)

GATHER_S = 0.02  # changes come in bursts: wait this long for the rest before looking
GATHER_RUNS = 4  # and so many times as long as the last run took: to look at a burst more often ends it no sooner
GATHER_MAX_S = 0.15
LATER_S = 0.18  # and so much longer after changes that no gang which comes waits for: each run has a cost of its own
ERROR_PAUSE_S = 1.0


class Controller(Part):
    def __init__(
        self,
        shared: Shared,
        reconciler: GangReconciler,
        cycle: Cycle,
        reporting: Reporting,
        nodes: NodeRequests,
        nominated: NominatedNodes,
    ) -> None:
        super().__init__(shared)
        self.last_run_at = self._clock()  # at most `reconcile.SWEEP_S` ago, unless the loop hangs
        self._reconciler = reconciler
        self._cycle = cycle
        self._reporting = reporting
        self._nodes = nodes
        self._nominated = nominated
        self._first = True

    @property
    def deciding(self) -> bool:
        """A decision is being made beside the loop."""
        return self._cycle.deciding

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.run_once()
            except Exception:  # one object that breaks a run must not stop the service for all others
                log.exception("a run of the loop failed; the next one looks at everything again")
                self._reporting.failed()
                self._caches.refresh_all()
                await self._sleep(ERROR_PAUSE_S)
            await self._wait()

    async def run_once(self) -> None:
        """Reconcile, decide and commit, report. Starts tasks and waits for none; for a long decision it does."""
        self.last_run_at = self._clock()
        looked = now = self._wall()
        decided = False
        self._caches.triggers.looked()
        self._reconciler.expire(now)
        self._cycle.expire(now)
        changed = self._reconciler.reconcile(self._changed(), now)
        self._forget_gone(changed, now)
        self._reconciler.collect_garbage(now)
        if self._caches.triggers.decision and not self._cycle.wait_s():
            changed |= await self._cycle.decide(now)
            self._reporting.decided(self._cycle.plan, self._cycle.took_s, now)
            changed |= self._cycle.carry_out(now)
            decided, now = True, self._wall()
        self._nodes.sync(changed, decided=decided)
        self._nominated.sync()
        self._reporting.report(changed, now, looked)

    def _changed(self) -> set[GangId]:
        """The gangs to look at; in the first run of a term all of them, though they were built before it.

        Also those of which only the Gang object is left: without a leader when their last pod went, it was not deleted.
        """
        changed = self._caches.refresh(turns=not self._first)
        if self._first:
            self._first = False
            changed |= self._caches.gangs.keys() | self._caches.reported_gangs()
        return changed

    def _forget_gone(self, changed: set[GangId], now: float) -> None:
        for gang_id in sorted(changed):
            gang = self._caches.gangs.get(gang_id)
            if gang is None or not gang.members:
                self._reporting.gone(gang_id, now)
                self._book.forget(gang_id)

    async def _wait(self) -> None:
        """Until something changed or is due, and a moment longer. To be called when a run has ended."""
        took_s = self._clock() - self.last_run_at
        due = [self._reconciler.next_due()]
        if self._cycle.due_at is not None:
            due.append(self._cycle.due_at)
        triggers = self._caches.triggers
        triggers.rest()
        if triggers.decision:
            due.append(self._wall() + self._cycle.wait_s())
        if self._reporting.behind:
            due.append(self._wall() + LATER_S)
        if await self._until(triggers.wake, max(0.0, min(due) - self._wall())):
            await self._until(triggers.soon, LATER_S)
        await self._sleep(min(max(GATHER_S, GATHER_RUNS * took_s), GATHER_MAX_S))

    async def _until(self, event: asyncio.Event, timeout_s: float) -> bool:
        """Whether it was set in time."""
        late = False
        if event.is_set():
            return True

        def ring(slept: asyncio.Future[None]) -> None:
            nonlocal late
            if not slept.cancelled():
                late = True
                event.set()

        alarm = asyncio.ensure_future(self._sleep(timeout_s))
        alarm.add_done_callback(ring)
        try:
            await event.wait()
        finally:
            alarm.cancel()
        return not late
