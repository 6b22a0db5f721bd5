"""A gang that a decision has given its devices, and how many devices a placement holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.engine.placement.model import UnitPlacement
    from fairlead.engine.queues.charges import Charge
    from fairlead.engine.queues.order import PendingGang


@dataclass(frozen=True, slots=True)
class AssumedGang:
    """A gang that is admitted, and where."""

    entry: PendingGang
    placed: Sequence[UnitPlacement]  # taken in the ledger of now
    charge: Charge
    devices: int


def devices_in(placed: Sequence[UnitPlacement]) -> int:
    """How many are held there, admin access aside."""
    return sum(not pick.request.admin for unit in placed for picks in unit.picks for pick in picks)
