"""The engine's snapshot: its gangs kept current one by one as they change, the rest read from the caches.

A gang is requested unless a task is writing it, its backoff is active, or one of its claims is being written for another.
A gang that is being admitted counts as running, with what its admission gives: for a plain one that is noted once.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from msgspec.structs import replace

from fairlead.controller.autoscaling.awaited import AwaitedNodes
from fairlead.controller.book.book import Book, GangState
from fairlead.controller.commit.evictor import is_preemptor, may_evict
from fairlead.controller.commit.gang_tasks import GangTasks
from fairlead.controller.commit.part import Part, Shared
from fairlead.controller.commit.places import Places
from fairlead.controller.gangs.admission.requests import GangRecord, gang_request, same_request
from fairlead.controller.gangs.claims.quotas import add, admission_charge
from fairlead.controller.gangs.evictions.past_evictions import PastEviction
from fairlead.controller.gangs.held.running import RunningContext, admitted_gang, running_gang
from fairlead.controller.gangs.held.vacancies import with_leftover
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.gangs.membership.members import Member
from fairlead.controller.gangs.pods import member_of
from fairlead.controller.holding import Holding, Rollouts, StartHistory, restart_s, wakes
from fairlead.controller.queue_inputs import QueueInputs
from fairlead.controller.watch.caches import Caches
from fairlead.engine.placement.value.workload import WorkloadCounter
from fairlead.engine.plan.turns import TURN_S
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.gangs import GangRequest, RunningGang
from fairlead.engine.types.plan import Admission, Plan
from fairlead.engine.types.pods import Workload
from fairlead.engine.types.reasons import Code
from fairlead.kube import core

NAMESPACE_STEPS = 25_000  # of searches for one namespace's gangs in a decision: an eighth of a second or more


def queued_since(caches: Caches, book: Book, gang: Gang, now: float) -> float:
    """Unix seconds: as of its oldest pod, or of the gang that was evicted or rolled back before it."""
    found = _queued_before(book[gang.id], caches.records.past_evictions(gang, now))
    return gang.created if found is None else min(gang.created, found)


def _queued_before(state: GangState, past: Iterable[PastEviction]) -> float | None:
    backoff = state.backoff
    own = () if backoff is None or backoff.queued_since is None else (backoff.queued_since,)
    return min((*(each.queued_since for each in past), *own), default=None)


class SnapshotBuilder(Part):
    def __init__(
        self,
        shared: Shared,
        gang_tasks: GangTasks,
        queues: QueueInputs,
        places: Places,
        awaited: AwaitedNodes,
        history: StartHistory,
    ) -> None:
        """`history`: of how long gangs take to start."""
        super().__init__(shared)
        self._requests = shared.book.all(GangState.request)
        self._gang_tasks = gang_tasks
        self._refusals = gang_tasks.backoffs.refusals
        self._queues = queues
        self._places = places
        self._awaited = awaited
        self._history = history
        self._learner = WorkloadCounter()
        self._holding = Holding(shared.book)
        self._rollouts = Rollouts(shared.book)
        self._built_at = 0.0  # the last snapshot; unix seconds
        self._searched: frozenset[str] = frozenset()  # see `engine.plan.turns`
        self._searched_at = 0.0
        self._crowded: frozenset[str] = frozenset()  # namespaces of which the last decision had no time for all gangs

    # -- one gang --------------------------------------------------------------------------------------------------

    def record(self, gang: Gang, now: float) -> GangRecord:
        raw = self._caches.gang_object(gang.id) or {}
        state = self._book[gang.id]
        past = self._caches.records.past_evictions(gang, now)
        self._refusals.learn(gang, past, now)
        return GangRecord(
            uid=raw.get("metadata", {}).get("uid", ""),
            queued_since=_queued_before(state, past),
            avoid_nodes=tuple(sorted(state.backoff.avoid)) if state.backoff else (),
            refused=self._refusals.of(gang, now),
            preemptor=is_preemptor(state, gang, self._caches.gang_object(gang.id), now),
            hold=self._caches.records.hold_of(gang),
        )

    def remove(self, gang_id: GangId) -> GangRequest | None:
        """The gang is pending no more until it is set again, nor does it hold anything if it is gone. Returns what it requested."""
        self._caches.tables.awaits_neighbours(gang_id, awaits=False)
        gang = self._caches.gangs.get(gang_id)
        if gang is None or not gang.members:
            self._holding.set(gang_id, None)
            self._book[gang_id].running_since = None
            self._rolls(gang_id, None)
        return self._book.take(gang_id, GangState.request)

    def admitted(self, admission: Admission, now: float) -> None:
        """The gang is pending no more; its admission has begun."""
        gang_id = (admission.namespace, admission.name)
        self._book[gang_id].request = None
        self._caches.tables.awaits_neighbours(gang_id, awaits=False)
        gang = self._caches.gangs.get(gang_id)
        if gang is not None and gang.plain:
            self._holding.set(gang_id, self._admitted(gang, admission, now))

    def _note_written(self) -> None:
        """Plain gangs whose admission is written hold the claims that it made, which were unnamed in `admitted`."""
        for gang_id in self._gang_tasks.take_written():
            gang, held = self._caches.gangs.get(gang_id), self._holding.get(gang_id)
            if gang is None or held is None or self._book[gang_id].settles_until is None:
                continue  # looked at meanwhile
            made = (
                self._caches.lookup.claim(gang.namespace, each.source.claim)
                for member in gang.members
                for each in member.claims
                if each.source is not None
            )
            uids = sorted(claim.metadata.uid for claim in made if claim is not None)
            self._holding.set(gang_id, replace(held, claims=tuple(uids)))

    def _admitted(self, gang: Gang, admission: Admission, now: float) -> RunningGang:
        labels = self._caches.namespace_labels(gang.namespace)
        return admitted_gang(gang, admission, self.record(gang, now), labels, now)

    def set_running(self, gang: Gang, record: GangRecord, now: float) -> None:
        """What the gang holds, if anything; a plain one that is being admitted holds what `admitted` noted."""
        self._rolls(gang.id, gang)
        if gang.plain and self._book[gang.id].admitting:
            return
        rules, lookup, state = self._caches.rules, self._caches.lookup, self._book[gang.id]
        if (state.exempt_until or 0.0) <= now:
            state.exempt_until = None
        before = self._book.take(gang.id, GangState.running_since)
        idle = rules.idle(gang, now)
        context = RunningContext(
            running_since=before,
            idle=None if idle is None else idle[0],
            models=rules.namespace_models(gang.namespace),
            movable=rules.movable(gang),
            restart_s=restart_s(gang, state, self._history),
            evicting=frozenset(pod.uid for pod in state.evicting.pods) if state.evicting else (),
            not_evictable=state.exempt_until is not None,
            budgets_of=lambda member: lookup.budgets_of(member.pod),
            job_deadline=lambda member: lookup.job_deadline(member.pod),
            bounds=rules.namespace_bounds(gang.namespace),
            volumes_of=self._volumes_of,
        )
        running = running_gang(gang, record, self._caches.namespace_labels(gang.namespace), context)
        if running is not None and gang.started and not gang.solo:
            state.running_since = running.started
        if wakes(self._holding.get(gang.id), running):
            self._caches.triggers.decide(urgent=True)
        self._holding.set(gang.id, running)

    def _volumes_of(self, member: Member) -> tuple[core.NodeSelector, ...] | None:
        needs = self._caches.lookup.volume_needs(member.pod)
        return needs.where if needs.problem is None else None

    def _rolls(self, gang_id: GangId, gang: Gang | None) -> None:
        """Who waits for whom is an input of the decision."""
        if self._rollouts.set(gang_id, gang):
            self._caches.triggers.decide()

    def set_request(self, gang: Gang, record: GangRecord, before: GangRequest | None) -> GangRequest | None:
        """What the gang asks for, if anything. A decision is due if it differs from `before`: at once, but in a crowded namespace."""
        tables = self._caches.tables
        request = gang_request(
            gang,
            record,
            self._caches.namespace_labels(gang.namespace),
            limited=tables.namespace_quotas.limited(gang.namespace),
            classes=tables.classes,
            namespaces=self._caches.namespaces_of,
            models=self._caches.rules.namespace_models(gang.namespace),
            ends_by=self._ends_by(gang),
        )
        if request is None:
            return None
        tables.awaits_neighbours(gang.id, awaits=any(member.needs.neighbours for member in request.members))
        self._book[gang.id].request = request
        if request.whole and not (before and before.whole):
            self._learner.note(request)
        if not same_request(request, before):
            self._caches.triggers.decide(urgent=gang.namespace not in self._crowded)
        return request

    def _ends_by(self, gang: Gang) -> float | None:
        """When the first of its Jobs ends though its pods wait."""
        ends = (self._caches.lookup.job_deadline(member.pod) for member in gang.gated)
        return min((end for end in ends if end is not None), default=None)

    @property
    def waiting(self) -> Container[GangId]:
        """The gangs that the last decision had no devices for."""
        return self._book.all(GangState.waiting)

    def others_wait(self, gang_id: GangId) -> bool:
        """Whether another gang asks for devices."""
        return len(self._requests) > (gang_id in self._requests)

    @property
    def workload(self) -> Workload | None:
        """What pods usually ask for, as the last decision had it."""
        return self._learner.latest

    # -- all of them -----------------------------------------------------------------------------------------------

    def build(self, now: float) -> Snapshot:
        settings, tables = self._caches.rules.settings(), self._caches.tables
        self._built_at = now
        queues = self._queues.queues(now)
        self._note_written()
        pending = self._places.lift(self._rollouts.lift(self._pending(now)), self._owner, now)
        pending = self._awaited.lift(pending, scales=bool(settings.autoscaling))
        return Snapshot(
            inventory=tables.inventory,
            nodes=tables.nodes,
            classes=dict(tables.classes),  # of now: a decision may run beside the watches
            gangs=tuple(sorted(pending, key=lambda request: request.id)),
            running=self._holding.all(self._held_otherwise(now)),
            queues=queues,
            flavors=settings.flavors,
            budgets=tuple(budget.for_engine() for _, budget in sorted(tables.pod_budgets.items())),
            namespace_quotas=tables.namespace_quotas.now(self._writing_charges()),
            usage_weight=self._options.usage_weight,
            workload=self._learner.workload(),
            namespace_steps=NAMESPACE_STEPS,
            searched=self._searched,
        )

    def decided(self, plan: Plan) -> None:
        """The decision on the last snapshot is made: to be called before it is carried out."""
        self._places.restore(plan, self._built_at)
        if self._any_awaits_admissions(plan):
            self._gang_tasks.awaited()

    def note(self, plan: Plan, now: float) -> set[GangId]:
        """What the next snapshots take from the plan. Returns the gangs whose demand for nodes changed."""
        self._note_turns(plan)
        return self._awaited.decided(plan, self._requests, now)

    def _note_turns(self, plan: Plan) -> None:
        """Which gangs the next decisions pass over: the same for a while, so that what wakes the loop searches for no more."""
        self._crowded = frozenset(each.namespace for each in plan.waiting if each.reason.code is Code.SEARCH_ENDED)
        if self._built_at - self._searched_at >= TURN_S and self._searched != frozenset(plan.searched):
            self._searched, self._searched_at = frozenset(plan.searched), self._built_at

    def _any_awaits_admissions(self, plan: Plan) -> bool:
        """Whether what gangs are being given is part of the answer to a gang that waits."""
        least: dict[str, int] = {}  # by queue: lowest priority of the gangs that are being admitted
        for admission in (*self._gang_tasks.admissions().values(), *plan.admissions):
            gang = self._caches.gangs.get((admission.namespace, admission.name))
            if gang is not None:
                least[admission.queue] = min(gang.priority, least.get(admission.queue, gang.priority))
        if not least:
            return False
        waiting = ((each, self._requests.get((each.namespace, each.name))) for each in plan.waiting)
        return any(request is not None and may_evict(each, request, least) for each, request in waiting)

    def _writing_charges(self) -> dict[str, dict[str, int]]:
        """By namespace, what admissions under way still add to its quotas: for the claims that the caches do not show yet."""
        found: dict[str, dict[str, int]] = {}
        tables = self._caches.tables
        for gang_id, admission in self._gang_tasks.admissions().items():
            gang, limited = self._caches.gangs.get(gang_id), tables.namespace_quotas.limited(gang_id[0])
            if gang is None or not limited:
                continue
            pods = {assigned.pod.uid for assigned in admission.assignments}
            members = [member_of(each.pod, self._caches.lookup) for each in gang.gated if each.uid in pods]
            charge = admission_charge(members, limited, tables.classes)
            add(found.setdefault(gang_id[0], {}), dict(charge))
        return found

    def _owner(self, gang_id: GangId) -> str:
        """UID of the owner of a gang of one."""
        gang = self._caches.gangs.get(gang_id)
        return gang.members[0].owner if gang is not None and gang.solo and gang.members else ""

    def _pending(self, now: float) -> list[GangRequest]:
        writing = self._gang_tasks.writing()
        busy, backoffs = self._book.all(GangState.busy), self._book.all(GangState.backoff)
        found: list[GangRequest] = []
        for gang_id, request in self._requests.items():
            backoff = backoffs.get(gang_id)
            if gang_id in busy or (backoff is not None and backoff.until > now):
                continue
            if any(claim.key in writing for claim in request.claims):
                self._gang_tasks.awaited()
                continue
            found.append(request)
        return found

    def _held_otherwise(self, now: float) -> dict[GangId, RunningGang]:
        """What gangs hold, where that is not what their pods and claims show: leftovers, held places, admissions under way."""
        found: dict[GangId, RunningGang] = {}
        for left in {left.pod.uid: left for left in self._caches.tables.leftovers.values()}.values():
            labels = self._caches.namespace_labels(left.gang_id[0])
            found[left.gang_id] = with_leftover(found.get(left.gang_id, self._holding.get(left.gang_id)), left, labels)
        found |= self._places.held(lambda gang_id: found.get(gang_id, self._holding.get(gang_id)), now)
        for gang_id, admission in self._gang_tasks.admissions().items():
            gang = self._caches.gangs.get(gang_id)
            if gang is not None and not gang.plain:
                found[gang_id] = self._admitted(gang, admission, now)
        return found
