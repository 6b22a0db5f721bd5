"""A cause that was found: what is wrong, by which objects that is seen, how much it stops, and the next step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from fairlead.cli.health.seen import Seen


class Stops(IntEnum):
    """How much a cause stops; what stops more is named first."""

    EVERYTHING = 0
    SOME = 1
    NOTHING = 2  # worth knowing, and no cause of what waits now

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, kw_only=True)
class Finding:
    """`code` is one word for programs, `what` a sentence, `next_step` a sentence or a command."""

    code: str
    stops: Stops
    what: str
    next_step: str
    evidence: tuple[str, ...] = ()

    def structured(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "stops": str(self.stops),
            "what": self.what,
            "evidence": list(self.evidence),
            "nextStep": self.next_step,
        }


Cause = Callable[[Seen], Iterable[Finding]]
