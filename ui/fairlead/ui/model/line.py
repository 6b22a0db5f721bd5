"""One line of `fairlead gangs`: what is shown of a gang."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from fairlead.kube.containment import computed, described
from fairlead.kube.resources import Raw


@dataclass(frozen=True, kw_only=True)
class Line:
    namespace: str
    name: str
    phase: str
    queue: str
    position: int | None
    size: int
    members: int
    ready: int
    nodes: tuple[str, ...]
    age_s: float
    reason: str
    evicting: str  # Evicting or Evicted, where `why` is that condition's message
    why: str  # one sentence
    forecast: str = ""  # of the start: times, or that there is none


UNKNOWN = "Unknown"  # the phase of a gang whose line cannot be made


def line_of(make: Callable[[], Line], raw: Raw) -> Line:
    """What `make` gives, or where that raises a line that names the gang and says so: a list of all shows the others."""
    return computed(make, partial(_unreadable, raw))


def _unreadable(raw: Raw, error: Exception) -> Line:
    meta = raw["metadata"]
    why = f"it cannot be shown ({described(error)}); the others are"
    return Line(
        namespace=meta.get("namespace", ""), name=meta["name"], phase=UNKNOWN, queue="", position=None, size=0, members=0, ready=0,
        nodes=(), age_s=0.0, reason="CannotBeShown", evicting="", why=why,
    )  # fmt: skip
