"""The writes under way for gangs: one task per gang, an admission, a recovery step or an eviction step.

While a gang's task runs, nothing else is started for it. When it ends, the gang is looked at again. A decision is due then,
since devices that the gang could not get may go to others: but not after an admission that succeeded, unless another gang
waits. A failure starts the gang's backoff.
"""

from __future__ import annotations

import logging

from fairlead.controller.commit.backoff import GangBackoffs
from fairlead.controller.commit.tasks import Job, Tasks
from fairlead.controller.gangs.gangs import GangId
from fairlead.controller.watch.triggers import Triggers
from fairlead.engine.types.plan import Admission
from fairlead.kube.limits import Clock


class GangTasks:
    def __init__(self, tasks: Tasks, backoffs: GangBackoffs, triggers: Triggers, *, wall: Clock) -> None:
        self._tasks = tasks
        self._backoffs = backoffs
        self._triggers = triggers
        self._wall = wall
        self._running: dict[GangId, Admission | None] = {}
        self._awaited = False

    def running(self, gang_id: GangId) -> bool:
        return gang_id in self._running

    def admitting(self, gang_id: GangId) -> bool:
        return self._running.get(gang_id) is not None

    def admissions(self) -> dict[GangId, Admission]:
        """Those that are being written."""
        return {gang_id: admission for gang_id, admission in self._running.items() if admission is not None}

    def writing(self) -> set[str]:
        """Keys of the claims that admissions are writing."""
        return {claim.key for admission in self.admissions().values() for claim in admission.claims}

    def awaited(self) -> None:
        """A gang waits: for a claim that another's admission writes, or until what others were given may be evicted."""
        self._awaited = True

    def start(self, gang_id: GangId, job: Job, admission: Admission | None = None) -> None:
        """`admission`: what the job writes, where it is one."""
        self._running[gang_id] = admission

        def ended() -> None:
            self._running.pop(gang_id, None)
            if admission is None or self._awaited or self._backoffs.active(gang_id, self._wall()):
                self._awaited = False
                self._triggers.decide()
            self._triggers.gang(gang_id, soon=admission is None)

        self._tasks.start(
            f"gang {'/'.join(gang_id)}",
            job,
            failed=lambda why: self._backoffs.note_failure(gang_id, why, now=self._wall()),
            ended=ended,
            level=logging.INFO if admission is None else logging.DEBUG,  # an admission logs its own line
        )
