"""Where the parts of a gang ended up, or how far it got: the words that placement, plan and reasons share.

Exists so that they need not import one another. Holds no logic.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fairlead.engine.allocator.model import Pick, SearchResult, SearchStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.engine.placement.node_info import CandidateNode
    from fairlead.engine.placement.shapes import PlacementUnit


@dataclass(slots=True, eq=False)
class UnitPlacement:
    """A unit on its node, with what each of its claims got."""

    unit: PlacementUnit
    site: CandidateNode
    picks: list[list[Pick]]
    fixed: bool = False  # other pods rely on these very devices


@dataclass(slots=True)
class PlacementResult:
    """`placed` is whole or empty. Otherwise: how far it got, and what stopped it."""

    verdict: SearchStatus
    placed: list[UnitPlacement] = field(default_factory=list)
    members_placed: int = 0  # before it gave up
    stuck: PlacementUnit | None = None  # the unit that found no node
    closest: CandidateNode | None = None
    short: SearchResult | None = None


class TopologyDomain:
    """Some of the nodes: those of one topology domain, or of a few. Compared by identity."""

    __slots__ = ("name", "sites")

    def __init__(self, name: str, sites: Sequence[CandidateNode]) -> None:
        self.name = name
        self.sites = sites
