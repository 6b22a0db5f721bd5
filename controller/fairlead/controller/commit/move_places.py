"""Gangs that are being moved: their places held in the engine's tables, from the decision until their new pods are admitted.

What is held follows from the cluster: marks on the old pods, then the record of the eviction in the Gang's status, as far as nothing
else has the devices. Only a decision whose marks are not written yet is known here alone. A place is given up when the eviction is cancelled, when the new pods get
it, when they turn out not to fit there, and at the latest when its time is up (`Held.until`).
A gang of one has another name when its pod is made again: then its owner, of the same namespace, tells which place is meant.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from fairlead.controller.gangs.evictions import eviction_marks
from fairlead.controller.gangs.evictions.moved import Held, Spot, may_have, spots_of, to_its_place, with_place
from fairlead.controller.gangs.evictions.past_evictions import PastEviction, place_of
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.watch.tables import Tables
from fairlead.engine.types.gangs import GangRequest, RunningGang
from fairlead.engine.types.plan import Admission, Eviction, Waiting
from fairlead.engine.types.pod_needs import PodNeeds
from fairlead.engine.types.reasons import Code

# A gang that waits for one of these may get its place a moment later.
_WAITS_ELSEWHERE = frozenset(
    {Code.OVER_QUOTA, Code.BUDGET_EXHAUSTED, Code.GATHERING, Code.CLAIM_BEING_ALLOCATED, Code.VOLUME, Code.INVALID}
)

Owner = tuple[str, str]  # namespace, UID


def keeps_place(code: Code | None) -> bool:
    """Whether a gang that waits for this goes on holding the place to which it is moved. None: it was not decided on."""
    return code is None or code in _WAITS_ELSEWHERE


class Moves:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._held: dict[GangId, Held] = {}
        self._queues: dict[GangId, str] = {}
        self._owners: dict[GangId, Owner] = {}  # of gangs of one
        self._deciding: set[GangId] = set()  # their marks are being written
        self._over: dict[GangId, float] = {}  # by gang: the eviction whose place was taken or given up, unix seconds
        self._lifted: dict[str, Held] = {}  # by id of the request, while a decision is made
        self.landed: Callable[[GangId], None] = lambda _: None
        self.expired: Callable[[GangId], None] = lambda _: None

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
        self._deciding.add(gang.id)
        self._queues[gang.id] = eviction.queue
        self._hold(gang.id, spots, None)

    def marked(self, gang_id: GangId) -> None:
        """Its marks are written, or could not be."""
        self._deciding.discard(gang_id)

    def update(self, gang_id: GangId, gang: Gang | None, past: PastEviction | None, now: float) -> None:
        """The gang, or its Gang object, changed. `past`: of its own Gang object."""
        if gang_id in self._deciding:
            return
        marked = [member for member, mark in eviction_marks.marked(gang) if mark.kind == "Move"] if gang else []
        if gang is not None and marked:
            spots = place_of(marked)
            known = self._held.get(gang_id)
            if len(marked) < len(gang.running) and known is not None:
                return  # the others' marks follow
            if known is None and not self._tables.are_free(spots, gang_id[0]):
                spots = ()  # nothing that was decided: its place was free then, and taken from then on
            self._owners[gang_id] = (gang_id[0], marked[0].owner if gang.solo else "")
            if gang.queue:
                self._queues.setdefault(gang_id, gang.queue)
            self._hold(gang_id, spots, None)
            return
        if past is not None and self._awaits_its_pods(gang_id, gang, past, now):
            self._owners[gang_id] = (gang_id[0], past.owner)
            self._queues.setdefault(gang_id, past.queue)
            self._hold(gang_id, past.place, past.held_until)
            return
        self._release(gang_id)

    def _awaits_its_pods(self, gang_id: GangId, gang: Gang | None, past: PastEviction, now: float) -> bool:
        if not past.place or past.held_until <= now or self._over.get(gang_id, 0.0) >= past.at:
            return False
        if gang_id not in self._held and not self._tables.are_free(past.place, gang_id[0]):
            self._over[gang_id] = now  # an earlier leader gave it up
            return False
        if gang is None:
            return True
        return not gang.running and not any(member.admission_begun for member in gang.gated)

    def holds(self, gang_id: GangId) -> bool:
        """Whether a place is held for the gang."""
        return gang_id in self._held

    def next_end(self) -> float | None:
        """When the next place is given up, unix seconds."""
        return min((held.until for held in self._held.values() if held.until is not None), default=None)

    def expire(self, now: float) -> list[GangId]:
        """Gives up places whose time is up; of these gangs."""
        late = [gang_id for gang_id, held in self._held.items() if held.until is not None and held.until <= now]
        for gang_id in late:
            self._release(gang_id)
            self.expired(gang_id)
        return late

    def _hold(self, gang_id: GangId, spots: tuple[Spot, ...], until: float | None) -> None:
        if not spots:
            self._release(gang_id)
            return
        held = Held(gang_id, spots, until)
        before = self._held.get(gang_id)
        if before != held:
            self._held[gang_id] = held
            if before is not None:
                self._tables.release_place(gang_id)
            self._tables.hold_place(held)

    def _release(self, gang_id: GangId) -> None:
        self._queues.pop(gang_id, None)
        self._owners.pop(gang_id, None)
        if self._held.pop(gang_id, None) is not None:
            self._tables.release_place(gang_id)

    # -- around a decision -----------------------------------------------------------------------------------------

    def lift(self, requests: Iterable[GangRequest], owner_of: Callable[[GangId], str]) -> list[GangRequest]:
        """The requests, those of moved gangs bound to their places, which are free until `restore`.

        `owner_of`: UID of the owner of a gang of one, else "". A request for more than the place has waits as any other.
        """
        found = list(requests)
        if not self._held:
            return found
        free = {gang_id for gang_id, held in self._held.items() if held.until is not None}
        for number, request in enumerate(found):
            gang_id = (request.namespace, request.name)
            meant = gang_id if gang_id in free else self._of_owner((gang_id[0], owner_of(gang_id)), free)
            if meant is None or request.placed_nodes or not may_have(request, self._held[meant]):
                continue
            free.discard(meant)
            held = self._lifted[request.id] = self._held[meant]
            self._tables.release_place(meant)
            found[number] = to_its_place(request, held)
        return found

    def _of_owner(self, owner: Owner, free: set[GangId]) -> GangId | None:
        if not owner[1]:
            return None
        return min((gang_id for gang_id in free if self._owners.get(gang_id) == owner), default=None)

    def running(self) -> dict[GangId, Held]:
        """Places that are held now, by gang."""
        lifted = {held.gang for held in self._lifted.values()}
        return {gang_id: held for gang_id, held in self._held.items() if gang_id not in lifted}

    def with_place(self, running: RunningGang | None, held: Held) -> RunningGang:
        return with_place(running, held, self._queues.get(held.gang))

    def restore(self, admissions: Iterable[Admission], waiting: Iterable[Waiting], now: float) -> None:
        """The decision is made: a gang that got its place needs it no more, and one that cannot use it gives it up."""
        if not self._lifted:
            return
        given = {each.id for each in admissions}
        reasons = {each.id: each.reason.code for each in waiting}
        for request, held in self._lifted.items():
            if request not in given and keeps_place(reasons.get(request)):
                self._tables.hold_place(held)
                continue
            self._over[held.gang] = now
            self._held.pop(held.gang, None)
            self._queues.pop(held.gang, None)
            self._owners.pop(held.gang, None)
            (self.landed if request in given else self.expired)(held.gang)
        self._lifted.clear()
