"""What is held for pending gangs: devices that come free for nominated gangs, and places reserved for blocked ones.

No later gang of the decision starts on what another is to have, and nothing is evicted twice for the same gang. A nominated
gang is held in the ledger of now and in the pipelined one, and its queue is charged; a reserved place is held only. Where that
place is and why it stays there is `reclaim.reservation`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

from fairlead.engine.inventory.device import Device
from fairlead.engine.placement.model import UnitPlacement
from fairlead.engine.plan.session import Session
from fairlead.engine.queues.charges import Charge, add, chargeable
from fairlead.engine.queues.gangs import AssumedGang, PendingGang
from fairlead.engine.queues.tree import Queue
from fairlead.engine.reclaim.eviction_policy import Preemptor
from fairlead.engine.reclaim.policy import over_contested_share
from fairlead.engine.reclaim.reservation import ReservedPlace, Reserver
from fairlead.engine.types.plan import Assignment, Reservation

RESERVATIONS_MAX = 8  # places for blocked gangs in one decision


def _meet(one: PendingGang, other: PendingGang) -> bool:
    """Whether both may get devices of one flavor, or both only devices of none."""
    mine, theirs = one.cost.flavors, other.cost.flavors
    return not mine.isdisjoint(theirs) or not (mine or theirs)


class HeldDevices:
    """The plan's reservations in the order in which they were made, and the free devices that they hold."""

    def __init__(self) -> None:
        self.reservations: list[Reservation] = []
        self.held_for: dict[Device, tuple[str, str]] = {}  # free devices: gang, queue

    def add(
        self, pending: PendingGang, placed: Sequence[UnitPlacement], *, evicted: bool, ready_by: float | None = None
    ) -> Reservation:
        """`evicted`: others were, for this gang."""
        for pick in chargeable(placed):
            if pick.device.use is None:
                self.held_for.setdefault(pick.device, (pending.id, pending.queue.name))
        reservation = Reservation(
            namespace=pending.gang.namespace,
            name=pending.gang.name,
            uid=pending.gang.uid,
            queue=pending.queue.name,
            nodes=tuple(sorted({entry.node.name for entry in placed})),
            kind="Preemptor" if evicted else "Blocked",
            ready_by=ready_by,
            assignments=tuple(
                Assignment(pod=member.pod, node=entry.node.name) for entry in placed for member in entry.unit.members
            ),
        )
        self.reservations.append(reservation)
        return reservation

    def remove(self, reservation: Reservation) -> None:
        self.reservations.remove(reservation)
        self.held_for = {device: gang for device, gang in self.held_for.items() if gang[0] != reservation.id}


@dataclass(frozen=True, slots=True)
class Nomination:
    """`assumed` is where the gang will run, allocated in the pipelined ledger; `held` what of that it holds of the one of now."""

    assumed: AssumedGang
    held: Sequence[UnitPlacement]
    reservation: Reservation


class Nominations:
    def __init__(self, session: Session, held: HeldDevices) -> None:
        self._session = session
        self._held = held
        self.by_gang: dict[str, Nomination] = {}
        self._coming: dict[Queue, Charge] = {}  # what comes free for gangs of each queue, or of those below it

    def nominate(self, pending: PendingGang, placed: Sequence[UnitPlacement], *, evicted: bool) -> Reservation:
        """The gang starts there once the pods that hold it are gone. `evicted`: they are, for this gang.

        `placed` is allocated in the pipelined ledger already.
        """
        session = self._session
        held = session.statement.hold(placed)
        assumed = AssumedGang(pending, placed, session.cache.charges.of_placed(placed))
        session.statement.do(pending.queue.charge, assumed.charge, assumed.devices)
        reservation = self._held.add(pending, placed, evicted=evicted)
        self.by_gang[pending.id] = Nomination(assumed, held, reservation)
        if not evicted:
            self._count_coming(assumed)
        session.admitted.give_claims(pending)
        return reservation

    def withdraw(self, gang_id: str) -> None:
        """As if the gang had not been nominated. What its queue uses was taken off with the trial eviction that withdraws it."""
        nomination = self.by_gang.pop(gang_id)
        self._coming.clear()
        for assumed in self.coming():
            self._count_coming(assumed)
        self._session.statement.unhold(nomination.held)
        self._held.remove(nomination.reservation)

    def _count_coming(self, assumed: AssumedGang) -> None:
        for step in assumed.pending.queue.path():
            add(self._coming.setdefault(step, {}), assumed.charge)

    def without_coming(self, preemptor: Queue, times: int) -> None:
        """The change by which queues do not use what comes free for their gangs, but for those above the preemptor's.

        Nothing is evicted because its queue's gangs are nominated for more: the nomination would go first.
        """
        above = set(preemptor.path()) if self._coming else ()
        for queue, charge in self._coming.items():
            if queue not in above:
                add(queue.used, charge, -times)

    def coming(self) -> list[AssumedGang]:
        """Gangs for which nothing was evicted: they only wait for what comes free anyway."""
        return [each.assumed for each in self.by_gang.values() if each.reservation.kind == "Blocked"]

    def settle(self) -> None:
        """The decision is made: queues are not charged for what their gangs are only nominated for."""
        for nomination in self.by_gang.values():
            assumed = nomination.assumed
            assumed.pending.queue.charge(assumed.charge, assumed.devices, -1)


