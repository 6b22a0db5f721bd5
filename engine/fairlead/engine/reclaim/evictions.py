"""From chosen pieces to the plan's evictions, each with the numbers that justify it.

Exists so that whoever is evicted reads whose share or priority it was, in figures. Decides nothing.
Keeps: a message is the cause alone. For whom and when is said by the marks that pods carry (`evictions.Mark`), once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.queues.charges import Charge, add
from fairlead.engine.queues.tree import amount_text
from fairlead.engine.reclaim.policy import parting
from fairlead.engine.types.plan import Eviction
from fairlead.engine.types.reasons import Code, Reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairlead.engine.queues.tree import Queue
    from fairlead.engine.reclaim.candidates import EvictionUnit
    from fairlead.engine.reclaim.reclaim import Preemptor
    from fairlead.engine.types.amounts import Amount


def evictions(wish: Preemptor, chosen: Sequence[EvictionUnit]) -> list[Eviction]:
    """One per gang, in the order in which they were chosen. Their pieces are out already, the wish is not yet in."""
    gangs: dict[str, list[EvictionUnit]] = {}
    lost: dict[Queue, Charge] = {}  # by who gives: all that goes for this wish
    for piece in chosen:
        gangs.setdefault(piece.gang.id, []).append(piece)
        if piece.queue is not wish.queue:
            add(lost.setdefault(parting(wish.queue, piece.queue)[1], {}), piece.charge)
    return [_eviction(wish, pieces, lost) for pieces in gangs.values()]


def _eviction(wish: Preemptor, pieces: Sequence[EvictionUnit], lost: Mapping[Queue, Charge]) -> Eviction:
    first = pieces[0]
    gang, queue = first.gang, first.queue
    preempt = queue is wish.queue
    reason = _preempted(wish, first) if preempt else _reclaimed(wish, first, lost[parting(wish.queue, queue)[1]])
    return Eviction(
        kind="Preempt" if preempt else "Reclaim",
        namespace=gang.namespace,
        name=gang.name,
        uid=gang.uid,
        queue=queue.name,
        pods=tuple(member.pod for piece in pieces for member in piece.members),
        whole=first.whole,
        reason=reason,
        beneficiary=wish.gang.id,
        checkpoint_grace_s=gang.checkpoint_grace_s or 0.0,
    )


def _preempted(wish: Preemptor, piece: EvictionUnit) -> Reason:
    return Reason(
        code=Code.PREEMPTED,
        message=f"of the same queue {wish.queue.name}, with priority {wish.gang.priority} against its {piece.gang.priority}",
        advice=f"{_after(piece)}; a higher priority, or preemption: Never in queue {piece.queue.name}, would keep it",
    )


def _reclaimed(wish: Preemptor, piece: EvictionUnit, lost: Mapping[str, Amount]) -> Reason:
    """Who was owed what, by the numbers as they were before: `lost` is what the giver is left without."""
    taker, giver = parting(wish.queue, piece.queue)
    owed = all(taker.used.get(flavor, 0) + value <= taker.deserved(flavor) for flavor, value in wish.charge.items())
    told = []
    for flavor, value in sorted(wish.charge.items()):
        holds, held = taker.used.get(flavor, 0), giver.used.get(flavor, 0) + lost.get(flavor, 0)
        if owed:
            right, other = (
                f"deserves {amount_text(taker.deserved(flavor))}",
                f"deserves {amount_text(giver.deserved(flavor))}",
            )
        else:
            right = f"has a fair share of {amount_text(taker.fair.get(flavor, 0))}"
            other = f"has a fair share of {amount_text(giver.fair.get(flavor, 0))}"
        told.append(
            f"queue {taker.name} holds {amount_text(holds)} of {flavor}, asks for {amount_text(value)} more and {right}; "
            f"queue {giver.name} holds {amount_text(held)} and {other}"
        )
    return Reason(
        code=Code.RECLAIMED,
        message="; ".join(told),
        advice=f"{_after(piece)}; more deserved for queue {piece.queue.name}, or a longer min-runtime, would keep it",
    )


def _after(piece: EvictionUnit) -> str:
    return "made anew, its pods wait with its age" if piece.whole else "its other pods run on"


def making_room(wish: Preemptor, made: Sequence[Eviction]) -> Reason:
    """Why the gang itself still waits."""
    names = ", ".join(
        f"{eviction.id} (queue {eviction.queue})" if eviction.queue else eviction.id for eviction in made[:3]
    )
    more = f" and {len(made) - 3} more" if len(made) > 3 else ""
    pods = sum(len(eviction.pods) for eviction in made)
    return Reason(
        code=Code.MAKING_ROOM,
        message=f"{pods} pod{'s' if pods != 1 else ''} of {names}{more} {'are' if pods != 1 else 'is'} being evicted for it",
        advice="it starts when they are gone; what they give back is held for it",
        could_ever_fit=True,
    )
