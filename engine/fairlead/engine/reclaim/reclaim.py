"""May this piece be evicted for that gang? Reclaim between queues, preemption within one, and what protects who runs.

Exists so that choosing, minimising, judging the set again and explaining ask one place. Between queues `legality` is the law;
within a queue strictly lower priority gives way, if the queue says so. On top: min-runtime, PodDisruptionBudgets (whole
pods of them, as the eviction API counts), each queue's budget of disruptions (a whole gang counts one).
Keeps count of what a tentative set uses up: `take` and `give` around each piece. Chooses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fairlead.engine.queues.tree import amount_text
from fairlead.engine.reclaim.policy import Rule, may_reclaim, parting
from fairlead.engine.types.reasons import PreemptionBlock, PreemptionBlocker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fairlead.engine.placement.shapes import PlacementUnit
    from fairlead.engine.queues.tree import Queue
    from fairlead.engine.reclaim.candidates import EvictionUnit, VictimCandidates
    from fairlead.engine.types.amounts import Amount
    from fairlead.engine.types.gangs import GangRequest
    from fairlead.engine.types.settings import DisruptionBudget

_BARS = {
    Rule.OVER_SHARE: PreemptionBlock.SHARE,
    Rule.NO_FAIRER: PreemptionBlock.SHARE,
    Rule.WITHIN_SHARE: PreemptionBlock.WITHIN_SHARE,
    Rule.WITHIN_DESERVED: PreemptionBlock.DESERVED,
    Rule.BELOW_DESERVED: PreemptionBlock.DESERVED,
    Rule.NOTHING_ASKED: PreemptionBlock.OTHER_FLAVOR,
}
_ORDER = {bar: place for place, bar in enumerate(PreemptionBlock)}
_ABOUT_SHARES = frozenset({PreemptionBlock.SHARE, PreemptionBlock.WITHIN_SHARE, PreemptionBlock.DESERVED})
_OF_THE_QUEUE = frozenset(
    {PreemptionBlock.SHARE, PreemptionBlock.WITHIN_SHARE, PreemptionBlock.OTHER_FLAVOR, PreemptionBlock.POLICY}
)
QUEUES_MAX = 32  # whose gangs are counted when it is told why nothing is evicted


@dataclass(frozen=True, slots=True, eq=False)
class Preemptor:
    """A gang that wants a place, and what it may cost its queue."""

    gang: GangRequest
    queue: Queue
    units: Sequence[PlacementUnit]
    charge: Mapping[str, Amount]
    spread: bool
    signature: object
    id: str  # the gang's
    turn: int = 0  # the gang's place in this decision's order, where that counts

    @property
    def kind(self) -> object:
        """Equal for gangs that may evict the same."""
        return (self.queue.name, self.gang.priority, tuple(sorted(self.charge.items())), self.turn)

    def with_charge(self, charge: Mapping[str, Amount]) -> Preemptor:
        """The same with what it really costs."""
        return replace(self, charge=charge)


class Rules:
    def __init__(self, crowd: VictimCandidates, budgets: Sequence[DisruptionBudget]) -> None:
        self.crowd = crowd
        self._allowed = {(budget.namespace, budget.name): budget.allowed for budget in budgets}
        self._disruptions: dict[Queue, int] = {}  # by this decision
        self._whole: set[str] = set()  # gangs that stop
        self._surplus: dict[str, int] = {}  # gang: members of its surplus that go
        self._taken: set[EvictionUnit] = set()
        self._witness: dict[object, tuple[EvictionUnit, Iterator[EvictionUnit]]] = {}  # by kind of wish: see `anybody`

    # -------------------------------------------------------------------------------------------------- one piece

    def refusal(self, wish: Preemptor, piece: EvictionUnit) -> PreemptionBlock | None:
        """What forbids to evict the piece as well, as things stand; None when nothing does."""
        gang = piece.gang
        if piece.id == wish.id or piece in self._taken or piece.id in self._whole:
            return PreemptionBlock.PLACE
        if _comes_first(wish, piece):
            return None
        if piece in self.crowd.protected:
            return PreemptionBlock.MIN_RUNTIME if piece.members else PreemptionBlock.UNKNOWN
        if piece.queue is wish.queue:
            if wish.queue.spec.preemption == "Never":
                return PreemptionBlock.POLICY
            if gang.priority >= wish.gang.priority:
                return PreemptionBlock.PRIORITY
            if _borrows(wish):
                return PreemptionBlock.SHARE
        else:
            verdict = may_reclaim(wish.queue, wish.charge, piece.queue, piece.charge)
            if not verdict:
                return _BARS[verdict.rule]
        return self._spent(piece)

    def _spent(self, piece: EvictionUnit) -> PreemptionBlock | None:
        """Whether a budget has too little left for it."""
        if not piece.starts:
            return None
        taken = self._surplus.get(piece.id, 0)
        if piece.whole:
            if taken:
                return PreemptionBlock.PLACE  # its surplus goes already; the rest would be another eviction
            for queue in piece.queue.path():
                left = queue.spec.evictions_left
                if left is not None and self._disruptions.get(queue, 0) >= left:
                    return PreemptionBlock.DISRUPTIONS
        elif taken >= self.crowd.staying[piece.id] - piece.gang.size:
            return PreemptionBlock.PLACE
        return PreemptionBlock.BUDGET if self._guarded(piece) else None

    def _guarded(self, piece: EvictionUnit) -> bool:
        """Whether a PodDisruptionBudget forbids it. The eviction API refuses a pod that several of them select."""
        wanted: dict[str, int] = {}
        for member in piece.members:
            if len(member.guarded_by) > 1:
                return True
            for name in member.guarded_by:
                wanted[name] = wanted.get(name, 0) + 1
        return any(self._allowed.get((piece.gang.namespace, name), 0) < count for name, count in wanted.items())

    def take(self, piece: EvictionUnit) -> None:
        """Count it as going."""
        self._count(piece, 1)
        self._taken.add(piece)

    def settle(self, piece: EvictionUnit) -> None:
        """It goes for good; see `VictimCandidates.went`."""
        if not piece.whole:
            self._surplus[piece.id] -= 1
        self.crowd.went(piece)

    def give(self, piece: EvictionUnit) -> None:
        """Undo `take`."""
        self._count(piece, -1)
        self._taken.discard(piece)

    def _count(self, piece: EvictionUnit, sign: int) -> None:
        gang = piece.gang
        if piece.whole:
            (self._whole.add if sign > 0 else self._whole.discard)(piece.id)
            for queue in piece.queue.path() if piece.starts else ():
                self._disruptions[queue] = self._disruptions.get(queue, 0) + sign
        else:
            self._surplus[piece.id] = self._surplus.get(piece.id, 0) + sign
        for member in piece.members:
            for name in member.guarded_by:
                key = (gang.namespace, name)
                self._allowed[key] = self._allowed.get(key, 0) - sign

    # ------------------------------------------------------------------------------------------------- all at once

    def anybody(self, wish: Preemptor) -> bool:
        """Whether at least one piece may be evicted for this kind of gang. Within a decision that only gets less."""
        known = self._witness.get(wish.kind)
        if known is not None and self.refusal(wish, known[0]) is None:
            return True
        left = self._pieces(wish) if known is None else known[1]
        for piece in left:
            if self.refusal(wish, piece) is None:
                self._witness[wish.kind] = (piece, left)
                return True
        return False

    def again(self) -> None:
        """Look at everybody again."""
        self._witness.clear()

    def _pieces(self, wish: Preemptor) -> Iterator[EvictionUnit]:
        """Those that might be allowed; of a queue that gives nothing only the first."""
        for pieces in self.crowd.unprotected.values():
            for piece in pieces:
                if self.refusal(wish, piece) in _OF_THE_QUEUE:
                    break
                yield piece

    def blockers(self, wish: Preemptor) -> tuple[PreemptionBlocker, ...]:
        """What keeps each queue's gangs from being evicted for this one; the largest holders first."""
        found: dict[tuple[PreemptionBlock, str], list[EvictionUnit]] = {}
        queues = sorted(self.crowd.by_queue, key=lambda queue: (-queue.devices, queue.name))
        for queue in queues[:QUEUES_MAX]:
            barred: dict[PreemptionBlock, list[EvictionUnit]] = {}
            for piece in self.crowd.by_queue[queue]:
                if not piece.whole or not piece.devices or piece.id in self._whole:
                    continue
                barred.setdefault(self.refusal(wish, piece) or PreemptionBlock.PLACE, []).append(piece)
            for bar, pieces in barred.items():
                about = wish.queue if bar in {PreemptionBlock.SHARE, PreemptionBlock.POLICY} else queue
                found.setdefault((bar, about.name), []).extend(pieces)
        over = over_share_blocker(wish)
        first = () if over is None else (over,)
        return first + tuple(
            self._blocker(wish, bar, name, pieces)
            for (bar, name), pieces in sorted(found.items(), key=lambda item: (_ORDER[item[0][0]], item[0][1]))
            if over is None or bar is not PreemptionBlock.SHARE
        )

    def spoils(self, wish: Preemptor, pieces: Sequence[EvictionUnit]) -> bool:
        """Whether one of them, all being out, could have stayed within what its queue deserves.

        A large gang may straddle what its queue deserves and be taken; a small one beside it is no part of that.
        """
        for piece in pieces:
            if piece.queue is wish.queue or _comes_first(wish, piece):
                continue
            giver = parting(wish.queue, piece.queue)[1]
            for step in piece.queue.path():
                if all(
                    step.used.get(flavor, 0) + piece.charge.get(flavor, 0) <= step.deserved(flavor)
                    for flavor in wish.charge
                ):
                    return True
                if step is giver:
                    break
        return False

    def grows(self, wish: Preemptor, pieces: Sequence[EvictionUnit]) -> bool:
        """Whether a queue that evicts gangs of its own, now out, would still hold more than its share, though others ask.

        What is idle may be borrowed; but nobody is evicted for what is borrowed: others would take it back.
        """
        own = any(piece.queue is wish.queue for piece in pieces)
        return own and beyond_share(wish.queue, wish.charge) is not None

    def _blocker(
        self, wish: Preemptor, bar: PreemptionBlock, name: str, pieces: Sequence[EvictionUnit]
    ) -> PreemptionBlocker:
        until = (
            min((self.crowd.protected[piece] for piece in pieces), default=None)
            if bar is PreemptionBlock.MIN_RUNTIME
            else None
        )
        about = wish.queue if bar in {PreemptionBlock.SHARE, PreemptionBlock.POLICY} else pieces[0].queue
        return PreemptionBlocker(
            block=bar,
            queue=name,
            gangs=len(pieces),
            devices=sum(piece.devices for piece in pieces),
            example=pieces[0].gang.id,
            until=until,
            detail=standing(wish, about) if bar in _ABOUT_SHARES else "",
        )


