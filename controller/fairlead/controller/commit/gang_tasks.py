"""The writes under way for gangs: one task per gang, an admission, a recovery step or an eviction step.

While a gang's task runs, nothing else is started for it. When it ends, the gang is looked at again. A decision is due then,
since devices that the gang could not get may go to others: but not after an admission that succeeded, unless another gang
waits. A failure starts the gang's backoff.

A gang whose pod alone shows all that there is to know of it (`Gang.plain`, without a Gang object) settles after its admission: it is
looked at when kube-scheduler has bound its pod or has tried to, or else after `SETTLE_S`. Until then it counts as busy.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from fairlead.controller.book.book import Book
from fairlead.controller.book.gang_state import GangState
from fairlead.controller.commit.backoff import GangBackoffs
from fairlead.controller.commit.tasks import Job, Tasks
from fairlead.controller.gangs.membership.gangs import GangId
from fairlead.controller.watch.triggers import Triggers
from fairlead.engine.types.plan import Admission
from fairlead.kube.limits import Clock

SETTLE_S = 15.0  # much longer than kube-scheduler takes, unless it is away or has a backlog of thousands


class GangTasks:
    def __init__(
        self,
        book: Book,
        tasks: Tasks,
        backoffs: GangBackoffs,
        triggers: Triggers,
        *,
        wall: Clock,
        settle_s: float = SETTLE_S,
    ) -> None:
        self._book = book
        self._tasks = tasks
        self._backoffs = backoffs
        self._triggers = triggers
        self._wall = wall
        self._settle_s = settle_s
        self._admissions = book.all(GangState.admission)
        self._settling = book.all(GangState.settles_until)
        self._written: list[GangId] = []
        self._awaited = False

    def admissions(self) -> Mapping[GangId, Admission]:
        """Those that are being written."""
        return self._admissions

    def writing(self) -> set[str]:
        """Keys of the claims that admissions are writing."""
        return {claim.key for admission in self._admissions.values() for claim in admission.claims}

    def awaited(self) -> None:
        """A gang waits: for a claim that another's admission writes, or until what others were given may be evicted."""
        self._awaited = True

    def start(self, gang_id: GangId, job: Job, admission: Admission | None = None) -> None:
        """`admission`: what the job writes, where it is one."""
        state = self._book[gang_id]
        state.busy = True
        if admission is not None:
            state.admission = admission

        def ended() -> None:
            if gang_id not in self._settling:
                self._end(gang_id, quietly=self._book.take(gang_id, GangState.admission) is not None)
                self._triggers.gang(gang_id, soon=admission is None, first=True)

        self._tasks.start(
            f"gang {'/'.join(gang_id)}",
            job,
            failed=lambda why: self._backoffs.note_failure(gang_id, why, now=self._wall()),
            ended=ended,
            level=logging.INFO if admission is None else logging.DEBUG,  # an admission logs its own line
        )

    def _end(self, gang_id: GangId, *, quietly: bool) -> None:
        """`quietly`: an admission, whose end frees nothing if it was a success."""
        self._book[gang_id].busy = None
        if not quietly or self._awaited or self._backoffs.active(gang_id, self._wall()):
            self._awaited = False
            self._triggers.decide()

    # -- gangs whose pod is about to be bound ----------------------------------------------------------------------

    def settle_later(self, gang_id: GangId) -> None:
        """To be called at the end of an admission's job that succeeded: the gang is busy until `settle`, or for so long."""
        state = self._book[gang_id]
        state.admission = None
        state.settles_until = self._wall() + self._settle_s
        self._written.append(gang_id)

    def take_written(self) -> list[GangId]:
        """The gangs that began to settle since the last call."""
        written, self._written = self._written, []
        return written

    def settle(self, gang_id: GangId) -> None:
        """The gang is looked at now: its admission has ended."""
        self._book[gang_id].settles_until = None
        self._end(gang_id, quietly=True)

    def settle_due(self, now: float) -> None:
        """Gangs that settled long enough are to be looked at."""
        while (due := self.settled_at()) is not None and due <= now:
            gang_id = next(iter(self._settling))
            self.settle(gang_id)
            self._triggers.gang(gang_id, first=True)

    def settled_at(self) -> float | None:
        """When the first of them has settled long enough; unix seconds."""
        return next(iter(self._settling.values()), None)
