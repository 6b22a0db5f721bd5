"""What a search is given and what it answers: the allocator's own few words.

Exists so that search, placement and results share them without importing one another. Holds no logic.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairlead.engine.allocator.candidates import Candidates
    from fairlead.engine.allocator.requests import CompiledClaim, CompiledRequest
    from fairlead.engine.inventory.device import Device
    from fairlead.engine.inventory.ledger import Consumption


class SearchStatus(enum.Enum):
    FOUND = "found"
    IMPOSSIBLE = "impossible"
    BUDGET_ENDED = "budget ended"


@dataclass(slots=True)
class StepBudget:
    """Steps left, shared by all searches for one gang. One step is one device tried."""

    steps: int
    ended: bool = False


class Pick(NamedTuple):
    """One device for one request."""

    ask: CompiledRequest
    device: Device
    consumption: Consumption


@dataclass(frozen=True, slots=True)
class ClaimCandidates:
    """A claim and where it may look: for each of its asks, the candidates of its node in order of preference."""

    claim: CompiledClaim
    candidates: Callable[[CompiledRequest], Candidates]
    prefer: Callable[[CompiledRequest, Candidates], Sequence[Device]]


@dataclass(slots=True)
class SearchResult:
    """`picks` has one list per offer, in order. When not found, `short` names the ask that got furthest and fell short."""

    verdict: SearchStatus
    picks: list[list[Pick]] = field(default_factory=list)
    short: CompiledRequest | None = None
    got: int = 0  # devices that the short ask had found
    detail: str = ""
