"""The controller's loop: look, put right, decide, carry out, report; then wait until something changed.

Exists to hold the parts together, and nothing else. One loop decides; admissions and evictions are carried out beside it,
each gang by one task at a time, with what it is given assumed taken, and what it loses assumed going, from the decision on.
Never polls: it wakes for a change that may change a decision, for a gang's deadline, and to sweep (rarely).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from random import Random
from typing import Any

from fairlead.controller.commit import claim_reconciler as tidy
from fairlead.controller.commit.admitter import Admitter
from fairlead.controller.commit.backoff import GangBackoffs
from fairlead.controller.commit.claim_reconciler import Reconciler
from fairlead.controller.commit.committer import Committer
from fairlead.controller.commit.evictor import Evictor
from fairlead.controller.commit.tasks import Job, Tasks
from fairlead.controller.commit.writer import Writer
from fairlead.controller.cycle import Cycle, Decide
from fairlead.controller.gangs import evictions, recovery, requests
from fairlead.controller.gangs.gangs import Gang, GangId
from fairlead.controller.report.gang_status import Standing
from fairlead.controller.report.metrics import Metrics
from fairlead.controller.report.reporter import Reporter
from fairlead.controller.watch.caches import Caches
from fairlead.engine.plan import decide as plan
from fairlead.engine.queues.usage_history import UsageHistory
from fairlead.engine.types.model import Admission, Eviction, RunningGang
from fairlead.kube.client import Client
from fairlead.kube.limits import Clock, Sleep

log = logging.getLogger(__name__)

GATHER_S = 0.02  # changes come in bursts: wait this long for the rest before deciding


class Controller:
    def __init__(
        self,
        client: Client,
        state: Caches,
        writer: Writer,
        reporter: Reporter,
        memory: UsageHistory,
        metrics: Metrics,
        *,
        gang_timeout_s: float,
        usage_weight: float,
        clock: Clock,
        wall: Clock,
        sleep: Sleep,
        random: Random,
        decide: Decide = plan.decide,
    ) -> None:
        self.cycled_at = clock()  # it wakes at least every SWEEP_S; health looks at this
        self._state = state
        self._work = Tasks(metrics, clock)
        self._tidy = Reconciler(client, state, writer, self._work, metrics)
        self._setbacks = GangBackoffs(random)
        self._committer = Committer(writer, state, wall=wall)
        self._admitter = Admitter(self._committer, state, reporter, metrics, clock=clock, wall=wall)
        self._evictor = Evictor(writer, state, reporter, metrics, wall=wall)
        self._reporter = reporter
        self._memory = memory
        self._metrics = metrics
        self._gang_timeout_s = gang_timeout_s
        self._clock = clock
        self._wall = wall
        self._sleep = sleep
        self._desk = Cycle(
            state, self._evictor, reporter, memory, metrics, usage_weight=usage_weight, clock=clock, decide=decide
        )
        self._busy: dict[GangId, Admission | None] = {}
        self._deadlines: dict[GangId, float] = {}
        self._queues: dict[GangId, str] = {}  # into which queue each was admitted
        self._sweep_at = wall() + tidy.SWEEP_S

    async def run(self) -> None:
        """Until cancelled. Call `settle` afterwards."""
        while True:
            try:
                self.cycle()
            except Exception:  # one object that breaks us must not stop the service for all others
                log.exception("a cycle failed; the next one looks at everything again")
                self._metrics.errors.labels("cycle").inc()
                self._state.touch_all()
                await self._sleep(1.0)
            await self._rest()

    async def settle(self, patience_s: float) -> bool:
        """Waits for the writes that are under way; false when some still were after `patience_s`."""
        return await self._work.settle(patience_s)

    # -- one cycle -------------------------------------------------------------------------------------------------

    def cycle(self) -> None:
        """Looks at what changed; decides if that may change a decision. Starts tasks, waits for none."""
        self.cycled_at = self._clock()
        self._state.wake.clear()
        now = self._wall()
        self._expire(now)
        touched = self._state.refresh()
        for gang_id in sorted(touched):
            self._evictor.look(gang_id, self._state.gangs.get(gang_id))
        touched |= self._evictor.concerned(touched)
        for gang_id in sorted(touched):
            self._care(gang_id, now)
        if now >= self._sweep_at:
            self._sweep_at = now + tidy.SWEEP_S
            self._tidy.sweep()
        told = set(touched)
        if self._state.decide and not self._desk.waits_s(urgent=self._state.urgent):
            told |= self._decide_now(now)
        for gang_id in sorted(told):
            self._report(gang_id)
        for queue in self._memory.tick(now):
            self._reporter.past(queue)
        self._metrics.note_phases(self._reporter.phases.values())

    async def _rest(self) -> None:
        """Until something changed or is due, and a moment longer."""
        due = [self._sweep_at, *self._deadlines.values()]
        if self._state.decide:
            due.append(self._wall() + self._desk.waits_s(urgent=self._state.urgent))
        due += [at for at in (self._setbacks.due(), self._desk.turn_at) if at is not None]
        wait_s = max(0.0, min(due) - self._wall())
        waits = (asyncio.ensure_future(self._state.wake.wait()), asyncio.ensure_future(self._sleep(wait_s)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        await self._sleep(GATHER_S)

    def _expire(self, now: float) -> None:
        for gang_id, deadline in list(self._deadlines.items()):
            if deadline <= now:
                del self._deadlines[gang_id]
                self._state.touch(gang_id)
        for gang_id in self._setbacks.expire(now, self._state.gangs):
            self._state.ask()
            self._state.touch(gang_id)
        if self._desk.turn_at is not None and self._desk.turn_at <= now:
            self._desk.turn_at = None
            self._state.ask()

    # -- putting right ---------------------------------------------------------------------------------------------

    def _care(self, gang_id: GangId, now: float) -> None:
        """Whatever this gang needs apart from a decision."""
        gang = self._state.gangs.get(gang_id)
        before = self._desk.requests.pop(gang_id, None)
        self._desk.running.pop(gang_id, None)
        self._deadlines.pop(gang_id, None)
        if gang is not None:
            self._tidy.gang(gang, busy=gang_id in self._busy)
        if gang is None or not gang.members:
            self._desk.gone(gang_id)
            self._queues.pop(gang_id, None)
            self._evictor.gone(gang_id)
            self._reporter.gone(gang_id)
            return
        standing = self._standing(gang, now)
        labels = self._state.namespace_labels(gang.namespace)
        around = self._evictor.around(gang_id, now)
        if (held := requests.running(gang, standing, labels, around)) is not None:
            self._desk.running[gang_id] = held
        if gang_id in self._busy:
            return
        step = recovery.next_step(gang, now=now, timeout_s=self._gang_timeout_s, node_exists=self._state.node_exists)
        if step is not None and self._setbacks.resting(gang_id, now):
            self._deadlines[gang_id] = self._setbacks.get(gang_id).until
        elif step is not None:
            self._begin(gang_id, self._step(gang, step), None)
        else:
            self._admitter.assume_no_more(gang_id)
            if gang.released and gang.placed >= gang.size and all(member.bound for member in gang.released):
                self._setbacks.forget(gang_id)
            if (deadline := recovery.next_deadline(gang, self._gang_timeout_s)) is not None:
                self._deadlines[gang_id] = max(deadline, now + 0.1)
            if self._evict_further(gang, standing, now):
                return
            if requests.blocked(gang) is None and (asked := requests.request(gang, standing, labels)) is not None:
                self._desk.ask(gang_id, asked, before)
                if not requests.same(asked, before):
                    self._state.ask()
                if asked.preemptor and (until := evictions.holds_until(gang)) > now:
                    self._deadline(gang_id, until)

    def _evict_further(self, gang: Gang, standing: requests.Standing, now: float) -> bool:
        """Goes on with the gang's eviction, if it is in one; true when it asks for nothing meanwhile."""
        step = self._evictor.next_step(gang, now=now, wanted=self._wanted)
        if isinstance(step, evictions.Wait):
            self._deadline(gang.id, step.until)
        elif step is not None:
            since = gang.created if standing.created is None else min(standing.created, gang.created)
            self._begin(gang.id, self._evictor.carry_out(gang, step, since=since), None)
        return step is not None and step.mark.whole

    def _wanted(self, gang_id: GangId) -> bool:
        """Whether a gang still waits for what others are evicted for."""
        gang = self._state.gangs.get(gang_id)
        if gang is None or not gang.gated or self._busy.get(gang_id) is not None:
            return False
        return requests.blocked(gang) is None

    def _deadline(self, gang_id: GangId, at: float) -> None:
        self._deadlines[gang_id] = min(at, self._deadlines.get(gang_id, at))

    async def _step(self, gang: Gang, step: recovery.Step) -> None:
        name = type(step).__name__
        self._metrics.recoveries.labels(name).inc()
        if isinstance(step, recovery.Complete):
            log.info("gang %s/%s: completing its admission: %d pods to release", *gang.id, len(step.members))
            outcome = await self._committer.release(step.members)
            if not outcome.done:
                self._set_back(gang.id, outcome.why)
        elif isinstance(step, recovery.Undo):
            log.warning("gang %s/%s: taking back %d pods: %s", *gang.id, len(step.members), step.why)
            if await self._committer.undo(step.members, step.why):
                self._admitter.assume_no_more(gang.id)
            self._set_back(gang.id, step.why)
        else:
            log.warning("gang %s/%s: rolled back: %s", *gang.id, step.why)
            self._reporter.event(gang.id, "RolledBack", step.why, warning=True)
            for member in step.members[:16]:
                self._reporter.pod_event(member.pod, "RolledBack", step.why, warning=True)
            why = f"rolled back: {step.why}"
            self._setbacks.note(gang.id, why, now=self._wall(), nodes=step.nodes, created=gang.created)
            await self._committer.roll_back(step.members)

    # -- deciding --------------------------------------------------------------------------------------------------

    def _decide_now(self, now: float) -> set[GangId]:
        """Decides and begins what was decided. Returns the gangs about which there is something new to say."""
        self._state.decide = self._state.urgent = False
        writing = {claim.key for admission in self._busy.values() if admission for claim in admission.claims}
        asking = [
            asked
            for gang_id, asked in self._desk.requests.items()
            if gang_id not in self._busy
            and not self._setbacks.resting(gang_id, now)
            and not any(claim.key in writing for claim in asked.claims)
        ]
        decided = self._desk.decide(asking, self._holding(), now)
        for admission in decided.admissions:
            keys = {claim.key for claim in admission.claims}
            if keys & writing:  # two gangs share a claim: the second waits until the first has it
                continue
            writing |= keys
            self._admit(admission)
        self._evict(decided.evictions, now)
        return self._desk.news(decided) | {(admission.namespace, admission.name) for admission in decided.admissions}

    def _holding(self) -> list[RunningGang]:
        """What gangs hold, those included that are being admitted."""
        held = dict(self._desk.running)
        for gang_id, admission in self._busy.items():
            gang = self._state.gangs.get(gang_id)
            if admission is not None and gang is not None:
                held[gang_id] = self._admitter.holding(gang, admission, self._standing(gang, self._wall()).created)
        return list(held.values())

    def _admit(self, admission: Admission) -> None:
        gang_id = (admission.namespace, admission.name)
        gang = self._state.gangs[gang_id]
        self._admitter.assume(gang, admission)
        self._queues[gang_id] = admission.queue
        self._desk.requests.pop(gang_id, None)
        self._begin(gang_id, self._carry_out(gang, admission), admission)

    async def _carry_out(self, gang: Gang, admission: Admission) -> None:
        why = await self._admitter.carry_out(gang, admission)
        if why:
            self._set_back(gang.id, why)
        else:
            self._evictor.landed(gang.id)

    def _evict(self, decided: tuple[Eviction, ...], now: float) -> None:
        """Begins the evictions; what is decided for a gang under way waits for the next decision."""
        times = evictions.times(decided, now)
        for eviction in decided:
            gang_id = (eviction.namespace, eviction.name)
            gang = self._state.gangs.get(gang_id)
            if gang is None or gang_id in self._busy:
                continue
            self._evictor.assume(gang_id, eviction)
            self._begin(gang_id, self._evictor.begin(gang, eviction, times[eviction.id]), None)
            self._state.touch(gang_id)
            namespace, _, name = eviction.beneficiary.partition("/")
            if name:
                self._state.touch((namespace, name))

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _begin(self, gang_id: GangId, work: Job, admission: Admission | None) -> None:
        self._busy[gang_id] = admission

        def over() -> None:
            self._busy.pop(gang_id, None)
            self._state.decide = True  # what it asked for in vain, others may get
            self._state.touch(gang_id)

        self._work.once(
            f"gang {'/'.join(gang_id)}",
            work,
            failed=lambda why: self._set_back(gang_id, why),
            over=over,
            level=logging.INFO,
        )

    def _set_back(self, gang_id: GangId, why: str) -> None:
        self._setbacks.note(gang_id, why, now=self._wall())

    def _standing(self, gang: Gang, now: float) -> requests.Standing:
        raw: Mapping[str, Any] = self._state.gang_objects.get("/".join(gang.id)) or {}
        setback = self._setbacks.get(gang.id)
        past = self._state.past(gang)
        ages = [age for age in (setback.created, past.since if past else None) if age is not None]
        return requests.Standing(
            uid=raw.get("metadata", {}).get("uid", ""),
            created=min(ages, default=None),
            avoid=tuple(sorted(setback.avoid)),
            preemptor=self._evictor.preemptor(gang, now),
        )

    def _report(self, gang_id: GangId) -> None:
        gang = self._state.gangs.get(gang_id)
        if gang is None or not gang.members:
            return
        self._reporter.gang(
            gang,
            Standing(
                waiting=self._desk.waiting.get(gang_id),
                admitting=self._busy.get(gang_id) is not None,
                queue=self._queues.get(gang_id),
                setback=self._setbacks.get(gang_id).why,
                course=self._evictor.course(gang),
                victims=self._evictor.victims(gang_id),
                reservation=self._desk.reservations.get(gang_id),
            ),
        )
