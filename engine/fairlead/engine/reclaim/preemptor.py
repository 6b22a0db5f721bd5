"""A pending gang for which others may be evicted or a place reserved."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairlead.engine.placement.shapes import PlacementUnit
    from fairlead.engine.queues.tree import Queue
    from fairlead.engine.types.model import Amount, GangRequest


@dataclass(frozen=True, slots=True, eq=False)
class Preemptor:
    """The gang, and `charge`, the least that it costs its queue."""

    gang: GangRequest
    queue: Queue
    units: Sequence[PlacementUnit]
    charge: Mapping[str, Amount]
    spread: bool
    signature: object  # equal for gangs that placement treats alike
    id: str  # the gang's
    turn: int = 0  # the gang's place in this decision's order, where that counts

    @property
    def kind(self) -> object:
        """Equal for gangs that may evict the same."""
        return (self.queue.name, self.gang.priority, tuple(sorted(self.charge.items())), self.turn)

    def with_charge(self, charge: Mapping[str, Amount]) -> Preemptor:
        """The same with what its placement really costs."""
        return replace(self, charge=charge)
