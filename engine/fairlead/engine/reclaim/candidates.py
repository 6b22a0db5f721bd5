"""Who runs, as pieces that can be evicted: whole gangs, or single members of an elastic gang's surplus.

Exists so that reclaim, preemption and reservations look at running gangs in one way: by node, in a total order. Knows what
a piece holds and whether it is protected for itself (min-runtime, unknown pods); whose turn it is to give is `reclaim`'s.
Order: surplus before whole gangs, lower priority first, youngest first (started last, then made last), then UID.
"""

from __future__ import annotations

from bisect import insort
from math import inf
from typing import TYPE_CHECKING

from fairlead.engine.queues.charges import Charge, add

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fairlead.engine.inventory.allocated import AllocatedClaim
    from fairlead.engine.inventory.inventory import Inventory
    from fairlead.engine.queues.charges import Charges
    from fairlead.engine.queues.tree import Queue
    from fairlead.engine.types.gangs import RunningGang, RunningMember

Rank = tuple[bool, int, float, float, str, str]


class EvictionUnit:
    """What one eviction gives back. `members` are those that would go; leaving ones are gone already."""

    runs = True  # else it was given something by this decision, see `victims_fresh`
    starts = True  # else it has only been promised what comes free
    turn = 0  # of what does not start: its gang's place in this decision's order

    __slots__ = ("charge", "claims", "devices", "gang", "id", "members", "queue", "rank", "started", "whole")

    def __init__(
        self,
        gang: RunningGang,
        queue: Queue,
        members: Sequence[RunningMember],
        claims: Mapping[str, list[AllocatedClaim]],
        charge: Charge,
        devices: int,
        *,
        whole: bool,
    ) -> None:
        self.gang = gang
        self.id = gang.id
        self.queue = queue
        self.members = members
        self.claims = claims  # by node
        self.charge = charge  # replaced, never changed: it may be that of a claim
        self.devices = devices
        self.whole = whole
        self.started = gang.started if whole else members[0].started or gang.started
        last = "" if whole else members[0].pod.uid
        self.rank: Rank = (whole, gang.priority, -self.started, -gang.created, gang.uid, last)

    def __repr__(self) -> str:
        return f"EvictionUnit({self.gang.id}{'' if self.whole else ' ' + self.members[0].pod.name})"

    def here(self, node: str) -> int:
        """Its devices on this node, those by admin access included."""
        return sum(len(claim.devices) for claim in self.claims.get(node, ()))

    @property
    def nodes(self) -> Iterable[str]:
        if len(self.members) == 1 and self.claims.keys() == {(node := self.members[0].node)}:
            return (node,)
        return dict.fromkeys([member.node for member in self.members] + list(self.claims))


