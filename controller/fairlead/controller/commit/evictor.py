"""Carries out evictions: begins those decided, and brings those under way to their end, step by step.

What comes next is read from the pods' marks (`eviction_marks.next_step`), which count where the decision is in the Gang's status. So all
that is kept here may be lost with this process: evictions decided but not yet marked, failed attempts, refusals. Chooses no victims.
Order of writes: the queue's eviction times, the reservation for the beneficiary, the decision, then the marks; before the first pod is
evicted, the gang's age is written into the status of its Gang object.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from fairlead.api.gang import DECISIONS_MAX
from fairlead.controller.book.book import Attempts, Book, GangState
from fairlead.controller.commit.part import Part, Shared
from fairlead.controller.commit.places import Moves
from fairlead.controller.commit.writer import Writer
from fairlead.controller.commit.writes import all_done
from fairlead.controller.gangs.claims.allocations import held_claims, results
from fairlead.controller.gangs.evictions import disruption, eviction_marks, past_evictions
from fairlead.controller.gangs.evictions.eviction_marks import (
    Cancel,
    Evict,
    EvictionMark,
    EvictionProgress,
    Spread,
    Step,
    Wait,
)
from fairlead.controller.gangs.evictions.moved import spots_of
from fairlead.controller.gangs.held.leaving import Ask
from fairlead.controller.gangs.membership import decisions
from fairlead.controller.gangs.membership.decisions import Decision
from fairlead.controller.gangs.membership.gangs import Gang, GangId, gang_spec
from fairlead.controller.gangs.membership.members import Member
from fairlead.controller.watch.caches import Caches
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.plan import Eviction, Waiting
from fairlead.engine.types.settings import QueueSpec
from fairlead.kube import timestamps
from fairlead.kube.resources import Raw

log = logging.getLogger(__name__)

EXEMPT_S = 60.0  # how long a gang that could not be evicted is no victim
EVENTS_MAX = 16  # pods of a gang that get an event each
DOUBLINGS_MAX = 4  # a refused eviction is tried again after 5, 10, 20, … s
# Gangs whose eviction is being written: half of all writes, so that admissions do not wait behind thousands of evictions.
CONCURRENT_MAX = 32


class Evictor(Part):
    def __init__(self, shared: Shared, budgets: QueueBudgets, moves: Moves) -> None:
        super().__init__(shared)
        self.victims = Victims(shared.book)
        self._budgets = budgets
        self._moves = moves
        self._slots = asyncio.Semaphore(CONCURRENT_MAX)

    # -- what is known of evictions --------------------------------------------------------------------------------

    def update(self, gang_id: GangId, gang: Gang | None) -> None:
        """The gang changed: its marks are read again."""
        self.victims.update(gang_id, gang)
        if gang is None or not eviction_marks.marked(gang):
            self._book[gang_id].attempts = None

    def _attempts(self, gang_id: GangId) -> Attempts:
        return self._book[gang_id].attempts or Attempts()

    # -- a decided eviction ----------------------------------------------------------------------------------------

    def assume(self, gang_id: GangId, eviction: Eviction) -> None:
        """From here on the pods count as leaving, until `begin` has marked them or failed."""
        gang = self._caches.gangs.get(gang_id)
        if gang is not None:
            self._moves.decided(gang, eviction)
        if eviction.kind == "Move":
            self._metrics.moved_gpu_seconds.labels("room" if eviction.beneficiary else "node").inc(eviction.gpu_seconds)
        self._book[gang_id].evicting = eviction
        self._count(eviction, 1)
        self._metrics.evictions.labels(eviction.kind, "begun").inc()
        self._traces.eviction_begun(gang_id)

    async def begin(self, gang: Gang, eviction: Eviction, at: float) -> None:
        """Marks the pods to be evicted. On an error the gang is exempt for a while, and the error is raised."""
        try:
            async with self._slots:
                await self._mark(gang, eviction, max(at, self._wall() + eviction.checkpoint_grace_s))
        finally:
            self._book[gang.id].evicting = None
            self._moves.marked(gang.id)
            self._count(eviction, -1)

    def _count(self, eviction: Eviction, more: int) -> None:
        namespace, _, name = eviction.beneficiary.partition("/")
        if name:
            beneficiary = self._book[namespace, name]
            beneficiary.decided_for = (beneficiary.decided_for or 0) + more or None

    async def _mark(self, gang: Gang, eviction: Eviction, at: float) -> None:
        mark = eviction_marks.mark_for(eviction, at=at, asked=self._wall())
        spots = spots_of(eviction.place) if eviction.place is not None else {}
        chosen = {pod.uid for pod in eviction.pods}
        members = tuple(member for member in gang.released if member.uid in chosen and not member.terminating)
        log.info("gang %s: %d pods to be evicted at %s: %s",
            eviction.id, len(members), timestamps.seconds(at), mark.description)  # fmt: skip
        try:
            if eviction.beneficiary:
                await self._budgets.note_eviction(eviction.queue, self._wall())
                await self._reserve(mark)
            decided = eviction_marks.decision(mark, spots.values())
            await self._writer.note_decisions(gang.id, [*self._under_way(gang), decided], gang_spec(gang))
            await all_done(
                self._writer.mark(member.pod, dataclasses.replace(mark, spot=spots.get(member.uid)))
                for member in members
            )
        except Exception:
            self._book[gang.id].exempt_until = self._wall() + EXEMPT_S
            self._metrics.evictions.labels(mark.kind, "failed").inc()
            raise
        if mark.beneficiary_id is not None:
            beneficiary = self._book[mark.beneficiary_id]
            beneficiary.preempting_since = beneficiary.preempting_since or self._wall()
        if at > self._wall():  # else the event of the eviction follows at once
            self._events.gang(gang.id, "Evicting", str(EvictionProgress(mark=mark)), warning=True)

    def _under_way(self, gang: Gang) -> list[Decision]:
        """Decisions of the gang that marks on its pods still follow; the latest, since their number is bounded."""
        marks = [mark for _, mark in eviction_marks.marked(gang)]
        followed = (each for each in gang.decisions if any(eviction_marks.follows(mark, each) for mark in marks))
        return list(followed)[1 - DECISIONS_MAX :]

    def _reserved_until(self, gang: Gang, now: float) -> float:
        return decisions.reserved_until(self._caches.gang_object(gang.id), now) if gang.gated else 0.0

    async def _reserve(self, mark: EvictionMark) -> None:
        """Reserves the devices for the beneficiary, unless that lasts as long already."""
        gang = self._caches.gangs.get(mark.beneficiary_id) if mark.beneficiary_id else None
        until = mark.at + eviction_marks.HOLD_S
        if gang is None or not gang.gated or self._reserved_until(gang, self._wall()) >= until:
            return
        await self._writer.reserve(gang.id, until, gang_spec(gang))

    # -- an eviction under way -------------------------------------------------------------------------------------

    def next_step(
        self, gang: Gang, *, now: float, still_waits: Callable[[GangId], bool], idle: Callable[[], bool]
    ) -> Step | None:
        attempts = self._attempts(gang.id)
        retry_at, refused = attempts.retry_at, attempts.refused

        def refusal(members: tuple[Member, ...]) -> str:
            budgets = self._caches.tables.pod_budgets.values()
            why = disruption.refusal([member.pod for member in members], budgets)
            return why or (refused if retry_at > now else "")

        step = eviction_marks.next_step(
            gang, now=now, still_waits=still_waits, idle=idle, refusal=refusal, refused=refused,
            node_goes=lambda: self._caches.lookup.notice(gang) is not None,
            on_hold=lambda: self._caches.rules.evicted_by_hold(gang),
        )  # fmt: skip
        if isinstance(step, Evict) and retry_at > now:  # the informers may not show the last attempt yet
            override_at = step.mark.override_at
            if override_at is None or attempts.at >= override_at:
                return Wait(until=retry_at, mark=step.mark)
            if not step.overridden:
                return Wait(until=min(retry_at, max(override_at, now)), mark=step.mark)
        if isinstance(step, Wait) and step.refused:
            self._note_refusal(gang.id, step.refused, step.mark)
        return step

    async def carry_out(self, gang: Gang, step: Step, *, queued_since: float) -> None:
        """One step. The gang's next change, or its deadline, leads to the next."""
        async with self._slots:
            if isinstance(step, Spread):
                await all_done(self._writer.mark(member.pod, step.mark) for member in step.members)
            elif isinstance(step, Cancel):
                await self._cancel(gang, step)
            elif isinstance(step, Evict):
                await self._evict(gang, step, queued_since=queued_since)

    async def _cancel(self, gang: Gang, step: Cancel) -> None:
        log.info("gang %s/%s: eviction cancelled: %s", *gang.id, step.why)
        if step.refused:
            self._book[gang.id].exempt_until = self._wall() + EXEMPT_S
        reason = "Refused" if step.refused else "Cancelled"
        await all_done(self._writer.unmark(member.pod, reason, step.why) for member in step.members)
        await self._writer.note_decisions(gang.id, (), gang_spec(gang))
        self._metrics.evictions.labels(step.mark.kind, reason.lower()).inc()
        self._traces.eviction_ended(gang, step.mark, 0, why=f"{reason.lower()}: {step.why}")
        more = f"; it is no victim for {EXEMPT_S:.0f} s" if step.refused else ""
        self._events.gang(gang.id, f"Eviction{reason}", f"it stays: {step.why}{more}")

    async def _evict(self, gang: Gang, step: Evict, *, queued_since: float) -> None:
        mark = step.mark
        if mark.whole:
            now = self._wall()
            if mark.kind == "Idle":
                queued_since = now  # its pods wait behind those that waited while it was idle
            past = past_evictions.eviction_of(
                gang, step.members, mark, queue=self._caches.rules.queue_of(gang.id), at=now, queued_since=queued_since
            )
            if self._book[gang.id].move is None:  # whatever its marks say
                past = dataclasses.replace(past, place=(), held_until=0.0)
            await self._writer.note_past_eviction(gang.id, past, gang_spec(gang))
        freed = sum(len(results(claim)) for claim in held_claims(step.members).values())
        grace_s, delete = int(self._caches.rules.bounds(gang).termination_grace_s), bool(step.overridden)
        if delete:
            self._note_override(gang, step)
        # The first shows whether budgets allow the others.
        refusals = [await self._writer.evict(step.members[0].pod, mark, grace_s=grace_s, delete=delete)]
        if not refusals[0] or step.partly_gone or delete:
            refusals += await all_done(
                self._writer.evict(member.pod, mark, grace_s=grace_s, delete=delete) for member in step.members[1:]
            )
        self._note_attempt(gang.id, failed=any(refusals))
        for member, why in list(zip(step.members, refusals, strict=False))[:EVENTS_MAX]:
            if not why:
                self._events.pod(member.pod, "Evicted", mark.description, warning=True)
        if any(refusals):
            self._note_refusal(gang.id, next(why for why in refusals if why), mark)
            return
        log.info("gang %s/%s: %d pods evicted: %s", *gang.id, len(refusals), mark)
        self._metrics.evictions.labels(mark.kind, "evicted").inc()
        self._traces.eviction_ended(gang, mark, len(refusals))
        self._metrics.reclaimed_devices.labels(mark.kind).inc(freed)
        pods = f"{len(refusals)} pod{'s' if len(refusals) != 1 else ''}"
        self._events.gang(gang.id, "Evicted", f"{pods} evicted: {mark.description}", warning=True)

    def _note_override(self, gang: Gang, step: Evict) -> None:
        """Says on the gang and on the budgets that pods are deleted though a PodDisruptionBudget refuses."""
        message = (
            f"deleted although {step.overridden}: gang {step.mark.beneficiary} has waited for what its queue deserves as "
            "long as maxCheckpointGrace lets a budget delay that; podDisruptionBudgets: Respected in the Queue would prevent it"
        )
        self._events.gang(gang.id, "BudgetOverridden", message, warning=True)
        self._metrics.evictions.labels(step.mark.kind, "budget_overridden").inc()
        names_ = {name for member in step.members for name in self._caches.lookup.budgets_of(member.pod)}
        for name in sorted(names_)[:EVENTS_MAX]:
            self._events.budget(gang.namespace, name, "BudgetOverridden", f"pods of gang {gang.name} are {message}")

    async def announce(self, gang: Gang, ask: Ask) -> None:
        """Asks pods to save their work, since their node goes; or takes that back."""
        async with self._slots:
            await all_done(self._writer.ask_checkpoint(member.pod, ask.by) for member in ask.members)
        if ask.by is None:
            self._events.gang(gang.id, "NodeStays", "the node that was to go stays")
            return
        log.info("gang %s/%s: %s", *gang.id, ask.why)
        self._events.gang(gang.id, "NodeGoes", ask.why, warning=True)
        for member in ask.members[:EVENTS_MAX]:
            self._events.pod(member.pod, "NodeGoes", ask.why, warning=True)

    async def shorten(self, gang: Gang, members: tuple[Member, ...], bound_s: float) -> None:
        """Pods that have been leaving for longer than their bound are to end now, since a gang waits."""
        async with self._slots:
            why = f"leaving for longer than maxTerminationGrace allows ({bound_s:.0f} s) while a gang waits: it is to end now"
            refusals = await all_done(self._writer.shorten(member.pod) for member in members)
            for member, refusal in list(zip(members, refusals, strict=True))[:EVENTS_MAX]:
                if not refusal:
                    self._events.pod(member.pod, "TerminationShortened", why, warning=True)
            log.info("gang %s/%s: %d pods %s", *gang.id, len(members), why)

    def _note_attempt(self, gang_id: GangId, *, failed: bool) -> None:
        attempts = self._book[gang_id].attempts = self._attempts(gang_id)
        attempts.at = self._wall()
        attempts.failures = attempts.failures + 1 if failed else 0
        doublings = min(max(0, attempts.failures - 1), DOUBLINGS_MAX)
        attempts.retry_at = self._wall() + eviction_marks.RETRY_S * 2.0**doublings

    def _note_refusal(self, gang_id: GangId, why: str, mark: EvictionMark) -> None:
        attempts = self._book[gang_id].attempts = self._attempts(gang_id)
        if attempts.refused != why:
            until = timestamps.seconds(mark.refusable_until)
            then = "others are chosen" if mark.override_at is None else "its pods are deleted"
            message = f"{why}; tried again until {until}, then {then}"
            self._events.gang(gang_id, "EvictionRefused", message, warning=True)
        attempts.refused = why

    def admitted(self, gang_id: GangId) -> None:
        """A gang was released: if others were evicted for it, that took this long."""
        since = self._book.take(gang_id, GangState.preempting_since)
        if since is not None:
            self._metrics.preemptor_admission_seconds.observe(max(0.0, self._wall() - since))


