"""The gangs that a decision has admitted so far.

Keeps the ledger of now, what queues use and the claims that are given in step with one another; decides nothing. A gang may
be withdrawn again, from anywhere in the order, before the plan is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.plan.answers import admission
from fairlead.engine.queues.charges import Charge, chargeable
from fairlead.engine.queues.gangs import AssumedGang

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.engine.allocator.result import ShareIds
    from fairlead.engine.inventory.device import Device
    from fairlead.engine.placement.model import UnitPlacement
    from fairlead.engine.queues.gangs import PendingGang
    from fairlead.engine.queues.statement import Statement
    from fairlead.engine.snapshot import Snapshot
    from fairlead.engine.types.plan import Admission


class AdmittedGangs:
    """Of one decision. `statement` is that of the ledger of now."""

    def __init__(self, statement: Statement) -> None:
        self._statement = statement
        self.gangs: dict[str, AssumedGang] = {}  # by gang id, in order of decision
        self.claims: dict[str, str] = {}  # key of each claim that is given to an admitted or nominated gang: its id
        self.taken_by: dict[Device, tuple[str, str]] = {}  # gang, queue
        self.count = 0  # of all that were ever admitted, those withdrawn since included

    def admit(self, pending: PendingGang, placed: Sequence[UnitPlacement], charge: Charge) -> AssumedGang:
        """The gang starts there; `placed` is allocated already."""
        gang, queue = pending.gang, pending.queue
        assumed = self.gangs[gang.id] = AssumedGang(pending, placed, charge)
        self.taken_by.update((pick.device, (gang.id, queue.name)) for pick in chargeable(placed))
        self.give_claims(pending)
        self._statement.do(queue.charge, charge, assumed.devices)
        queue.admitted += 1
        self.count += 1
        return assumed

    def withdraw(self, gang_id: str) -> None:
        """As if the gang had not been admitted or nominated. The trial eviction that withdraws it took it off its queue's use."""
        self.claims = {key: gang for key, gang in self.claims.items() if gang != gang_id}
        assumed = self.gangs.pop(gang_id, None)
        if assumed is not None:
            self._statement.deallocate(assumed.placed)
            self.taken_by = {device: taker for device, taker in self.taken_by.items() if taker[0] != gang_id}
            assumed.pending.queue.admitted -= 1

    def give_claims(self, pending: PendingGang) -> None:
        """No other gang of this decision is given the claims that it shares with this one."""
        for claim in pending.gang.claims:
            if claim.allocation is None:
                self.claims[claim.key] = pending.gang.id

    def admissions(self, snapshot: Snapshot, share_ids: ShareIds) -> tuple[Admission, ...]:
        return tuple(
            admission(each.pending.gang, each.pending.queue.name, each.placed, snapshot.classes, share_ids)
            for each in self.gangs.values()
        )
