"""What the ledger says of a window, as pages show it: the second argument of their models, beside `Facts`. Made by `fairlead.ui.reading`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fairlead.history.ledger.entries import Gap, Span, Wait


@dataclass(frozen=True, kw_only=True, eq=False)
class Past:
    """`missing`: why nothing is known of it, and what to do; "" where something is. `known_us`: the part of the window that the ledger knows.

    Times are unix microseconds. `waits` are of gangs that were admitted within the window. `made`: what models make of it and keep,
    since one answer of the ledger serves many pages.
    """

    spans: tuple[Span, ...] = ()
    waits: tuple[Wait, ...] = ()
    gaps: tuple[Gap, ...] = ()
    known_us: tuple[int, int] | None = None
    missing: str = ""
    made: dict[Any, Any] = field(default_factory=dict, repr=False)