def standing(wish: Preemptor, queue: Queue) -> str:
    """What a queue holds against its share, in the flavors that the gang asks for."""
    return "; ".join(
        f"{amount_text(queue.used.get(flavor, 0))} of {flavor} held, fair share "
        f"{amount_text(queue.fair.get(flavor, 0))}, deserved {amount_text(queue.deserved(flavor))}"
        for flavor in sorted(wish.charge)
    )


def over_share_blocker(wish: Preemptor) -> PreemptionBlocker | None:
    """What to say of the first queue on the way up that would hold more than its share."""
    step = beyond_share(wish.queue, wish.charge)
    if step is None:
        return None
    return PreemptionBlocker(block=PreemptionBlock.SHARE, queue=step.name, detail=standing(wish, step))


def over_share(queue: Queue, charge: Mapping[str, Amount]) -> Queue | None:
    """The first queue on the way up that would hold more than its share with this."""
    return next((step for step in queue.path() if _over(step, charge)), None)


def beyond_share(queue: Queue, charge: Mapping[str, Amount]) -> Queue | None:
    """The same, of those beside whom others ask for these flavors too: an only child's share is what its parent has."""
    return next((step for step in queue.path() if _over(step, charge) and contested(step, charge)), None)


def _over(step: Queue, charge: Mapping[str, Amount]) -> bool:
    return any(
        step.used.get(flavor, 0) + value > max(step.deserved(flavor), step.fair.get(flavor, 0))
        for flavor, value in charge.items()
    )