class Reservations:
    """Those of one decision, for gangs that have waited long.

    A soft reservation is one that is no obstacle to a preemptor: its own, and those of gangs that are over their queue's share
    until others of that queue end, for a preemptor that may evict those others.
    """

    def __init__(self, session: Session, held: HeldDevices) -> None:
        self._session = session
        self._held = held
        self.by_gang: dict[str, tuple[ReservedPlace, Reservation]] = {}
        self._refused: dict[object, object] = {}  # kind of preemptor and signature: as things stood

    @cached_property
    def _reserver(self) -> Reserver:
        return Reserver(self._session.pipelined, self._session.candidates)

    def _places(self) -> list[ReservedPlace]:
        return [place for place, _ in self.by_gang.values()]

    def waited(self, pending: PendingGang) -> bool:
        """Whether the gang has waited long enough for one; if not, when it will have is noted."""
        due = pending.gang.created + self._session.snapshot.reserve_after_s
        if due > self._session.now:
            self._session.note_due(due)
            return False
        return True

    def reserve(self, pending: PendingGang, preemptor: Preemptor) -> Reservation | None:
        """The gang's place: the one that it has, or a new one if it has waited long enough and its queue has none yet."""
        if pending.id in self.by_gang:
            return self.by_gang[pending.id][1]
        if not self.waited(pending) or not self.may_reserve(pending):
            return None
        alike, stand = (preemptor.kind, preemptor.signature), self._stand()
        if self._refused.get(alike) == stand:
            return None
        place = self._reserver.reserve(preemptor, self._session.statement)
        if place is None:
            if not self._session.statement.accounts.payer.exhausted():
                self._refused[alike] = stand
            return None
        reservation = self._held.add(pending, place.placed, evicted=False, ready_by=place.ready_by)
        self.by_gang[pending.id] = (place, reservation)
        return reservation

    def may_reserve(self, pending: PendingGang) -> bool:
        """Whether one more place may be reserved, and the gang's queue has none yet for devices of the same flavors."""
        return len(self.by_gang) < RESERVATIONS_MAX and not any(
            place.preemptor.queue is pending.queue and _meet(pending, self._session.pending.by_id[gang_id])
            for gang_id, (place, _) in self.by_gang.items()
        )

    def _stand(self) -> object:
        """Equal while nothing changes that a place depends on: both ledgers, what queues use, and what runs."""
        session = self._session
        return session.statement.stamp, session.pipelined.statement.stamp, session.candidates.version

    def of(self, pending: PendingGang) -> Reservation | None:
        known = self.by_gang.get(pending.id)
        return None if known is None else known[1]

    def usable(self, pending: PendingGang) -> list[ReservedPlace]:
        """Places that this gang may use: its own, and those that are ready no sooner than its latest end."""
        own = [self.by_gang[pending.id][0]] if pending.id in self.by_gang else []
        end = inf if pending.gang.run_s is None else self._session.now + pending.gang.run_s
        return own + [each for each in self._places() if each not in own and end <= (each.ready_by or -inf)]

    def fulfilled(self, pending: PendingGang, place: ReservedPlace) -> bool:
        """The gang is admitted: whether this place was its own, and is needed no more. It is no obstacle to preemptors any more."""
        known = self.by_gang.get(pending.id)
        if known is None or known[0] is not place:
            return False
        del self.by_gang[pending.id]
        self._held.reservations.remove(known[1])
        place.later.lend()  # the admitted gang holds its own devices there
        return True

    def soft(self, preemptor: Preemptor) -> list[ReservedPlace]:
        """Those that are no obstacle to this preemptor."""
        return [
            place
            for place in self._places()
            if place.preemptor.id == preemptor.id
            or over_contested_share(place.preemptor.queue, place.preemptor.charge) is not None
        ]

    def cancel(self, place: ReservedPlace) -> None:
        """A preemptor has taken it, in the pipelined cluster."""
        place.now.lend()
        self._held.remove(self.by_gang.pop(place.preemptor.id)[1])
