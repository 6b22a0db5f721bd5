"""The places that are held for gangs: for those that move, and for members of running gangs that are being replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from fairlead.controller.commit.move_places import Moves
from fairlead.controller.gangs.evictions.past_evictions import PastEviction
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.replacements import Replacements
from fairlead.engine.types.gangs import GangRequest, RunningGang
from fairlead.engine.types.plan import Plan


class Places:
    def __init__(self, moves: Moves, replacements: Replacements) -> None:
        self.moves = moves
        self.replacements = replacements

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
