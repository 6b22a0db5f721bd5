"""Where the units of a gang are placed, or how far placement got: values that placement, plan and explain share. No logic."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from fairlead.engine.allocator.model import Pick, SearchResult, SearchStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.engine.placement.candidate_nodes import CandidateNode
    from fairlead.engine.placement.shapes import PlacementUnit
    from fairlead.engine.types.gangs import GangRequest
    from fairlead.engine.types.reasons import NodeShortage


@dataclass(slots=True, eq=False)
class UnitPlacement:
    """A unit on its node, with the picks of each of its claims."""

    unit: PlacementUnit
    node: CandidateNode
    picks: list[list[Pick]]
    fixed: bool = False  # other units depend on these very devices


@dataclass(slots=True)
class PlacementResult:
    """`placed` is the whole gang or empty. When empty: how far placement got, and what stopped it."""

    status: SearchStatus
    placed: list[UnitPlacement] = field(default_factory=list)
    members_placed: int = 0  # before it gave up
    unplaced: PlacementUnit | None = None  # the unit that fits no node
    closest: CandidateNode | None = None
    short: SearchResult | None = None
    beside: tuple[NodeShortage, ...] = ()  # nodes that terms about other pods ruled out for `unplaced` then
    rule: str = ""  # the annotation without whose rule it has a place: MODELS, ALIGN
    starved: bool = False  # its namespace had no steps left: no verdict on equal gangs of others


def better(best: PlacementResult, other: PlacementResult) -> PlacementResult:
    """The more informative of two failures: an undecided one, else the one that got further."""
    if other.status is SearchStatus.BUDGET_ENDED and best.status is not SearchStatus.BUDGET_ENDED:
        return other
    if best.status is SearchStatus.BUDGET_ENDED and other.status is not SearchStatus.BUDGET_ENDED:
        return best
    return other if other.members_placed > best.members_placed or best.unplaced is None else best


class NodeScope(NamedTuple):
    """Which nodes a gang may use, and which of them first."""

    spread: bool = False  # the emptiest node first; else the fullest that fits
    avoid: frozenset[str] = frozenset()  # names of nodes that come last
    among: TopologyDomain | None = None  # None: all nodes
    refused: frozenset[str] = frozenset()  # names of nodes that are not used

    @classmethod
    def of(cls, gang: GangRequest, *, spread: bool, among: TopologyDomain | None = None) -> NodeScope:
        refused = frozenset([each.node for each in gang.refused]) if gang.refused else _NONE
        return cls(spread, frozenset(gang.avoid), among, refused)


_NONE: frozenset[str] = frozenset()


class TopologyDomain:
    """Some of the nodes: those of one topology domain, or of a few. Compared by identity."""

    __slots__ = ("name", "nodes")

    def __init__(self, name: str, nodes: Sequence[CandidateNode]) -> None:
        self.name = name
        self.nodes = nodes
