"""What a decision has given to waiting gangs so far, with exact undo.

Exists so that a decision can take back what it gave, before anybody is told, when somebody turns out to be owed it. Keeps the
ledger of now, the queues' use and the claims in step; decides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.plan.answers import admission
from fairlead.engine.queues.assumed import AssumedGang, devices_in
from fairlead.engine.queues.charges import Charge, add

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.engine.allocator.result import ShareIds
    from fairlead.engine.inventory.device import Device
    from fairlead.engine.placement.model import UnitPlacement
    from fairlead.engine.queues.cache import SchedulerCache
    from fairlead.engine.queues.order import PendingGang
    from fairlead.engine.snapshot import Snapshot
    from fairlead.engine.types.plan import Admission


class Statement:
    """One per decision."""

    def __init__(self, board: SchedulerCache, snapshot: Snapshot, share_ids: ShareIds) -> None:
        self._board = board
        self._snapshot = snapshot
        self._share_ids = share_ids
        self.landed: dict[str, AssumedGang] = {}  # by gang id, in order of decision
        self.claims: dict[str, str] = {}  # key of each claim that is allocated or promised by this decision: gang
        self.taken_by: dict[Device, tuple[str, str]] = {}  # gang, queue
        self.times = 0  # gangs that were ever admitted

    def admit(self, entry: PendingGang, placed: Sequence[UnitPlacement], charge: Charge) -> AssumedGang:
        """The gang starts there; `placed` is taken already."""
        gang, queue = entry.gang, entry.queue
        landed = self.landed[gang.id] = AssumedGang(entry, placed, charge, devices_in(placed))
        for unit in placed:
            for picks in unit.picks:
                for pick in picks:
                    if not pick.request.admin:
                        self.taken_by[pick.device] = (gang.id, queue.name)
        self.keep_claims(entry)
        queue.charge(charge, landed.devices)
        queue.admitted += 1
        self.times += 1
        return landed

    def withdraw(self, gang_id: str) -> AssumedGang | None:
        """As if it had not been admitted, or promised anything (None). Its queue's use is off already: `Later.take_out`."""
        self.claims = {key: gang for key, gang in self.claims.items() if gang != gang_id}
        landed = self.landed.pop(gang_id, None)
        if landed is not None:
            self._board.placer.undo(landed.placed)
            self.taken_by = {device: who for device, who in self.taken_by.items() if who[0] != gang_id}
            landed.entry.queue.admitted -= 1
        return landed

    def keep_claims(self, entry: PendingGang) -> None:
        """No other gang of this decision is given those that it shares with this one."""
        for claim in entry.gang.claims:
            if claim.allocation is None:
                self.claims[claim.key] = entry.gang.id

    def charge(self) -> Charge:
        """Of all that is given, to whichever queue."""
        total: Charge = {}
        for landed in self.landed.values():
            add(total, landed.charge)
        return total

    def admissions(self) -> tuple[Admission, ...]:
        return tuple(
            admission(
                landed.entry.gang, landed.entry.queue.name, landed.placed, self._snapshot.classes, self._share_ids
            )
            for landed in self.landed.values()
        )