class Victims:
    """Which gangs are being evicted for which, as their marks say: kept current by `update` for each gang that changed."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._victims = book.all(GangState.victims)  # never empty
        self._changed: set[GangId] = set()  # beneficiaries with other victims than before

    def update(self, gang_id: GangId, gang: Gang | None) -> None:
        """Reads the gang's marks again; None: the gang is gone."""
        before = self._book.take(gang_id, GangState.evicted_for)
        if before is not None:
            self._book[before].victims = self._victims[before] - {gang_id} or None
        pairs = eviction_marks.marked(gang) if gang else ()
        beneficiary = next((mark.beneficiary_id for _, mark in pairs), None)
        if beneficiary is not None:
            self._book[gang_id].evicted_for = beneficiary
            self._book[beneficiary].victims = {*self._victims.get(beneficiary, ()), gang_id}
        if before != beneficiary:
            self._changed |= {each for each in (before, beneficiary) if each is not None}

    def take_beneficiaries(self) -> set[GangId]:
        """Those that have other victims than at the last call."""
        taken, self._changed = self._changed, set()
        return taken

    def of_any(self, beneficiaries: Iterable[GangId]) -> set[GangId]:
        return {victim for gang_id in beneficiaries for victim in self._victims.get(gang_id, ())}


def is_preemptor(state: GangState, gang: Gang, gang_object: Raw | None, now: float) -> bool:
    """Whether devices are reserved for the gang because others are or were evicted for it."""
    return bool(state.victims or state.decided_for) or (
        bool(gang.gated) and decisions.reserved_until(gang_object, now) > now
    )


