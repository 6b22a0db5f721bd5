"""A gang to which a decision has given its devices, now or once others have gone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.engine.placement.model import UnitPlacement
    from fairlead.engine.queues.charges import Charge, Charges
    from fairlead.engine.queues.order import PendingGang


@dataclass(frozen=True, slots=True)
class AssumedGang:
    """The gang, where it is placed, and what its queue is charged for that."""

    pending: PendingGang
    placed: Sequence[UnitPlacement]
    charge: Charge
    devices: int  # admin access aside

    @classmethod
    def of(cls, pending: PendingGang, placed: Sequence[UnitPlacement], charges: Charges) -> AssumedGang:
        return cls(pending, placed, charges.of_placed(placed), devices_in(placed))


def devices_in(placed: Sequence[UnitPlacement]) -> int:
    """How many devices are held there, admin access aside."""
    return sum(not pick.ask.admin for unit in placed for picks in unit.picks for pick in picks)
