"""Gangs that are being moved: their places held in the engine's tables, from the decision until their new pods are admitted.

What is held follows from the cluster: marks on the old pods, then the record of the eviction in the Gang's status, as far as nothing
else has the devices. Only a decision whose marks are not written yet is known here alone. A place is given up when the eviction is cancelled, when the new pods get
it, when they turn out not to fit there, and at the latest when its time is up (`Held.until`).
A gang of one has another name when its pod is made again: then its owner, of the same namespace, tells which place is meant.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from fairlead.controller.book.book import Book
from fairlead.controller.book.gang_state import GangState, Move
from fairlead.controller.gangs.evictions import eviction_marks
from fairlead.controller.gangs.evictions.moved import Held, Spot, may_have, spots_of, to_its_place, with_place
from fairlead.controller.gangs.evictions.past_evictions import PastEviction, place_of
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.report.metrics import Metrics
from fairlead.controller.watch.tables import Tables
from fairlead.engine.types.gangs import GangRequest, RunningGang
from fairlead.engine.types.plan import Admission, Eviction, Waiting
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
