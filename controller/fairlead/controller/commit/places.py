"""Places that are held for gangs in the engine's tables: for those that move, and for members of running gangs that are being replaced.

A moved gang's place is held from the decision until its new pods are admitted. What is held follows from the cluster: marks on the old
pods, then the record of the eviction in the Gang's status, as far as nothing else has the devices. Only a decision whose marks are not
written yet is known here alone. A place is given up when the eviction is cancelled, when the new pods get it, when they turn out not
to fit there, and at the latest when its time is up (`Held.until`). A gang of one has another name when its pod is made again: then its
owner, of the same namespace, tells which place is meant.

A running gang may be short of its size for `timeout_s`. Then it is evicted whole, to start again together, if its pods are still being
made; else (nothing is known to make another) its places are given up and the others run on. A place on a broken device is not
refilled: the engine, which sees who held it, evicts the gang whole. So it matters not whether the cluster's own taint eviction has
deleted the pod before the first decision: with the place refilled, three members of four would wait for a peer that is another.
What is kept of replacements may be lost with this process: a new leader holds no place of a member lost before, and counts the time anew.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from fairlead.controller.book.book import Book, GangState, Move, Replacement
from fairlead.controller.commit.part import Shared
from fairlead.controller.gangs.evictions import eviction_marks
from fairlead.controller.gangs.evictions.moved import Held, Spot, may_have, spots_of, to_its_place, with_place
from fairlead.controller.gangs.evictions.past_evictions import PastEviction, place_of
from fairlead.controller.gangs.held import vacancies
from fairlead.controller.gangs.held.vacancies import Vacancy
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.report.metrics import Metrics
from fairlead.controller.watch.tables import Tables
from fairlead.engine.reclaim.evictions import BrokenDevices
from fairlead.engine.types.gangs import GangRequest, RunningGang
from fairlead.engine.types.plan import Admission, Eviction, Plan, Waiting
from fairlead.engine.types.pods import PodNeeds
from fairlead.engine.types.reasons import Code

# A gang that waits for one of these may get its place a moment later.
_WAITS_ELSEWHERE = frozenset(
    {Code.OVER_QUOTA, Code.BUDGET_EXHAUSTED, Code.GATHERING, Code.CLAIM_BEING_ALLOCATED, Code.VOLUME, Code.INVALID}
)


def keeps_place(code: Code | None) -> bool:
    """Whether a gang that waits for this goes on holding the place to which it is moved. None: it was not decided on."""
    return code is None or code in _WAITS_ELSEWHERE


class Moves:
    def __init__(self, book: Book, tables: Tables, metrics: Metrics) -> None:
        self._book = book
        self._tables = tables
        self._moves = book.all(GangState.move)
        self._lifted = book.all(GangState.moves_to)
        self._used, self._expired = metrics.moves.labels("used"), metrics.moves.labels("expired")

    # -- what is held ----------------------------------------------------------------------------------------------

    def decided(self, gang: Gang, eviction: Eviction) -> None:
        """The place is taken from now on: before the first mark is written."""
        if eviction.place is None:
            return
        by_uid = spots_of(eviction.place)
        members = {member.uid: member for member in gang.released}
        spots = tuple(
            dataclasses.replace(spot, requests=PodNeeds.of(members[uid].pod).requests)
            for uid, spot in by_uid.items()
            if uid in members
        )
        state = self._book[gang.id]
        state.move_decided = True
        before = state.move
        self._hold(gang.id, spots, None, queue=eviction.queue, owner="" if before is None else before.owner)

    def marked(self, gang_id: GangId) -> None:
        """Its marks are written, or could not be."""
        self._book[gang_id].move_decided = None

    def update(self, gang_id: GangId, gang: Gang | None, past: PastEviction | None, now: float) -> None:
        """The gang, or its Gang object, changed. `past`: of its own Gang object."""
        state = self._book[gang_id]
        if state.move_decided:
            return
        known = state.move
        queue = None if known is None else known.queue
        marked = [member for member, mark in eviction_marks.marked(gang) if mark.kind == "Move"] if gang else []
        if gang is not None and marked:
            spots = place_of(marked)
            if len(marked) < len(gang.running) and known is not None:
                return  # the others' marks follow
            if known is None and not self._tables.are_free(spots, gang_id[0]):
                spots = ()  # nothing that was decided: its place was free then, and taken from then on
            owner = marked[0].owner if gang.solo else ""
            self._hold(gang_id, spots, None, queue=queue if queue is not None else gang.queue or None, owner=owner)
            return
        if past is not None and self._awaits_its_pods(gang_id, gang, past, now):
            queue = past.queue if queue is None else queue
            self._hold(gang_id, past.place, past.held_until, queue=queue, owner=past.owner)
            return
        self._release(gang_id)

    def _awaits_its_pods(self, gang_id: GangId, gang: Gang | None, past: PastEviction, now: float) -> bool:
        state = self._book[gang_id]
        if not past.place or past.held_until <= now or (state.moved_at or 0.0) >= past.at:
            return False
        if state.move is None and not self._tables.are_free(past.place, gang_id[0]):
            state.moved_at = now  # an earlier leader gave it up
            return False
        if gang is None:
            return True
        return not gang.running and not any(member.admission_begun for member in gang.gated)

    def next_end(self) -> float | None:
        """When the next place is given up, unix seconds."""
        ends = (each.held.until for each in self._moves.values())
        return min((until for until in ends if until is not None), default=None)

    def expire(self, now: float) -> list[GangId]:
        """Gives up places whose time is up; of these gangs."""
        late = [
            gang_id for gang_id, each in self._moves.items() if each.held.until is not None and each.held.until <= now
        ]
        for gang_id in late:
            self._release(gang_id)
            self._expired.inc()
        return late

    def _hold(
        self, gang_id: GangId, spots: tuple[Spot, ...], until: float | None, *, queue: str | None, owner: str
    ) -> None:
        if not spots:
            self._release(gang_id)
            return
        held = Held(gang_id, spots, until)
        before = self._moves.get(gang_id)
        self._book[gang_id].move = Move(held, queue, owner)
        if before is None or before.held != held:
            if before is not None:
                self._tables.release_place(before.held)
            self._tables.hold_place(held)

    def _release(self, gang_id: GangId) -> None:
        move = self._book.take(gang_id, GangState.move)
        if move is not None:
            self._tables.release_place(move.held)

    # -- around a decision -----------------------------------------------------------------------------------------

    def lift(self, requests: Iterable[GangRequest], owner_of: Callable[[GangId], str]) -> list[GangRequest]:
        """The requests, those of moved gangs bound to their places, which are free until `restore`.

        `owner_of`: UID of the owner of a gang of one, else "". A request for more than the place has waits as any other.
        """
        found = list(requests)
        if not self._moves:
            return found
        free = {gang_id for gang_id, each in self._moves.items() if each.held.until is not None}
        for number, request in enumerate(found):
            gang_id = (request.namespace, request.name)
            meant = gang_id if gang_id in free else self._of_owner(gang_id[0], owner_of(gang_id), free)
            if meant is None or request.placed_nodes or not may_have(request, self._moves[meant].held):
                continue
            free.discard(meant)
            held = self._book[gang_id].moves_to = self._moves[meant].held
            self._tables.release_place(self._moves[meant].held)
            found[number] = to_its_place(request, held)
        return found

    def _of_owner(self, namespace: str, owner: str, free: set[GangId]) -> GangId | None:
        if not owner:
            return None
        meant = (gang_id for gang_id in free if gang_id[0] == namespace and self._moves[gang_id].owner == owner)
        return min(meant, default=None)

    def running(self) -> dict[GangId, Held]:
        """Places that are held now, by gang."""
        lifted = {held.gang for held in self._lifted.values()}
        return {gang_id: each.held for gang_id, each in self._moves.items() if gang_id not in lifted}

    def with_place(self, running: RunningGang | None, held: Held) -> RunningGang:
        return with_place(running, held, self._moves[held.gang].queue)

    def restore(self, admissions: Iterable[Admission], waiting: Iterable[Waiting], now: float) -> None:
        """The decision is made: a gang that got its place needs it no more, and one that cannot use it gives it up."""
        if not self._lifted:
            return
        given = {(each.namespace, each.name) for each in admissions}
        reasons = {(each.namespace, each.name): each.reason.code for each in waiting}
        for gang_id, held in self._lifted.items():
            if gang_id not in given and keeps_place(reasons.get(gang_id)):
                self._tables.hold_place(held)
                continue
            moved = self._book[held.gang]
            moved.moved_at, moved.move = now, None
            (self._used if gang_id in given else self._expired).inc()
        self._book.replace(GangState.moves_to, {})


class Replacements:
    def __init__(self, book: Book, tables: Tables, *, timeout_s: float) -> None:
        self._book = book
        self._tables = tables
        self._timeout_s = timeout_s
        self._known = book.all(GangState.replacement)

    def update(self, gang_id: GangId, gang: Gang | None, now: float) -> None:
        """The gang changed: the places of members that it lost are held, those that it needs no more given up."""
        if gang is None or not gang.started or gang.solo:
            self._forget(gang_id)
            return
        known = self._book[gang_id].replacement = self._known.get(gang_id) or Replacement()
        running = {member.uid for member in gang.running}
        for uid, place in list(known.places.items()):
            if uid not in running:
                del known.places[uid]
                known.vacant[uid] = place
        for member in gang.running:
            found = vacancies.vacancy_of(member)
            if found is not None:
                known.places[member.uid] = found
        replaced = vacancies.may_be_replaced(gang)
        short = vacancies.short_of(gang) if replaced else 0
        if not replaced or not vacancies.unbound(gang):
            known.short_since, known.given_up = None, False
        elif known.short_since is None:
            known.short_since = now
        keep = 0 if known.given_up else short
        for uid in list(known.vacant)[: max(0, len(known.vacant) - keep)]:
            self._release(known, uid)
        for vacancy in known.vacant.values():
            self._tables.hold(vacancy.member.pod, vacancy.node, vacancy.claims)

    def deadline(self, gang_id: GangId) -> float | None:
        """When the gang may not be short any longer; unix seconds."""
        known = self._known.get(gang_id)
        if known is None or known.short_since is None or known.given_up:
            return None
        return known.short_since + self._timeout_s

    def overdue(self, gang: Gang, now: float) -> str:
        """Why the gang is to be evicted whole; "" if it is not. Gives up its places where no more pods are known to come."""
        deadline = self.deadline(gang.id)
        if deadline is None or now < deadline or not vacancies.short_of(gang):
            return ""
        if vacancies.more_pods_come(gang):
            return vacancies.overdue_text(gang, self._timeout_s)
        known = self._known[gang.id]
        known.given_up = True
        for uid in list(known.vacant):
            self._release(known, uid)
        return ""

    # -- around a decision -----------------------------------------------------------------------------------------

    def lift(self, requests: Iterable[GangRequest], now: float) -> list[GangRequest]:
        """The requests, those that replace members marked; what is held for them is free until `restore`.

        Without those that would replace a member whose device broke.
        """
        found: list[GangRequest] = []
        broken = BrokenDevices(self._tables.inventory, now)
        for request in requests:
            gang_id = (request.namespace, request.name)
            known = self._known.get(gang_id)
            if known is None or not known.vacant:
                found.append(request)
                continue
            if any(_hurt(vacancy, broken) for vacancy in known.vacant.values()):
                continue
            known.lifted = tuple(known.vacant.values())
            for vacancy in known.lifted:
                self._tables.unhold(vacancy.member.pod, vacancy.claims)
            found.append(replace(request, replaces=True))
        lifted = self._lifted()
        if len(lifted) < 2:
            return found
        return [self._apart(request, lifted) for request in found]

    def _lifted(self) -> dict[GangId, Replacement]:
        return {gang_id: known for gang_id, known in self._known.items() if known.lifted}

    def _apart(self, request: GangRequest, lifted: Mapping[GangId, Replacement]) -> GangRequest:
        """Two gangs with held places do not take one another's while there are others."""
        if not request.replaces:
            return request
        mine = (request.namespace, request.name)
        others = (vacancy for gang_id, each in lifted.items() if gang_id != mine for vacancy in each.lifted)
        nodes = vacancies.avoided_nodes(lifted[mine].lifted, others)
        return replace(request, avoid=tuple(sorted({*request.avoid, *nodes})))

    def short(self) -> list[GangId]:
        """Gangs for which places are held now."""
        return [gang_id for gang_id, known in self._known.items() if known.vacant and not known.lifted]

    def running(self, gang_id: GangId, running: RunningGang, now: float) -> RunningGang:
        """With the places that are held for it now."""
        known = self._known.get(gang_id)
        if known is None or not known.vacant or known.lifted:
            return running
        broken = BrokenDevices(self._tables.inventory, now)
        hurt = frozenset(uid for uid, vacancy in known.vacant.items() if _hurt(vacancy, broken))
        return vacancies.with_vacancies(running, tuple(known.vacant.values()), hurt)

    def restore(self, admissions: Iterable[Admission]) -> None:
        """The decision is made: what was not taken is held again."""
        lifted = self._lifted()
        taken: set[tuple[str, str, str]] = set()
        nodes: dict[GangId, list[str]] = {}
        for admission in admissions if lifted else ():
            nodes[admission.namespace, admission.name] = [each.node for each in admission.assignments]
            taken |= {
                (result.driver, result.pool, result.device)
                for claim in admission.claims
                for result in claim.allocation.devices.results
                if not result.admin_access
            }
        for gang_id, known in lifted.items():
            filled = nodes.get(gang_id, [])
            order = sorted(known.lifted, key=lambda vacancy: vacancy.node not in filled)
            for vacancy in order[: len(filled)]:
                del known.vacant[vacancy.uid]
            for vacancy in order[len(filled) :]:
                if vacancies.devices_of(vacancy) & taken:
                    del known.vacant[vacancy.uid]
                else:
                    self._tables.hold(vacancy.member.pod, vacancy.node, vacancy.claims)
            known.lifted = ()

    # -- giving up -------------------------------------------------------------------------------------------------

    def _release(self, known: Replacement, uid: str) -> None:
        vacancy = known.vacant.pop(uid)
        self._tables.unhold(vacancy.member.pod, vacancy.claims)

    def _forget(self, gang_id: GangId) -> None:
        known = self._book.take(gang_id, GangState.replacement)
        if known is not None:
            for uid in list(known.vacant):
                self._release(known, uid)


