"""A gang that stays pending in this decision, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fairlead.engine.types.reasons import Code, PreemptionBlocker, Reason

if TYPE_CHECKING:
    from fairlead.engine.placement.model import PlacementResult
    from fairlead.engine.types.model import GangRequest, Reservation


@dataclass(slots=True)
class Unschedulable:
    """What is known of a gang that found no place. It is explained in full when the decision is over."""

    outcome: PlacementResult
    blockers: tuple[PreemptionBlocker, ...] = ()
    reserved: Reservation | None = None


Verdict = Reason | Unschedulable


class LeftPending(NamedTuple):
    """`position`: in the order in which gangs were considered, from 1; 0 where this one was not."""

    gang: GangRequest
    queue: str | None
    position: int
    why: Verdict


def holds_for_equals(verdict: Verdict) -> bool:
    """Whether the next gang of the same equivalence class gets the same verdict: not where something is held for this one."""
    if isinstance(verdict, Unschedulable):
        return verdict.reserved is None
    return verdict.code is Code.OVER_LIMIT
