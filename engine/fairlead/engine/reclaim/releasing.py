"""The cluster as it will be when all that leaves is gone and all that was promised has landed.

Exists so that a gang is only promised what it will really find: nodes and devices, not counts. Everything here is tried on
a ledger and a tree of queues of their own count, with exact undo; nothing is evicted here.
Keeps: `tree.used` is what the queues hold once leaving pods are gone and promises are kept; `gone` is what they hold beyond
that now. What is promised is held: no later gang of the same decision starts on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.allocator.model import SearchStatus, StepBudget
from fairlead.engine.placement.model import UnitPlacement
from fairlead.engine.queues.charges import Charge, add
from fairlead.engine.reclaim.tentative import TentativeAdmission

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fairlead.engine.inventory.allocated import AllocatedClaim
    from fairlead.engine.inventory.device import Device
    from fairlead.engine.inventory.ledger import Ledger
    from fairlead.engine.placement.candidate_nodes import CandidateNode
    from fairlead.engine.placement.model import PlacementResult
    from fairlead.engine.placement.shapes import PlacementUnit
    from fairlead.engine.queues.cache import SchedulerCache
    from fairlead.engine.queues.tree import Queue
    from fairlead.engine.reclaim.candidates import EvictionUnit
    from fairlead.engine.snapshot import Snapshot
    from fairlead.engine.types.gangs import GangRequest, RunningGang, RunningMember


class PipelinedCluster:
    """One per decision, made when the first gang finds no place."""

    def __init__(self, board: SchedulerCache, snapshot: Snapshot, gone: dict[Queue, Charge]) -> None:
        self.board = board
        self.snapshot = snapshot
        self.gone = gone
        self.placer, self.domains = board.later
        self.placer.begin()
        self.placer.mark = board.node_snapshot.log.cursor
        self.ledger: Ledger = self.placer.ledger
        self.lifted: dict[str, int] = {}  # claim UID, pod UID: times
        self.version = 0  # grows when something comes free
        self.leaving = False  # some pods go anyway
        self._failed: dict[object, tuple[int, PlacementResult]] = {}

    # -------------------------------------------------------------------------------------------- what comes free

    def leaves(self, running: Iterable[tuple[RunningGang, Queue]], leaving: set[str]) -> None:
        """Pods that go anyway, and the claims that nobody else uses then; off what their queues hold."""
        for gang, queue in running:
            going = [member for member in gang.members if member.leaving or member.pod.uid in leaving]
            if not going:
                continue
            self.leaving = True
            staying = {
                uid
                for member in gang.members
                if not (member.leaving or member.pod.uid in leaving)
                for uid in member.claims
            }
            uids = dict.fromkeys(uid for member in going for uid in member.claims if uid not in staying)
            claims = [claim for uid in uids if (claim := self.snapshot.inventory.claim(uid)) is not None]
            charge: Charge = {}
            for claim in claims:
                add(charge, self.board.charges.of_held(claim, self.snapshot.inventory))
            for step in queue.path():
                add(self.gone.setdefault(step, {}), charge)
            queue.charge(charge, sum(not item.admin for claim in claims for item in claim.devices), -1)
            self._give_back(going, claims, 1)
        self.version += 1

    def take_out(self, piece: EvictionUnit, *, only: str | None = None) -> None:
        """As if the piece were evicted; `only` this node's part of its devices, for a moment: nobody is told."""
        self.count_out(piece)
        self._move(piece, 1, only)

    def put_back(self, piece: EvictionUnit, *, only: str | None = None) -> None:
        """Undo `take_out`."""
        self.count_out(piece, -1)
        self._move(piece, -1, only)

    def count_out(self, piece: EvictionUnit, sign: int = 1) -> None:
        """Take the piece off what its queues hold, or (sign -1) count it again; the ledger is left alone."""
        for queue in piece.queue.path() if piece.runs else ():
            add(self.gone.setdefault(queue, {}), piece.charge, sign)
        piece.queue.charge(piece.charge, piece.devices, -sign)

    def _move(self, piece: EvictionUnit, sign: int, only: str | None) -> None:
        if isinstance(piece, TentativeAdmission):
            part = [entry for entry in piece.kept if only is None or entry.node.name == only]
            if sign > 0:
                drop(part, self.ledger)
            else:
                keep(part, self.ledger)
            for entry in part if only is None else ():
                self.board.node_snapshot.changed(entry.node)
        else:
            self._give_back(*_part(piece, only), sign, quiet=only is not None)

    def _give_back(
        self, members: Iterable[RunningMember], claims: Iterable[AllocatedClaim], sign: int, *, quiet: bool = False
    ) -> None:
        node_snapshot, nodes = self.board.node_snapshot, self.snapshot.nodes
        touched: dict[CandidateNode, None] = {}
        for claim in claims:
            if self._turns(claim.uid, sign):
                (self.ledger.set_releasing if sign > 0 else self.ledger.unset_releasing)(claim, self.snapshot.inventory)
                for held in () if quiet else claim.devices:
                    device = self.snapshot.inventory.device(held.ref)
                    if device is not None and device.node in node_snapshot.by_name:
                        touched[node_snapshot.by_name[device.node]] = None
        for member in members:
            at = nodes.pod(member.pod.uid)
            if at is None or not self._turns(member.pod.uid, sign):
                continue
            node = nodes.get(at[0])
            if node is not None:
                self.ledger.set_pod_releasing(node, member.pod.uid, at[1], sign)
            if at[0] in node_snapshot.by_name:
                touched[node_snapshot.by_name[at[0]]] = None
        if not quiet:
            for candidate in touched:
                node_snapshot.changed(candidate)

    def _turns(self, uid: str, sign: int) -> bool:
        """Whether this is the first to lift it, or the last to lower it."""
        before = self.lifted.get(uid, 0)
        self.lifted[uid] = before + sign
        return before == (0 if sign > 0 else 1)

    # ---------------------------------------------------------------------------------------------- what is placed

    def place(
        self, gang: GangRequest, units: Sequence[PlacementUnit], signature: object, *, spread: bool
    ) -> PlacementResult:
        """As the decision's placement does, on what will be. What failed fails until more comes free."""
        known = self._failed.get(signature)
        if known is not None and known[0] == self.version:
            return known[1]
        outcome = self.domains.place(gang, units, StepBudget(self.snapshot.search_steps), spread=spread)
        if outcome.status is not SearchStatus.FOUND:
            self._failed[signature] = (self.version, outcome)
        return outcome

    def try_place(self, gang: GangRequest, units: Sequence[PlacementUnit], *, spread: bool) -> PlacementResult:
        """The same, nothing remembered: victims are being tried out."""
        return self.domains.place(gang, units, StepBudget(self.snapshot.search_steps), spread=spread)

    def mirror(self, placed: Iterable[UnitPlacement]) -> list[UnitPlacement]:
        """What was admitted now is taken later too; returns what of it nobody held before."""
        for entry in placed:
            self.board.node_snapshot.changed(entry.node)
        return keep(placed, self.ledger)


