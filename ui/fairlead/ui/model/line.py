"""One line of `fairlead gangs`: what is shown of a gang."""

from __future__ import annotations

from dataclasses import dataclass


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
