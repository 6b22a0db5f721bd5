"""Moves of a decision: for a blocked gang that fits nowhere though enough is free, and away from nodes that go soon.

Chooses by `reclaim.moves`. A move for a gang is tried before anything is evicted for good: a moved gang keeps a place in the
cluster. It serves a reservation where the gang has waited as long as one for a reservation must; then priorities do not count.
A move away from a node that goes serves no other gang: neither priority nor min-runtime forbids it, for the node takes the gang
with it otherwise. Budgets count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from fairlead.engine.inventory.nodes import NodeNotice
from fairlead.engine.placement.model import UnitPlacement
from fairlead.engine.plan.answers import admission
from fairlead.engine.plan.held import Reservations
from fairlead.engine.plan.preemption import Preemption
from fairlead.engine.plan.session import Session
from fairlead.engine.queues.gangs import PendingGang
from fairlead.engine.reclaim.candidates import EvictionUnit
from fairlead.engine.reclaim.eviction_policy import Preemptor
from fairlead.engine.reclaim.moves import MovePolicy, MoveSearch, may_move, new_place
from fairlead.engine.reclaim.policy import over_contested_share
from fairlead.engine.reclaim.protection import gpu_seconds, restart_s, saved_at, settled_at
from fairlead.engine.types.plan import Eviction
from fairlead.engine.types.reasons import Code, Reason
from fairlead.engine.types.values import DeviceRef

NODES_NAMED = 3


class Moves:
    def __init__(self, session: Session, preemption: Preemption, reservations: Reservations) -> None:
        self._session = session
        self._preemption = preemption
        self._reservations = reservations

    @cached_property
    def _search(self) -> MoveSearch:
        return MoveSearch(MovePolicy(self._preemption.policy), self._session.statement)

    # -- for another gang ------------------------------------------------------------------------------------------

    def make_room(
        self, pending: PendingGang, preemptor: Preemptor
    ) -> tuple[list[Eviction], list[UnitPlacement]] | None:
        """The moves, decided, and the gang's place in the pipelined ledger. None: nothing moves for it."""
        session = self._session
        if not session.running.any_movable or not preemptor.gang.preempts:
            return None
        releasing = session.releasing
        if preemptor.gang.preemptor and releasing is not None and releasing.leaving:
            return None
        if over_contested_share(pending.queue, pending.charge) is not None:
            return None
        plan = self._search.choose(preemptor, serves_reservation=self._reserved(pending))
        if plan is None:
            self._note_settling()
            return None
        made = [self._eviction(unit, place, preemptor) for unit, place in plan.moved]
        self._preemption.note(made)
        return made, plan.placed

    def _note_settling(self) -> None:
        """That the next gang which has just started may move later."""
        if self._settling is not None:
            self._session.note_due(self._settling)

    @cached_property
    def _settling(self) -> float | None:
        session = self._session
        times = (settled_at(unit.gang) for unit in session.candidates.units if may_move(unit))
        return min((at for at in times if at > session.now), default=None)

    def _reserved(self, pending: PendingGang) -> bool:
        """Whether the gang has a reservation, or is about to get one."""
        known = self._reservations
        return known.of(pending) is not None or (known.waited(pending) and known.may_reserve(pending))

    def _eviction(self, unit: EvictionUnit, place: Sequence[UnitPlacement], preemptor: Preemptor) -> Eviction:
        higher = preemptor.gang.priority > unit.gang.priority
        why = "has a higher priority" if higher else "has waited for long, or could evict it"
        message = (
            f"gang {preemptor.id} fits nowhere though enough devices are free, and {why}; {self._told(unit, place)}"
        )
        grace_s = self._session.candidates.protection.checkpoint_grace_s(unit.gang, unit.queue)
        return self._moved(unit, place, message, grace_s, beneficiary=preemptor.id)

    # -- away from nodes that go -------------------------------------------------------------------------------------

    def leave_nodes(self) -> None:
        """Gangs that may move and run on nodes that go soon get places elsewhere, as far as there are any now."""
        session = self._session
        noticed = session.snapshot.nodes.noticed
        if not noticed or not session.running.any_movable:
            return
        policy = self._preemption.policy
        for unit in [unit for unit in session.candidates.units if may_move(unit)]:
            notice = self._first(unit, noticed)
            if notice is None or unit.id in policy.stopped or policy.spent(unit) is not None:
                continue
            session.statement.accounts.charge(unit.gang.namespace)
            place = new_place(unit, session.statement, session.snapshot, session.cache)
            if place is None:
                continue
            session.pipelined.statement.hold(place)
            session.pipelined.statement.do(policy.tallying, unit)
            self._preemption.note([self._away(unit, place, *notice)])
            session.commit()

    def _first(self, unit: EvictionUnit, noticed: dict[str, NodeNotice]) -> tuple[str, NodeNotice] | None:
        """The node that goes first of those it runs on."""
        found = [(node, noticed[node]) for node in unit.nodes if node in noticed]
        return min(found, key=lambda each: (each[1].by is None, each[1].by or 0.0, each[0]), default=None)

    def _away(self, unit: EvictionUnit, place: Sequence[UnitPlacement], node: str, notice: NodeNotice) -> Eviction:
        grace_s = self._session.candidates.protection.checkpoint_grace_s(unit.gang, unit.queue)
        if notice.by is not None:
            grace_s = max(0.0, min(grace_s, notice.by - self._session.now))
        return self._moved(
            unit, place, f"node {node} goes: {notice}; {self._told(unit, place)}", grace_s, beneficiary=""
        )

    # -- texts -------------------------------------------------------------------------------------------------------

    def _told(self, unit: EvictionUnit, place: Sequence[UnitPlacement]) -> str:
        """Where it goes, and what that costs."""
        gang, now = unit.gang, self._session.now
        nodes = sorted({entry.node.name for entry in place})
        where = ", ".join(nodes[:NODES_NAMED]) + (
            f" and {len(nodes) - NODES_NAMED} more" if len(nodes) > NODES_NAMED else ""
        )
        lost = max(0.0, now - saved_at(gang, gang.started))
        since = "its start" if saved_at(gang, gang.started) == gang.started else "its last checkpoint"
        known = "as its earlier runs took" if gang.restart_s is not None else "no earlier run is known"
        return (
            f"its place on {where} is held; it costs {gpu_seconds(gang, unit.devices, now):.0f} GPU-seconds: {unit.devices} devices, "
            f"{lost:.0f} s since {since}, {restart_s(gang):.0f} s to start again ({known})"
        )

    def _moved(
        self, unit: EvictionUnit, place: Sequence[UnitPlacement], message: str, grace_s: float, *, beneficiary: str
    ) -> Eviction:
        gang, session = unit.gang, self._session
        assert gang.relocation is not None
        advice = 'made again, its pods start there; fairlead.dev/movable: "false" would keep it where it is'
        reason = Reason(code=Code.MOVED, message=message, advice=advice)
        return replace(
            Eviction.of(gang, unit.members, "Move", reason, queue=unit.queue.name, checkpoint_grace_s=grace_s),
            beneficiary=beneficiary,
            place=admission(gang.relocation, unit.queue.name, place, session.snapshot.classes, _no_shares),
            gpu_seconds=gpu_seconds(gang, unit.devices, session.now),
        )


def _no_shares(claim: str, request: str, device: DeviceRef) -> str:
    raise AssertionError(f"shares of devices do not move: {claim} {request} {device}")


def moving(made: Sequence[Eviction]) -> Reason:
    """Why the gang for which they move still waits."""
    names = ", ".join(each.id for each in made[:NODES_NAMED])
    more = f" and {len(made) - NODES_NAMED} more" if len(made) > NODES_NAMED else ""
    cost = sum(each.gpu_seconds for each in made)
    return Reason(
        code=Code.MAKING_ROOM,
        message=f"{names}{more} {'move' if len(made) > 1 else 'moves'} elsewhere for it, where devices are held, "
        f"at a cost of {cost:.0f} GPU-seconds",
        advice="it starts when they are gone; the devices that they release are held for it",
        could_ever_fit=True,
    )