def keep(placed: Iterable[UnitPlacement], ledger: Ledger) -> list[UnitPlacement]:
    """Hold what is promised, see `Ledger.hold`; returns what of it nobody held before."""
    kept: list[UnitPlacement] = []
    for entry in placed:
        for needs in entry.unit.shape.needs:
            ledger.add_pod(entry.node.info, needs)
        picks = [
            [pick for pick in given if not pick.request.admin and ledger.reserve(pick.device, pick.consumption)]
            for given in entry.picks
        ]
        kept.append(UnitPlacement(entry.unit, entry.node, picks))
    return kept


def devices_of(placed: Iterable[UnitPlacement]) -> set[Device]:
    """Those it holds, or draws shares of."""
    return {pick.device for entry in placed for picks in entry.picks for pick in picks if not pick.request.admin}


def drop(kept: Iterable[UnitPlacement], ledger: Ledger) -> None:
    """Undo `keep`."""
    for entry in kept:
        for needs in entry.unit.shape.needs:
            ledger.remove_pod(entry.node.info, needs)
        for picks in entry.picks:
            for pick in picks:
                ledger.unreserve(pick.device, pick.consumption)


def _part(piece: EvictionUnit, only: str | None) -> tuple[Iterable[RunningMember], Iterable[AllocatedClaim]]:
    if only is None:
        return piece.members, [claim for claims in piece.claims.values() for claim in claims]
    return [member for member in piece.members if member.node == only], piece.claims.get(only, ())
