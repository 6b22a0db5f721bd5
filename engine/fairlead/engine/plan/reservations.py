"""Places reserved for gangs that have waited long: when one is due, which gangs may use it meanwhile, when it yields.

Where the place is and for how many it exists is `reclaim.reservation`'s. A soft reservation is one that is no obstacle to a
preemptor: its own, and those of gangs that are over their queue's share until others of that queue end, for a preemptor that
may evict those others.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from fairlead.engine.reclaim.reservation import Reserver
from fairlead.engine.reclaim.shares import over_contested_share

if TYPE_CHECKING:
    from fairlead.engine.plan.nominations import HeldDevices
    from fairlead.engine.plan.session import Session
    from fairlead.engine.queues.order import PendingGang
    from fairlead.engine.reclaim.preemptor import Preemptor
    from fairlead.engine.reclaim.reservation import ReservedPlace
    from fairlead.engine.types.model import Reservation


class Reservations:
    """Those of one decision."""

    def __init__(self, session: Session, held: HeldDevices) -> None:
        self._session = session
        self._held = held
        self.by_gang: dict[str, tuple[ReservedPlace, Reservation]] = {}

    @cached_property
    def _reserver(self) -> Reserver:
        return Reserver(self._session.pipelined, self._session.candidates)

    def due(self, pending: PendingGang) -> float:
        """When the gang has waited long enough for one, in unix seconds."""
        return pending.gang.created + self._session.snapshot.reserve_after_s

    def reserve(self, pending: PendingGang, preemptor: Preemptor) -> Reservation | None:
        """The gang's place: the one that it has, or a new one if it has waited long enough and its queue has none yet."""
        if pending.id in self.by_gang:
            return self.by_gang[pending.id][1]
        if self.due(pending) > self._session.now:
            self._session.note_due(self.due(pending))
            return None
        place = self._reserver.reserve(preemptor, self._session.statement)
        if place is None:
            return None
        reservation = self._held.add(pending, place.placed, evicted=False, ready_by=place.ready_by)
        self.by_gang[pending.id] = (place, reservation)
        return reservation

    def of(self, pending: PendingGang) -> Reservation | None:
        known = self.by_gang.get(pending.id)
        return None if known is None else known[1]

    def usable(self, pending: PendingGang) -> list[ReservedPlace]:
        """Places that this gang may use: its own, and those that are ready no sooner than it promises to end."""
        own = [self.by_gang[pending.id][0]] if pending.id in self.by_gang else []
        if not self.by_gang or pending.gang.run_s is None:
            return own
        end = self._session.now + pending.gang.run_s
        return [*own, *(place for place in self._reserver.ready_after(end) if place not in own)]

    def fulfilled(self, pending: PendingGang, place: ReservedPlace) -> bool:
        """The gang is admitted: whether this place was its own, and is needed no more."""
        known = self.by_gang.get(pending.id)
        if known is None or known[0] is not place:
            return False
        self._held.reservations.remove(known[1])
        return True

    def soft(self, preemptor: Preemptor) -> list[ReservedPlace]:
        """Those that are no obstacle to this preemptor."""
        return [
            place
            for place, _ in self.by_gang.values()
            if place.preemptor.id == preemptor.id
            or over_contested_share(place.preemptor.queue, place.preemptor.charge) is not None
        ]

    def cancel(self, place: ReservedPlace) -> None:
        """A preemptor has taken it, in the pipelined cluster."""
        self._reserver.cancel(place)
        self._held.remove(self.by_gang.pop(place.preemptor.id)[1])
