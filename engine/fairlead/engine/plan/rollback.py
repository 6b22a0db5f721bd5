"""Who has to give back what this very decision gave, before anybody is told.

Exists so that deciding on the outcome of a decision changes nothing: gangs that were blocked are looked at again with those
among the possible victims that have been admitted, or promised what comes free, since. What the next decision would evict
need not start. Chooses no victims.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.queues.charges import Charge, add
from fairlead.engine.reclaim.reclaim import takes
from fairlead.engine.reclaim.tentative import TentativeAdmission

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from fairlead.engine.placement.model import UnitPlacement
    from fairlead.engine.queues.assumed import AssumedGang
    from fairlead.engine.queues.order import PendingGang
    from fairlead.engine.queues.tree import Queue
    from fairlead.engine.reclaim.candidates import EvictionUnit, VictimCandidates
    from fairlead.engine.reclaim.reclaim import Rules


class Rollback:
    """Of one decision. What it holds is among the crowd only between `join` and `part`."""

    def __init__(self, now: float) -> None:
        self._now = now
        self.fresh: dict[str, TentativeAdmission] = {}  # by gang id
        self._void: list[str] = []  # ids of gangs that give back

    @property
    def coming(self) -> bool:
        """Whether some of them have only been promised what comes free."""
        return any(not piece.starts for piece in self.fresh.values())

    def new(
        self,
        admitted: Iterable[AssumedGang],
        coming: Iterable[AssumedGang],
        stuck: Collection[PendingGang],
        line: Mapping[str, int],
    ) -> list[AssumedGang]:
        """Those that are not among the crowd yet; none where nobody who is stuck comes first, or could lawfully take it."""
        later = [each for each in coming if each.entry.id not in self.fresh]
        found = [each for each in admitted if each.entry.id not in self.fresh and not each.entry.gang.placed_nodes]
        return found + later if _before(later, stuck, line) or _owed(found + later, stuck) else []

    def join(
        self,
        crowd: VictimCandidates,
        landed: Iterable[AssumedGang],
        mirrored: Mapping[str, Sequence[UnitPlacement]],
        line: Mapping[str, int],
    ) -> None:
        """`mirrored` has what those that start hold of the later ledger, by gang id; the others hold their places there."""
        fresh = [
            TentativeAdmission(
                each,
                mirrored.get(each.entry.id, each.placed),
                self._now,
                line.get(each.entry.id, 0),
                starts=each.entry.id in mirrored,
            )
            for each in landed
        ]
        self.fresh.update((piece.id, piece) for piece in fresh)
        crowd.join(fresh)

    def take(self, pieces: Iterable[EvictionUnit], crowd: VictimCandidates, rules: Rules) -> list[str]:
        """Those of the chosen that have not started; the later ledger and their queues are without them. Their gangs' ids."""
        found = [piece for piece in pieces if isinstance(piece, TentativeAdmission)]
        for piece in found:
            rules.give(piece)
            crowd.leave(piece)
            del self.fresh[piece.id]
        self._void += [piece.id for piece in found]
        return [piece.id for piece in found]

    def part(self, crowd: VictimCandidates) -> list[str]:
        """Nobody of this decision is a victim any more, until the next `join`; returns the ids of those that give back."""
        for piece in self.fresh.values():
            crowd.leave(piece)
        self.fresh.clear()
        void, self._void = self._void, []
        return void


def _before(landed: Iterable[AssumedGang], stuck: Iterable[PendingGang], line: Mapping[str, int]) -> bool:
    """Whether one of those who are stuck comes before one that has landed. One of each kin."""
    first = min((line.get(entry.id, 0) for entry in stuck), default=None)
    return first is not None and any(first < line.get(each.entry.id, 0) for each in landed)


def _owed(landed: Sequence[AssumedGang], stuck: Iterable[PendingGang]) -> bool:
    """Whether the law lets one of those who are stuck take from a queue that has been given something. One of each kin."""
    given: dict[Queue, tuple[Charge, int]] = {}
    for each in landed:
        queue, priority = each.entry.queue, each.entry.gang.priority
        charge, least = given.get(queue, ({}, priority))
        add(charge, each.charge)
        given[queue] = (charge, min(least, priority))
    return any(
        takes(entry.queue, entry.gang.priority, entry.charge, queue, charge, least)
        for entry in stuck
        for queue, (charge, least) in given.items()
    )
