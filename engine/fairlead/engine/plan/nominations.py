"""What gangs that wait are promised: devices that come free for them, and places that are kept.

Exists so that no later gang of the decision starts on what another is to have, and nobody is evicted twice for the same. A
promise is held in the ledger of now and in that of later, and charged to its queue; a kept place (`reserve`) is held only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairlead.engine.queues.assumed import AssumedGang, devices_in
from fairlead.engine.queues.charges import Charge, add
from fairlead.engine.reclaim.reclaim import beyond_share
from fairlead.engine.reclaim.releasing import drop, keep
from fairlead.engine.types.plan import Reservation

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fairlead.engine.inventory.device import Device
    from fairlead.engine.placement.model import UnitPlacement
    from fairlead.engine.queues.cache import SchedulerCache
    from fairlead.engine.queues.order import PendingGang
    from fairlead.engine.queues.tree import Queue
    from fairlead.engine.reclaim.reclaim import Preemptor
    from fairlead.engine.reclaim.reservation import Held, Reserver


@dataclass(frozen=True, slots=True)
class Nomination:
    """`landed` is where it will be, taken in the later ledger; `kept` what of that it holds of the one of now."""

    landed: AssumedGang
    kept: Sequence[UnitPlacement]
    reservation: Reservation


class Nominations:
    """Those of one decision."""

    def __init__(self, board: SchedulerCache) -> None:
        self._board = board
        self.reservations: list[Reservation] = []
        self.taken_by: dict[Device, tuple[str, str]] = {}  # free devices that are held: gang, queue
        self.promised: dict[str, Nomination] = {}  # by gang id
        self.kept: dict[str, tuple[Held, Reservation]] = {}  # gang id: its place
        self.last = ""  # id of the gang that was promised something last
        self._coming: dict[Queue, Charge] = {}  # what comes free for gangs of each queue, those below it included

    def promise(self, entry: PendingGang, placed: Sequence[UnitPlacement], *, evicted: bool) -> Reservation:
        """The gang lands there when those are gone who hold it; `placed` is taken in the later ledger. `evicted`: for it."""
        kept = keep(placed, self._board.placer.ledger)
        self._name(entry.id, entry.queue.name, placed)
        landed = AssumedGang(entry, placed, self._board.charges.of_placed(placed), devices_in(placed))
        entry.queue.charge(landed.charge, landed.devices)
        reservation = _reservation(entry, placed, None, evicted=evicted)
        self.promised[entry.id] = Nomination(landed, kept, reservation)
        if not evicted:
            self._count(entry.queue, landed.charge, 1)
        self.reservations.append(reservation)
        self.last = entry.id
        return reservation

    def coming(self) -> Iterable[AssumedGang]:
        """For whom nobody was evicted: they only wait for what comes free anyway."""
        return [each.landed for each in self.promised.values() if each.reservation.kind == "Blocked"]

    def count_coming(self, taker: Queue, sign: int = 1) -> None:
        """Count what comes free on the queues for which it does, or (-1) take it off; not on those above the taker."""
        above = set(taker.path()) if self._coming else ()
        for queue, charge in self._coming.items():
            if queue not in above:
                add(queue.used, charge, sign)

    def _count(self, queue: Queue, charge: Charge, sign: int) -> None:
        for step in queue.path():
            add(self._coming.setdefault(step, {}), charge, sign)

    def withdraw(self, gang_id: str) -> None:
        """As if it had not been promised anything. Its queue's use is off already, see `Later.take_out`."""
        promise = self.promised.pop(gang_id)
        self._count(promise.landed.entry.queue, promise.landed.charge, -1)
        drop(promise.kept, self._board.placer.ledger)
        self._forget(promise.landed.placed, gang_id, promise.reservation)

    def keep(self, entry: PendingGang, held: Held) -> Reservation:
        """The gang has a place kept for it."""
        self._name(entry.id, entry.queue.name, held.placed)
        reservation = _reservation(entry, held.placed, held.ready_by, evicted=False)
        self.reservations.append(reservation)
        self.kept[entry.id] = (held, reservation)
        return reservation

    def needless(self, gang_id: str, held: Held) -> bool:
        """The gang is admitted: whether this place was kept for it, and need not be any more."""
        kept = self.kept.get(gang_id)
        if kept is None or kept[0] is not held:
            return False
        self.reservations.remove(kept[1])
        return True

    def weak(self, wish: Preemptor) -> list[Held]:
        """Places that are no bar to a gang: its own, and those kept for gangs that are beyond their share until others of
        theirs end, for who may evict those.
        """
        return [
            held
            for held, _ in self.kept.values()
            if held.wish.id == wish.id or beyond_share(held.wish.queue, held.wish.charge) is not None
        ]

    def cancel(self, held: Held, reserver: Reserver) -> None:
        """Who may evict those that it waits for, takes the place."""
        reserver.cancel(held)
        self._forget(held.placed, held.wish.id, self.kept.pop(held.wish.id)[1])

    def settle(self) -> None:
        """The decision is made: queues are not charged for what is only promised."""
        for promise in self.promised.values():
            promise.landed.entry.queue.charge(promise.landed.charge, promise.landed.devices, -1)

    def _name(self, gang_id: str, queue: str, placed: Sequence[UnitPlacement]) -> None:
        for entry in placed:
            self._board.node_snapshot.changed(entry.node)
            for picks in entry.picks:
                for pick in picks:
                    if pick.device.use is None:
                        self.taken_by.setdefault(pick.device, (gang_id, queue))

    def _forget(self, placed: Sequence[UnitPlacement], gang_id: str, reservation: Reservation) -> None:
        self.reservations.remove(reservation)
        self.taken_by = {device: who for device, who in self.taken_by.items() if who[0] != gang_id}
        for entry in placed:
            self._board.node_snapshot.changed(entry.node)


def _reservation(
    entry: PendingGang, placed: Sequence[UnitPlacement], ready_by: float | None, *, evicted: bool
) -> Reservation:
    return Reservation(
        namespace=entry.gang.namespace,
        name=entry.gang.name,
        uid=entry.gang.uid,
        queue=entry.queue.name,
        nodes=tuple(sorted({unit.node.name for unit in placed})),
        kind="Preemptor" if evicted else "Blocked",
        ready_by=ready_by,
    )