def may_evict(waiting: Waiting, request: GangRequest, least: Mapping[str, int]) -> bool:
    """Whether the gang that waits could evict a gang that is being admitted, once it runs; so it learns when min-runtime ends.

    `least` is the lowest priority of those by queue. Of its own queue a gang evicts those of lower priority only.
    """
    if not request.preempts or waiting.reason.could_ever_fit is False or waiting.queue is None:
        return False
    return any(queue != waiting.queue or priority < request.priority for queue, priority in least.items())


class QueueBudgets:
    """How many gangs of a queue may still be evicted for others, by its disruption budget.

    Counts the eviction times in the Queue's status, and those just begun, which the watched status may not show yet.
    """

    def __init__(self, writer: Writer, caches: Caches) -> None:
        self._writer = writer
        self._caches = caches
        self._begun: dict[str, tuple[str, ...]] = {}  # eviction times by queue

    def with_evictions_left(self, queues: Sequence[QueueSpec], now: float) -> tuple[QueueSpec, ...]:
        """The queues, each with `evictions_left` of its budget."""
        found = []
        for queue in queues:
            raw = self._caches.queues.get(queue.name) or {}
            left = disruption.evictions_left(raw.get("spec") or {}, self._times(queue.name), now=now)
            found.append(queue if left == queue.evictions_left else replace(queue, evictions_left=left))
        return tuple(found)

    def next_refill(self, now: float) -> float | None:
        """Unix seconds at which the first budget allows one eviction more."""
        refills = (
            disruption.next_refill(spec, self._times(raw["metadata"]["name"]), now=now)
            for raw in self._caches.queues.all()
            if (spec := raw.get("spec") or {}).get("disruptionBudget")
        )
        return min((at for at in refills if at is not None), default=None)

    async def note_eviction(self, queue: str, now: float) -> None:
        """Writes into the Queue's status that a gang of it is evicted now, if the queue has a budget."""
        raw = self._caches.queues.get(queue)
        if raw is None or not (raw.get("spec") or {}).get("disruptionBudget"):
            return
        self._begun[queue] = (*self._begun.get(queue, ()), timestamps.micro(now))
        times = disruption.times_in_window(raw["spec"], self._times(queue), now=now)
        self._begun[queue] = tuple(time for time in self._begun[queue] if time in times)
        await self._writer.note_eviction_times(queue, times)

    def _times(self, queue: str) -> tuple[str, ...]:
        raw = self._caches.queues.get(queue) or {}
        written = (raw.get("status") or {}).get("evictions") or ()
        return (*written, *(time for time in self._begun.get(queue, ()) if time not in written))