def _hurt(vacancy: Vacancy, broken: BrokenDevices) -> bool:
    return any(broken.fault(claim.metadata.uid) is not None for claim in vacancy.claims)


class Places:
    def __init__(self, shared: Shared) -> None:
        book, tables, timeout_s = shared.book, shared.caches.tables, shared.options.replace_timeout_s
        self.moves = Moves(book, tables, shared.telemetry.metrics)
        self.replacements = Replacements(book, tables, timeout_s=timeout_s)

    def update(self, gang_id: GangId, gang: Gang | None, past: PastEviction | None, now: float) -> None:
        """The gang, or its Gang object, changed. `past`: of its own Gang object."""
        self.replacements.update(gang_id, gang, now)
        self.moves.update(gang_id, gang, past, now)

    def lift(self, requests: Iterable[GangRequest], owner_of: Callable[[GangId], str], now: float) -> list[GangRequest]:
        """The requests of a decision; the places of those that have one are free until `restore`. `owner_of`: see `Moves.lift`."""
        return self.moves.lift(self.replacements.lift(requests, now), owner_of)

    def held(self, holding: Callable[[GangId], RunningGang | None], now: float) -> Mapping[GangId, RunningGang]:
        """What the gangs hold for which places are held now, with these places. `holding`: without."""
        found: dict[GangId, RunningGang] = {}
        for gang_id in self.replacements.short():
            running = holding(gang_id)
            if running is not None:
                found[gang_id] = self.replacements.running(gang_id, running, now)
        for gang_id, held in self.moves.running().items():
            found[gang_id] = self.moves.with_place(found.get(gang_id, holding(gang_id)), held)
        return found

    def restore(self, plan: Plan, built_at: float) -> None:
        """The decision on the snapshot of that time is made: what was not taken is held again."""
        self.replacements.restore(plan.admissions)
        self.moves.restore(plan.admissions, plan.waiting, built_at)
