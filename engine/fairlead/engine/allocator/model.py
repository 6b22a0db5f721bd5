"""The values that a search for devices takes and returns. No logic."""

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


class Pick(NamedTuple):
    """A device chosen for a request, and the capacity that the request consumes of it."""

    request: CompiledRequest
    device: Device
    consumption: Consumption


@dataclass(frozen=True, slots=True)
class ClaimCandidates:
    """A claim on one node: per request, the candidate devices there, and their order of preference."""

    claim: CompiledClaim
    candidates: Callable[[CompiledRequest], Candidates]
    prefer: Callable[[CompiledRequest, Candidates], Sequence[Device]]


@dataclass(slots=True)
class SearchResult:
    """`picks` has one list per claim, in order. When not FOUND, `short` is the request that got furthest and fell short."""

    status: SearchStatus
    picks: list[list[Pick]] = field(default_factory=list)
    short: CompiledRequest | None = None
    picked: int = 0  # devices that were found for `short`
    detail: str = ""
