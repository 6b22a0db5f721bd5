"""What changed gangs need apart from a decision: claims repaired, a recovery or eviction step, or a new request.

In this order, and one at a time per gang: an interrupted or late admission is recovered (`gangs.recovery`); an eviction is
continued (`eviction_marks.next_step`), or begun for a gang that was short of members too long; else the gang is requested if
members wait, and the claim controller has had time to make the claims that it makes. A step runs as the gang's task; when it ends,
the gang is reconciled again. Deadlines are the times at which a step is due though nothing changed.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
from collections.abc import Iterator

from fairlead.controller.book.book import Book, GangState
from fairlead.controller.commit.admitter import Admitter
from fairlead.controller.commit.claim_reconciler import ClaimReconciler
from fairlead.controller.commit.evictor import Evictor
from fairlead.controller.commit.gang_tasks import GangTasks
from fairlead.controller.commit.part import Part, Shared
from fairlead.controller.commit.places import Places
from fairlead.controller.gangs.admission import recovery
from fairlead.controller.gangs.admission.recovery import tried_at
from fairlead.controller.gangs.admission.requests import GangRecord, blocking_problem, claims_awaited_until
from fairlead.controller.gangs.claims.allocations import pod_ref
from fairlead.controller.gangs.evictions import eviction_marks, past_evictions
from fairlead.controller.gangs.held import idleness, leaving
from fairlead.controller.gangs.membership import decisions, members
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.snapshot import SnapshotBuilder
from fairlead.engine.types.plan import Eviction
from fairlead.engine.types.reasons import Code, Reason
from fairlead.kube import core

log = logging.getLogger(__name__)

DEADLINE_MIN_S = 0.1
SWEEP_S = 30.0  # between two looks for garbage
MOVE_FIRST_S = 2.0  # a gang that may move away from a node that goes is not asked to save its work before
OUTDATED_MAX = 1000  # deadlines beyond those that count, until they are dropped
CONTAINED_S = 30.0  # until a gang is looked at again that could not be reconciled


class GangReconciler(Part):
    """Implements `triggers.Attention`. Times are unix seconds."""

    def __init__(
        self,
        shared: Shared,
        snapshots: SnapshotBuilder,
        gang_tasks: GangTasks,
        admitter: Admitter,
        evictor: Evictor,
        places: Places,
    ) -> None:
        super().__init__(shared)
        self._snapshots = snapshots
        self._gang_tasks = gang_tasks
        self._backoffs = gang_tasks.backoffs
        self._admitter = admitter
        self._evictor = evictor
        self._places = places
        self._claims = ClaimReconciler(shared)
        self._deadlines = Deadlines(shared.book)
        self._sweep_at = self._wall() + SWEEP_S

    def close(self) -> None:
        """The term ends."""
        self._claims.close()

    # -- what is due though nothing changed ------------------------------------------------------------------------

    def next_due(self) -> float:
        """A gang's deadline, the end of a backoff or of a held place, or garbage collection."""
        others = (
            self._deadlines.next(), self._backoffs.next_end(), self._gang_tasks.settled_at(), self._places.moves.next_end(),
        )  # fmt: skip
        return min((self._sweep_at, *(at for at in others if at is not None)))

    def expire(self, now: float) -> None:
        """Gangs whose deadline or backoff has passed are to be reconciled again."""
        triggers = self._caches.triggers
        self._gang_tasks.settle_due(now)
        triggers.gangs(self._deadlines.take_due(now))
        if self._places.moves.expire(now):
            triggers.decide()
        for gang_id in self._backoffs.expire(now, self._caches.gangs):
            triggers.decide(urgent=True)
            triggers.gang(gang_id)

    def collect_garbage(self, now: float) -> None:
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_S
            self._claims.collect_garbage()

    # -- gangs that changed ----------------------------------------------------------------------------------------

    def holds(self, gang_id: GangId) -> bool:
        """Whether the gang has devices, as it was last looked at, or is being written."""
        state = self._book[gang_id]
        return state.holding is not None or bool(state.busy)

    def put_off(self, gang_id: GangId) -> bool:
        """Whether to look at the gang only when its admission ends, which triggers it.

        Each write of its admission changes it, and nothing is started for it meanwhile.
        """
        state = self._book[gang_id]
        gang = self._caches.gangs.get(gang_id) if state.admitting else None
        if gang is None:
            return False
        if state.settles_until is not None and not all(self._about_to_bind(member.pod) for member in gang.members):
            self._gang_tasks.settle(gang_id)
            return False
        return True

    def _about_to_bind(self, pod: core.Pod) -> bool:
        """Whether nothing has become of the pod since it was released: not bound, not tried, not gone."""
        now = self._caches.pods.get(pod.metadata.key)
        return (
            now is not None
            and now.metadata.uid == pod.metadata.uid
            and not (now.spec.node_name or now.finished or now.metadata.deletion_timestamp)
            and not members.tried(now)
        )

    def reconcile(self, changed: set[GangId], now: float) -> set[GangId]:
        """Returns `changed`, and the gangs being evicted for one of them: their eviction may be cancelled."""
        for gang_id in sorted(changed):
            with self._contained(gang_id, now):
                gang = self._caches.gangs.get(gang_id)
                self._evictor.update(gang_id, gang)
                raw = self._caches.gang_object(gang_id)
                past = past_evictions.past_eviction(raw, now) if raw else None
                self._places.update(gang_id, gang, past, now)
        changed = changed | self._evictor.victims.of_any(changed) | self._evictor.victims.take_beneficiaries()
        for gang_id in sorted(changed):
            with self._contained(gang_id, now):
                self._reconcile(gang_id, now)
        return changed

    @contextlib.contextmanager
    def _contained(self, gang_id: GangId, now: float) -> Iterator[None]:
        """What goes wrong with one gang stays with it: the others go on, and it is looked at again after a while."""
        done = False
        with self._metrics.failures.contained("reconcile", "gang {}/{}".format(*gang_id)):
            yield
            done = True
        if not done:
            self._deadlines.set(gang_id, now + CONTAINED_S)

    def _reconcile(self, gang_id: GangId, now: float) -> None:
        gang = self._caches.gangs.get(gang_id)
        busy = bool(self._book[gang_id].busy)
        before = self._snapshots.remove(gang_id)
        self._deadlines.drop(gang_id)
        if gang is not None:
            again = self._claims.reconcile(gang, now, busy=busy)
            if again is not None:
                self._deadlines.set(gang_id, max(again, now + DEADLINE_MIN_S))
        if gang is None or not gang.members:
            return
        record = self._snapshots.record(gang, now)
        self._snapshots.set_running(gang, record, now)
        self._watch_idle(gang, now)
        if busy or self._recover(gang, now) or self._continue_eviction(gang, record, now):
            return
        if self._announce(gang, now) or self._shorten_leaving(gang, now):
            return
        if self._requeue_short(gang, record, now):
            return
        if gang.gated and blocking_problem(gang) is None:
            awaited_until = claims_awaited_until(gang)
            if awaited_until > now:
                self._deadlines.set(gang_id, awaited_until)
                return
            request = self._snapshots.set_request(gang, record, before)
            reserved_until = decisions.reserved_until(self._caches.gang_object(gang_id), now)
            if request is not None and request.preemptor and reserved_until > now:
                self._deadlines.set(gang_id, reserved_until)

    def _watch_idle(self, gang: Gang, now: float) -> None:
        """Looks at it again when it is to be told that it is idle, and decides when something follows from that."""
        found = self._caches.rules.idle(gang, now)
        if found is None:
            return
        again = idleness.looked_at_again(*found, now)
        if again is not None:
            self._deadlines.set(gang.id, again)
        if idleness.follows(*found, now):
            self._caches.triggers.decide()

    def _recover(self, gang: Gang, now: float) -> bool:
        """Whether a recovery step is needed. Starts it unless the gang's backoff is active."""
        state = self._book[gang.id]
        tried = tried_at(gang, state.tried or {}, now)
        state.tried = tried or None
        step = recovery.next_step(
            gang, now=now, timeout_s=self._options.gang_timeout_s, tried=tried, node_exists=self._caches.node_exists
        )
        if step is None:
            self._admitter.no_step(gang)
            for deadline in (
                recovery.next_deadline(gang, self._options.gang_timeout_s, tried),
                recovery.untried(gang, now)[1],
            ):
                if deadline is not None:
                    self._deadlines.set(gang.id, max(deadline, now + DEADLINE_MIN_S))
        elif state.backoff is not None and state.backoff.until > now:
            self._deadlines.set(gang.id, state.backoff.until)
        else:
            self._gang_tasks.start(gang.id, self._admitter.recover(gang, step))
        return step is not None

    def _continue_eviction(self, gang: Gang, record: GangRecord, now: float) -> bool:
        """Whether the whole gang is being evicted. Starts the eviction's next step, also of some members."""
        step = self._evictor.next_step(
            gang, now=now, still_waits=self._still_waits, idle=lambda: self._still_idle(gang, now)
        )
        if step is None:
            return False
        if isinstance(step, eviction_marks.Wait):
            self._deadlines.set(gang.id, step.until)
        else:
            self._gang_tasks.start(gang.id, self._evictor.carry_out(gang, step, queued_since=record.created(gang)))
        return step.mark.whole

    def _announce(self, gang: Gang, now: float) -> bool:
        """Whether pods are being asked to save their work, since a node of theirs goes. A gang that may move gets a moment to do so."""
        notice = self._caches.lookup.notice(gang)
        state = self._book[gang.id]
        ask = leaving.ask(gang, notice, now) if gang.running else None
        if ask is None or eviction_marks.marked(gang):
            state.noticed_at = None
            return False
        if notice is not None and (self._caches.rules.movable(gang) if gang.movable is None else gang.movable):
            since = state.noticed_at = state.noticed_at or now
            if now < since + MOVE_FIRST_S:
                self._deadlines.set(gang.id, since + MOVE_FIRST_S)
                return False
        self._gang_tasks.start(gang.id, self._evictor.announce(gang, ask))
        return True

    def _shorten_leaving(self, gang: Gang, now: float) -> bool:
        """Whether pods of it have been leaving for too long while another gang waits: then they are deleted again."""
        found = leaving.holding(gang)
        if not found:
            return False
        bound_s = self._caches.rules.bounds(gang).termination_grace_s
        late, soonest = leaving.to_shorten(found, bound_s, now)
        if late and self._snapshots.others_wait(gang.id):
            self._deadlines.set(gang.id, now + eviction_marks.RETRY_S)
            self._gang_tasks.start(gang.id, self._evictor.shorten(gang, late, bound_s))
            return True
        if late or soonest is not None:
            self._deadlines.set(gang.id, now + eviction_marks.RETRY_S if late or soonest is None else soonest)
        return False

    def _requeue_short(self, gang: Gang, record: GangRecord, now: float) -> bool:
        """Whether the gang was short of members, or had some on a lost node, for too long: then its eviction begins."""
        why, lost_until = "", None
        if lost := self._caches.lookup.lost_nodes(gang):
            why, lost_until = leaving.overdue(gang, lost, self._caches.rules.bounds(gang).lost_node, now)
        why = why or self._places.replacements.overdue(gang, now)
        if not why:
            for deadline in (self._places.replacements.deadline(gang.id), lost_until):
                if deadline is not None:
                    self._deadlines.set(gang.id, deadline)
            return False
        eviction = Eviction(
            kind="Replace",
            namespace=gang.namespace,
            name=gang.name,
            uid=record.uid_of(gang),
            queue=gang.queue or "",
            pods=tuple(pod_ref(member) for member in gang.running),
            whole=True,
            reason=Reason(code=Code.NOT_REPLACED, message=why, advice="all of them go, to start again together"),
            checkpoint_grace_s=min(gang.checkpoint_grace_s or 0.0, self._caches.rules.bounds(gang).checkpoint_grace_s),
        )
        self._evictor.assume(gang.id, eviction)
        self._gang_tasks.start(gang.id, self._evictor.begin(gang, eviction, now))
        return True

    def _still_idle(self, gang: Gang, now: float) -> bool:
        """Whether a gang that is evicted for being idle still is."""
        found = self._caches.rules.idle(gang, now)
        return found is not None and idleness.follows(*found, now)

    def _still_waits(self, beneficiary: GangId) -> bool:
        """Whether the gang still needs what others are evicted for."""
        gang = self._caches.gangs.get(beneficiary)
        if gang is None or not gang.gated or self._book[beneficiary].admitting:
            return False
        return blocking_problem(gang) is None and self._caches.rules.held_by(gang) is None


class Deadlines:
    """When each gang is to be looked at though nothing changed. Asking for the next costs the same however many there are."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._at = book.all(GangState.deadline)
        self._heap: list[tuple[float, GangId]] = []  # also what was dropped or replaced

    def set(self, gang_id: GangId, at: float) -> None:
        """The earliest of several counts."""
        if at >= self._at.get(gang_id, float("inf")):
            return
        self._book[gang_id].deadline = at
        heapq.heappush(self._heap, (at, gang_id))
        if len(self._heap) > 2 * len(self._at) + OUTDATED_MAX:
            self._heap = [(when, each) for each, when in self._at.items()]
            heapq.heapify(self._heap)

    def drop(self, gang_id: GangId) -> None:
        self._book[gang_id].deadline = None

    def next(self) -> float | None:
        """The first of all."""
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: float) -> list[GangId]:
        """The gangs whose deadline has come; it is dropped."""
        due: list[GangId] = []
        while (at := self.next()) is not None and at <= now:
            _, gang_id = heapq.heappop(self._heap)
            self.drop(gang_id)
            due.append(gang_id)
        return due
