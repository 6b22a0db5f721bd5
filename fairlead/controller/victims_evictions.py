"""From chosen pieces to the plan's evictions, each with the numbers that justify it.

Exists so that whoever is evicted reads whose share or priority it was, in figures. Decides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.controller.legality import parting
from fairlead.controller.model import Eviction
from fairlead.controller.reasons import Code, Reason
from fairlead.controller.reclaim import standing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.controller.reclaim import Wish
    from fairlead.controller.victims import Piece
    from fairlead.controller.victims_search import Choice


def evictions(wish: Wish, choice: Choice) -> list[Eviction]:
    """One per gang, in the order in which they were chosen."""
    gangs: dict[str, list[Piece]] = {}
    for piece in choice.pieces:
        gangs.setdefault(piece.gang.id, []).append(piece)
    return [_eviction(wish, pieces) for pieces in gangs.values()]


def _eviction(wish: Wish, pieces: Sequence[Piece]) -> Eviction:
    first = pieces[0]
    gang, queue = first.gang, first.queue
    preempt = queue is wish.queue
    return Eviction(
        kind="Preempt" if preempt else "Reclaim",
        namespace=gang.namespace,
        name=gang.name,
        uid=gang.uid,
        queue=queue.name,
        pods=tuple(member.pod for piece in pieces for member in piece.members),
        whole=first.whole,
        reason=_preempted(wish, first) if preempt else _reclaimed(wish, first),
        beneficiary=wish.gang.id,
        checkpoint_grace_s=gang.checkpoint_grace_s or 0.0,
    )


def _preempted(wish: Wish, piece: Piece) -> Reason:
    what = "it is evicted" if piece.whole else "its surplus is evicted"
    return Reason(
        code=Code.PREEMPTED,
        message=f"{what} for gang {wish.gang.id} of the same queue {wish.queue.name}: priority {wish.gang.priority} "
        f"against its {piece.gang.priority}",
        advice="it waits again with its age; a higher priority, or preemption: Never in the queue, would have kept it",
    )


def _reclaimed(wish: Wish, piece: Piece) -> Reason:
    taker, giver = parting(wish.queue, piece.queue)
    what = "it is evicted" if piece.whole else "its surplus is evicted"
    return Reason(
        code=Code.RECLAIMED,
        message=f"{what} so that gang {wish.gang.id} of queue {wish.queue.name} can run; without it, queue {giver.name}: "
        f"{standing(wish, giver)}; before the gang starts, queue {taker.name}: {standing(wish, taker)}",
        advice="it waits again with its age; more deserved for its queue, or a longer minRuntime, would have kept it",
    )


def making_room(wish: Wish, made: Sequence[Eviction]) -> Reason:
    """Why the gang itself still waits."""
    names = ", ".join(
        f"{eviction.id} (queue {eviction.queue})" if eviction.queue else eviction.id for eviction in made[:3]
    )
    more = f" and {len(made) - 3} more" if len(made) > 3 else ""
    pods = sum(len(eviction.pods) for eviction in made)
    return Reason(
        code=Code.MAKING_ROOM,
        message=f"{pods} pod{'s' if pods != 1 else ''} of {names}{more} {'are' if pods != 1 else 'is'} evicted for it",
        advice="it starts when they are gone; what they give back is held for it",
        could_ever_fit=True,
    )
