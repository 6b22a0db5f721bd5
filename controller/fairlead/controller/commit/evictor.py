"""Carrying out evictions: decided ones begun, those under way brought to their end.

Exists between the plan and `evictions`: the course of an eviction is read from the pods' marks, so all that is kept here may be
lost without harm: what was decided a moment ago and is not yet marked, and who could not be evicted. Chooses no victims.
Order of writes: the queue's eviction times, the hold for the gang that gets the devices, then the marks; before the first
pod goes, the gang's age is written down.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from fairlead.controller.commit.writer import Writer
from fairlead.controller.gangs import disruption, evictions
from fairlead.controller.gangs.evictions import Course, Mark, Step
from fairlead.controller.gangs.gangs import Gang, GangId
from fairlead.controller.gangs.members import Member
from fairlead.controller.gangs.requests import Surroundings, held
from fairlead.controller.report.metrics import Metrics
from fairlead.controller.report.reporter import Reporter
from fairlead.controller.watch.caches import Caches
from fairlead.engine.types.model import DisruptionBudget, Eviction, QueueSpec
from fairlead.kube import resource, timestamps
from fairlead.kube.limits import Clock

log = logging.getLogger(__name__)

SPARE_S = 60.0  # how long a gang that could not be evicted is no victim
EVENTS_MAX = 16  # pods of a gang that get an event each
DOUBLINGS_MAX = 4  # what was refused is tried again after 5, 10, 20, … s
# Gangs whose eviction is being written: half of what may be under way, so that admissions do not wait behind thousands of them.
AT_ONCE = 32


class Evictor:
    def __init__(self, writer: Writer, state: Caches, reporter: Reporter, metrics: Metrics, *, wall: Clock) -> None:
        self._writer = writer
        self._state = state
        self._reporter = reporter
        self._metrics = metrics
        self._wall = wall
        self._decided: dict[GangId, Eviction] = {}  # marks are being written
        self._promised: Counter[str] = Counter()  # of those: how many for each gang
        self._spared: dict[GangId, float] = {}
        self._refused: dict[GangId, str] = {}
        self._again: dict[GangId, float] = {}  # tried: not before this again
        self._tries: dict[GangId, int] = {}  # in vain
        self._victims: dict[GangId, set[GangId]] = {}  # by the gang they go for, as their marks say
        self._goes_for: dict[GangId, GangId] = {}
        self._began: dict[GangId, float] = {}  # when the first was evicted for this gang
        self._times: dict[str, tuple[str, ...]] = {}  # by queue: evictions that its status may not show yet
        self._few = asyncio.Semaphore(AT_ONCE)

    # -- what decisions are told -----------------------------------------------------------------------------------

    def look(self, gang_id: GangId, gang: Gang | None) -> None:
        """Notes for whom the gang goes, if it does."""
        pairs = evictions.marked(gang) if gang else ()
        target = next((mark.for_gang for _, mark in pairs), None)
        before = self._goes_for.pop(gang_id, None)
        if before is not None:
            self._victims[before].discard(gang_id)
            if not self._victims[before]:
                del self._victims[before]
        if target is not None:
            self._goes_for[gang_id] = target
            self._victims.setdefault(target, set()).add(gang_id)
        if not pairs:
            self._refused.pop(gang_id, None)
            self._again.pop(gang_id, None)
            self._tries.pop(gang_id, None)

    def concerned(self, touched: Iterable[GangId]) -> set[GangId]:
        """The gangs that go for one of these: what happens to it may save them."""
        return {victim for gang_id in touched for victim in self._victims.get(gang_id, ())}

    def around(self, gang_id: GangId, now: float) -> Surroundings:
        decided = self._decided.get(gang_id)
        if self._spared.get(gang_id, 0.0) <= now:
            self._spared.pop(gang_id, None)
        return Surroundings(
            leaving=frozenset(pod.uid for pod in decided.pods) if decided else (),
            spared=gang_id in self._spared,
            guards=lambda member: self._state.guards_of(member.pod),
            owner_ends_by=lambda member: self._state.job_ends_by(member.pod),
        )

    def preemptor(self, gang: Gang, now: float) -> bool:
        """Whether devices are held for the gang."""
        return gang.id in self._victims or evictions.holds_until(gang) > now or self._promised["/".join(gang.id)] > 0

    def budgets(self) -> tuple[DisruptionBudget, ...]:
        return tuple(guard.facts for _, guard in sorted(self._state.guards.items()))

    def with_budgets(self, queues: Sequence[QueueSpec], now: float) -> tuple[QueueSpec, ...]:
        """The queues, with how many evictions their disruption budgets still allow."""
        told = []
        for queue in queues:
            raw = self._state.queues.get(queue.name) or {}
            left = disruption.evictions_left(raw.get("spec") or {}, self._queue_times(queue.name), now=now)
            told.append(queue if left == queue.evictions_left else replace(queue, evictions_left=left))
        return tuple(told)

    def refills(self, now: float) -> list[float]:
        """When disruption budgets that were drawn on give something back."""
        found = []
        for raw in self._state.queues.all():
            spec = raw.get("spec") or {}
            if spec.get("disruptionBudget"):
                at = disruption.refill(spec, self._queue_times(raw["metadata"]["name"]), now=now)
                if at is not None:
                    found.append(at)
        return found

    def _queue_times(self, queue: str) -> tuple[str, ...]:
        raw = self._state.queues.get(queue) or {}
        written = (raw.get("status") or {}).get("evictions") or ()
        mine = self._times.get(queue, ())
        return (*written, *(time for time in mine if time not in written))

    # -- what is reported ------------------------------------------------------------------------------------------

    def course(self, gang: Gang) -> Course | None:
        pairs = evictions.marked(gang)
        return Course(mark=pairs[0][1], refused=self._refused.get(gang.id, "")) if pairs else None

    def victims(self, gang_id: GangId) -> tuple[str, ...]:
        return tuple(sorted("/".join(victim) for victim in self._victims.get(gang_id, ())))

    # -- a decided eviction ----------------------------------------------------------------------------------------

    def assume(self, gang_id: GangId, eviction: Eviction) -> None:
        """From here on the pods count as leaving, until `begin` has marked them or failed."""
        self._decided[gang_id] = eviction
        self._promised[eviction.beneficiary] += 1
        self._metrics.evictions.labels(eviction.kind, "begun").inc()

    async def begin(self, gang: Gang, eviction: Eviction, at: float) -> None:
        """Marks what is to go. Raises what the writes raise; then the gang is spared for a while."""
        try:
            async with self._few:
                await self._mark(gang, eviction, max(at, self._wall() + eviction.checkpoint_grace_s))
        finally:
            self._decided.pop(gang.id, None)
            self._promised[eviction.beneficiary] -= 1
            if not self._promised[eviction.beneficiary]:
                del self._promised[eviction.beneficiary]

    async def _mark(self, gang: Gang, eviction: Eviction, at: float) -> None:
        mark = evictions.mark_for(eviction, at=at)
        going = {pod.uid for pod in eviction.pods}
        members = tuple(member for member in gang.released if member.uid in going and not member.leaving)
        log.info("gang %s: %d pods to be evicted at %s: %s",
            eviction.id, len(members), timestamps.seconds(at), mark.story)  # fmt: skip
        try:
            if eviction.beneficiary:
                await self._count(eviction.queue)
                await self._hold(mark)
            await _all(self._writer.mark(member.pod, mark) for member in members)
        except Exception:
            self._spared[gang.id] = self._wall() + SPARE_S
            self._metrics.evictions.labels(mark.kind, "failed").inc()
            raise
        if mark.for_gang is not None:
            self._began.setdefault(mark.for_gang, self._wall())
        if at > self._wall():  # else it is told in a moment that it was
            self._reporter.event(gang.id, "Evicting", str(Course(mark=mark)), warning=True)

    async def _count(self, queue: str) -> None:
        raw = self._state.queues.get(queue)
        if raw is None or not (raw.get("spec") or {}).get("disruptionBudget"):
            return
        now = self._wall()
        stamp = timestamps.micro(now)
        self._times[queue] = (*self._times.get(queue, ()), stamp)
        times = disruption.recent(raw["spec"], self._queue_times(queue), now=now)
        self._times[queue] = tuple(time for time in self._times[queue] if time in times)
        await self._writer.note_evictions(queue, times)

    async def _hold(self, mark: Mark) -> None:
        gang = self._state.gangs.get(mark.for_gang) if mark.for_gang else None
        until = mark.at + evictions.HOLD_S
        if gang is None or not gang.gated or evictions.holds_until(gang) >= until:
            return
        await self._writer.hold_for(gang.gated[0].pod, until)

    # -- an eviction under way -------------------------------------------------------------------------------------

    def next_step(self, gang: Gang, *, now: float, wanted: Callable[[GangId], bool]) -> Step | None:
        again = self._again.get(gang.id, 0.0)

        def refusal(members: tuple[Member, ...]) -> str:
            why = disruption.refusal([member.pod for member in members], self._state.guards.values())
            return why or (self._refused.get(gang.id, "") if again > now else "")

        found = evictions.next_step(gang, now=now, wanted=wanted, refusal=refusal)
        if isinstance(found, evictions.Evict) and again > now:  # what was done may not be seen yet
            return evictions.Wait(until=again, mark=found.mark)
        if isinstance(found, evictions.Wait) and found.refused:
            self._note_refusal(gang.id, found.refused, found.mark)
        return found

    async def carry_out(self, gang: Gang, step: Step, *, since: float) -> None:
        """One step; the gang's next change, or its deadline, brings the next."""
        async with self._few:
            if isinstance(step, evictions.Spread):
                await _all(self._writer.mark(member.pod, step.mark) for member in step.members)
            elif isinstance(step, evictions.Cancel):
                await self._cancel(gang, step)
            elif isinstance(step, evictions.Evict):
                await self._evict(gang, step, since=since)

    async def _cancel(self, gang: Gang, step: evictions.Cancel) -> None:
        log.info("gang %s/%s: not evicted after all: %s", *gang.id, step.why)
        if step.refused:
            self._spared[gang.id] = self._wall() + SPARE_S
        reason = "Refused" if step.refused else "Cancelled"
        await _all(self._writer.unmark(member.pod, reason, step.why) for member in step.members)
        self._metrics.evictions.labels(step.mark.kind, reason.lower()).inc()
        more = f"; it is no victim for {SPARE_S:.0f} s" if step.refused else ""
        self._reporter.event(gang.id, f"Eviction{reason}", f"it stays: {step.why}{more}")

    async def _evict(self, gang: Gang, step: evictions.Evict, *, since: float) -> None:
        mark = step.mark
        if mark.whole:
            owner = step.members[0].owner if gang.solo else ""
            past = evictions.Past(at=self._wall(), since=since, mark=str(mark), why=mark.why, owner=owner)
            await self._writer.remember(gang.id, past)
        freed = sum(_devices(claim) for claim in held(step.members).values())
        first, rest = step.members[:1], step.members[1:]
        refused = [await self._writer.evict_now(member.pod, mark) for member in first]
        if not any(refused) or step.torn:  # the first says whether budgets let the others go
            refused += await _all(self._writer.evict_now(member.pod, mark) for member in rest)
        problems = [why for why in refused if why]
        self._tries[gang.id] = tries = self._tries.get(gang.id, 0) + 1 if problems else 0
        self._again[gang.id] = self._wall() + evictions.RETRY_S * 2.0 ** min(max(0, tries - 1), DOUBLINGS_MAX)
        gone = step.members[: len(refused)]
        for member, why in list(zip(gone, refused, strict=True))[:EVENTS_MAX]:
            if not why:
                self._reporter.pod_event(member.pod, "Evicted", mark.story, warning=True)
        if problems:
            self._note_refusal(gang.id, problems[0], mark)
            return
        log.info("gang %s/%s: %d pods evicted: %s", *gang.id, len(gone), mark)
        self._metrics.evictions.labels(mark.kind, "evicted").inc()
        self._metrics.reclaimed_devices.labels(mark.kind).inc(freed)
        pods = f"{len(gone)} pod{'s' if len(gone) != 1 else ''}"
        self._reporter.event(gang.id, "Evicted", f"{pods} evicted: {mark.story}", warning=True)

    def _note_refusal(self, gang_id: GangId, why: str, mark: Mark) -> None:
        if self._refused.get(gang_id) != why:
            until = timestamps.seconds(mark.given_up_at)
            said = f"{why}; tried again until {until}, then others are chosen"
            self._reporter.event(gang_id, "EvictionRefused", said, warning=True)
        self._refused[gang_id] = why

    # -- the end ---------------------------------------------------------------------------------------------------

    def landed(self, gang_id: GangId) -> None:
        """The gang for which others went has been released."""
        began = self._began.pop(gang_id, None)
        if began is not None:
            self._metrics.landing_seconds.observe(max(0.0, self._wall() - began))

    def gone(self, gang_id: GangId) -> None:
        """Nothing is left of the gang."""
        self.look(gang_id, None)
        self._began.pop(gang_id, None)
        self._spared.pop(gang_id, None)


def _devices(claim: resource.ResourceClaim) -> int:
    return len(claim.status.allocation.devices.results) if claim.status.allocation else 0


async def _all(work: Iterable[Awaitable[object]]) -> list[str]:
    """The answers in order, those that are none as empty. All are waited for before the first error is raised."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result if isinstance(result, str) else "" for result in results]