def fits_share(queue: Queue, charge: Mapping[str, Amount]) -> bool:
    """Whether the share would do, if nothing else of the queue ran."""
    return all(
        value <= max(step.deserved(flavor), step.fair.get(flavor, 0))
        for step in queue.path()
        for flavor, value in charge.items()
    )


def takes(
    queue: Queue, priority: int, charge: Mapping[str, Amount], giver: Queue, freed: Mapping[str, Amount], least: int
) -> bool:
    """Whether a gang like this might take from that queue at all; `least` is the lowest priority of what could go."""
    if queue is giver:
        return queue.spec.preemption != "Never" and least < priority
    verdict = may_reclaim(queue, charge, giver, freed)
    if verdict or _BARS[verdict.rule] not in _OF_THE_QUEUE:
        return True
    return _BARS[verdict.rule] is PreemptionBlock.SHARE and fits_share(queue, charge)  # once others beside it have gone


def _comes_first(wish: Preemptor, piece: EvictionUnit) -> bool:
    """Whether the piece has only been promised what comes free, and the gang came before it and stays within its share."""
    return not piece.starts and wish.turn < piece.turn and beyond_share(wish.queue, wish.charge) is None


def _borrows(wish: Preemptor) -> bool:
    """Whether the queue holds more than its share already, though others ask: its gangs run on what is lent."""
    return beyond_share(wish.queue, dict.fromkeys(wish.charge, 0)) is not None


def contested(queue: Queue, charge: Mapping[str, Amount]) -> bool:
    """Whether queues beside it hold or want of these flavors too: else its share is all there is."""
    siblings = queue.tree.roots if queue.parent is None else queue.parent.children
    return any(other.demand.get(flavor) for other in siblings if other is not queue for flavor in charge)
