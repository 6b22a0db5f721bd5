"""What the decision gives to others and holds for them: the premises of a certificate, since no object shows them yet."""

from __future__ import annotations

from contextlib import contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING

from fairlead.api.certificate import Given, Share

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from fairlead.engine.inventory.device import Device
    from fairlead.engine.placement.model import UnitPlacement
    from fairlead.engine.plan.decide import Decision
    from fairlead.engine.queues.gangs import PendingGang


class Premises:
    """Of one decision, for one gang: without its own places, and those that it may use."""

    def __init__(self, decision: Decision, gang_id: str) -> None:
        session, post_filter = decision.session, decision.scheduling.post_filter
        self._statement = session.statement
        self._own: Sequence[UnitPlacement] = ()  # what is held of its own nomination
        self.given: list[Given] = []
        self.taken_by: dict[Device, str] = {}
        for gang in session.admitted.gangs.values():
            self._add(gang.pending, "Admitted", gang.placed)
        for nomination in post_filter.nominations.by_gang.values():
            if nomination.assumed.pending.id == gang_id:
                self._own = nomination.held
            else:
                self._add(nomination.assumed.pending, "Nominated", nomination.held)
        pending = session.pending.by_id.get(gang_id)
        usable = [] if pending is None else post_filter.reservations.usable(pending)
        for place, reservation in post_filter.reservations.by_gang.values():
            if place not in usable and reservation.id != gang_id:
                self._add(session.pending.by_id[reservation.id], "Reserved", place.now.held)
        self._usable = [place.now for place in usable]

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Inside, what is held for the gang itself, or is lent to it, is not held."""
        if self._own:
            self._statement.unhold(self._own)
        for hold in self._usable:
            hold.lend()
        try:
            yield
        finally:
            for hold in self._usable:
                hold.take()
            if self._own:
                self._own = self._statement.hold(self._own)

    def _add(self, pending: PendingGang, role: str, placed: Iterable[UnitPlacement]) -> None:
        gang = pending.gang
        placed = list(placed)
        picks = [pick for entry in placed for claim in entry.picks for pick in claim if not pick.request.admin]
        for pick in picks:
            self.taken_by.setdefault(pick.device, gang.id)
        self.given.append(
            Given(
                gang=gang.id,
                uid=gang.uid,
                role=role,
                claims=tuple(claim.key for claim in gang.claims if claim.allocation is None and role != "Reserved"),
                devices=tuple(
                    Share(
                        device=(pick.device.pool.driver, pick.device.pool.name, pick.device.name),
                        consumes={name: str(Fraction(value)) for name, value in pick.consumption},
                    )
                    for pick in picks
                ),
                pods={member.pod.uid: entry.node.name for entry in placed for member in entry.unit.members},
            )
        )