class VictimCandidates:
    """All that runs, per node, worked out once per decision. `now` decides what min-runtime still protects."""

    def __init__(self, inventory: Inventory, charges: Charges, now: float) -> None:
        self._inventory = inventory
        self._charges = charges
        self.now = now
        self.pieces: list[EvictionUnit] = []
        self.by_queue: dict[Queue, list[EvictionUnit]] = {}
        self.protected: dict[EvictionUnit, float] = {}  # until when
        self.unprotected: dict[Queue, list[EvictionUnit]] = {}  # the others
        self._by_node: dict[str, list[EvictionUnit]] | None = None
        self._shortest_s: dict[Queue, float] = {}
        self._whole: dict[str, EvictionUnit] = {}
        self.staying: dict[str, int] = {}  # gang id: members that are not leaving

    def enter(self, gang: RunningGang, queue: Queue, leaving: set[str]) -> None:
        """A gang and its queue; `leaving` are the UIDs of pods that go anyway."""
        members: Sequence[RunningMember] = gang.members
        if not members:
            self._unknown(gang, queue)
            return
        for member in members:
            if member.leaving or (leaving and member.pod.uid in leaving):
                members = [other for other in members if not (other.leaving or other.pod.uid in leaving)]
                break
        if not members:
            return
        whole = self._single(gang, queue, members[0]) if len(gang.members) == 1 else None
        if whole is None:
            whole = self._piece(gang, queue, members, _nodes_of(members), whole=True)
        shortest_s = gang.min_runtime_s
        if shortest_s is None:
            shortest_s = self._shortest_s.get(queue)
            if shortest_s is None:
                shortest_s = self._shortest_s[queue] = minimum_runtime_s(gang, queue)
        self.staying[whole.id] = len(members)
        self._whole[whole.id] = whole
        self._add(whole, whole.started + shortest_s)
        if len(members) > gang.size:
            self._surplus(gang, queue, members, shortest_s)

    def _single(self, gang: RunningGang, queue: Queue, member: RunningMember) -> EvictionUnit | None:
        """A gang of one pod with one claim: most are, and a large cluster runs many. None: it is none of these."""
        claim = self._inventory.claim(member.claims[0]) if len(member.claims) == 1 else None
        if claim is None:
            return None
        charge = self._charges.of_held(claim, self._inventory)
        return EvictionUnit(gang, queue, gang.members, {member.node: [claim]}, charge, claim.counted, whole=True)

    def _surplus(self, gang: RunningGang, queue: Queue, members: Sequence[RunningMember], shortest_s: float) -> None:
        """Each member of a gang that runs more than it needs, by what it alone holds."""
        users: dict[str, int] = {}
        for member in gang.members:
            for uid in member.claims:
                users[uid] = users.get(uid, 0) + 1
        for member in members:
            own = {uid: member.node for uid in member.claims if users[uid] == 1}
            piece = self._piece(gang, queue, [member], own, whole=False)
            if piece.claims:
                self._add(piece, piece.started + shortest_s)

    def _unknown(self, gang: RunningGang, queue: Queue) -> None:
        """A gang whose pods the rim does not know: never a victim, but it may be waited for."""
        held: dict[str, str] = {}
        for uid in gang.claims:
            claim = self._inventory.claim(uid)
            for item in claim.devices if claim is not None else ():
                device = self._inventory.device(item.ref)
                if device is not None and device.node is not None:
                    held.setdefault(uid, device.node)
        piece = self._piece(gang, queue, (), held, whole=True)
        self.staying[piece.id] = 0
        self._add(piece, inf)

    def _add(self, piece: EvictionUnit, until: float) -> None:
        """With the time until which it is protected."""
        if until > self.now:
            self.protected[piece] = until
        self.pieces.append(piece)
        known = self.by_queue.get(piece.queue)
        if known is None:
            self.by_queue[piece.queue] = [piece]
        else:
            known.append(piece)

    @property
    def by_node(self) -> Mapping[str, list[EvictionUnit]]:
        """In order, once sorted. Made when somebody looks for a place: a refusal needs no nodes."""
        if self._by_node is None:
            self._by_node = {}
            for piece in self.pieces:
                for node in piece.nodes:
                    self._by_node.setdefault(node, []).append(piece)
        return self._by_node

    def _piece(
        self,
        gang: RunningGang,
        queue: Queue,
        members: Sequence[RunningMember],
        held: Mapping[str, str],
        *,
        whole: bool,
    ) -> EvictionUnit:
        claims: dict[str, list[AllocatedClaim]] = {}
        charge: Charge = {}
        devices = 0
        for uid, node in held.items():
            claim = self._inventory.claim(uid)
            if claim is not None:
                claims.setdefault(node, []).append(claim)
                devices += claim.counted
                more = self._charges.of_held(claim, self._inventory)
                if len(held) == 1:
                    charge = more
                else:
                    add(charge, more)
        return EvictionUnit(gang, queue, members, claims, charge, devices, whole=whole)

    def went(self, piece: EvictionUnit) -> None:
        """A member of a surplus is evicted for good: what is left of its gang is a smaller whole."""
        if piece.whole:
            return
        assert self.by_node  # by where all of them are still
        whole = self._whole[piece.id]
        self.staying[piece.id] -= 1
        whole.members = [member for member in whole.members if member not in piece.members]
        whole.claims = {
            node: [claim for claim in claims if claim not in piece.claims.get(node, ())]
            for node, claims in whole.claims.items()
        }
        whole.charge = dict(whole.charge)
        add(whole.charge, piece.charge, -1)
        whole.devices -= piece.devices

    def join(self, pieces: Iterable[EvictionUnit]) -> None:
        """More of them, that start now, when the others are sorted already."""
        for piece in pieces:
            insort(self.pieces, piece, key=_rank)
            insort(self.by_queue.setdefault(piece.queue, []), piece, key=_rank)
            until = self.now + minimum_runtime_s(piece.gang, piece.queue)
            if piece.starts and until > self.now:
                self.protected[piece] = until
            else:
                insort(self.unprotected.setdefault(piece.queue, []), piece, key=_rank)
            if self._by_node is not None:
                for node in piece.nodes:
                    insort(self._by_node.setdefault(node, []), piece, key=_rank)

    def leave(self, piece: EvictionUnit) -> None:
        """One that joined, and is no more."""
        self.pieces.remove(piece)
        self.by_queue[piece.queue].remove(piece)
        if self.protected.pop(piece, None) is None:
            self.unprotected[piece.queue].remove(piece)
        if self._by_node is not None:
            for node in piece.nodes:
                self._by_node[node].remove(piece)

    def sort(self) -> None:
        """Once, when all have entered."""
        self.pieces.sort(key=_rank)
        for pieces in self.by_queue.values():
            pieces.sort(key=_rank)
        self.unprotected = {
            queue: [piece for piece in pieces if piece not in self.protected] for queue, pieces in self.by_queue.items()
        }


def _rank(piece: EvictionUnit) -> Rank:
    return piece.rank


def _nodes_of(members: Iterable[RunningMember]) -> dict[str, str]:
    """Claim UID: the node of its first user."""
    nodes: dict[str, str] = {}
    for member in members:
        for uid in member.claims:
            nodes.setdefault(uid, member.node)
    return nodes


def minimum_runtime_s(gang: RunningGang, queue: Queue) -> float:
    """The gang's own, else its queue's, else that of the queues above, at last none."""
    if gang.min_runtime_s is not None:
        return gang.min_runtime_s
    return next((step.spec.min_runtime_s for step in queue.path() if step.spec.min_runtime_s is not None), 0.0)
