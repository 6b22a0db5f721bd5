"""Starts what a plan decided: assumes it, then commits each gang's part in a task of its own.

What two gangs would write at once is left to the next decision: a claim that another admission is writing, and an eviction
of a gang whose task still runs.
"""

from __future__ import annotations

from fairlead.controller.book.book import Book
from fairlead.controller.commit.admitter import Admitter, Span
from fairlead.controller.commit.backoff import GangBackoffs
from fairlead.controller.commit.evictor import Evictor
from fairlead.controller.commit.gang_tasks import GangTasks
from fairlead.controller.gangs.evictions import eviction_marks
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.controller.watch.caches import Caches
from fairlead.engine.types.plan import Admission, Eviction, Plan
from fairlead.kube.timing import Time


class Executor:
    def __init__(
        self,
        caches: Caches,
        book: Book,
        admitter: Admitter,
        evictor: Evictor,
        tasks: GangTasks,
        backoffs: GangBackoffs,
        time: Time,
    ) -> None:
        self._caches = caches
        self._book = book
        self._admitter = admitter
        self._evictor = evictor
        self._tasks = tasks
        self._backoffs = backoffs
        self._wall = time.wall

    def start(self, plan: Plan, now: float, decided: Span) -> list[Admission]:
        """Returns the admissions that started. Waits for no write. `decided`: when the plan was made."""
        started: list[Admission] = []
        writing = self._tasks.writing()
        for admission in plan.admissions:
            keys = {claim.key for claim in admission.claims}
            if keys & writing:
                self._tasks.awaited()
                continue
            writing |= keys
            self._start_admission(admission, decided)
            started.append(admission)
        times = eviction_marks.eviction_times(plan.evictions, now)
        for eviction in plan.evictions:
            self._start_eviction(eviction, times[eviction.id])
        return started

    def _start_admission(self, admission: Admission, decided: Span) -> None:
        gang_id = (admission.namespace, admission.name)
        gang = self._caches.gangs[gang_id]
        self._admitter.assume(gang, admission, decided)
        self._tasks.start(gang_id, self._admit(gang, admission), admission)

    async def _admit(self, gang: Gang, admission: Admission) -> None:
        why = await self._admitter.admit(gang, admission)
        if why:
            self._backoffs.note_failure(gang.id, why, now=self._wall())
        else:
            self._evictor.admitted(gang.id)
            if gang.plain and self._caches.gang_object(gang.id) is None:  # else its status is to follow
                self._tasks.settle_later(gang.id)

    def _start_eviction(self, eviction: Eviction, at: float) -> None:
        gang_id = (eviction.namespace, eviction.name)
        gang = self._caches.gangs.get(gang_id)
        if gang is None or self._book[gang_id].busy:
            return
        self._evictor.assume(gang_id, eviction)
        self._tasks.start(gang_id, self._evictor.begin(gang, eviction, at))
        self._caches.triggers.gang(gang_id, first=True)
        namespace, _, name = eviction.beneficiary.partition("/")
        if name:
            self._caches.triggers.gang((namespace, name), first=True)
