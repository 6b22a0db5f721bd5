"""Gangs with a topology: in one topology domain if required, in as few as possible if preferred.

A domain is a smaller cluster to place into: the set of nodes with one value of a node label, or (where no node has such a
label) of a device attribute, such as the clique of a multi-node NVLink fabric; other nodes belong to none.
Order: the smallest domain that is likely to hold the gang first (larger ones stay whole for larger gangs), ties by value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fairlead.api import names
from fairlead.engine.allocator.model import SearchStatus, StepBudget
from fairlead.engine.allocator.requests import InvalidClaimError
from fairlead.engine.placement.bounds import counts, units_at_most
from fairlead.engine.placement.model import NodeScope, PlacementResult, TopologyDomain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.engine.placement.candidate_nodes import CandidateNode
    from fairlead.engine.placement.placer import Placer
    from fairlead.engine.placement.shapes import PlacementUnit, UnitShape
    from fairlead.engine.types.gangs import GangRequest


STEPS_MIN = 2_000  # for a domain, of those that the gang has


@dataclass(frozen=True, slots=True)
class Topology:
    mode: Literal["required", "preferred"]
    label: str


def parse(text: str | None) -> Topology | None:
    """The annotation's text. Raises InvalidClaimError."""
    if not text:
        return None
    mode, _, label = text.partition(":")
    if mode == "required" and label:
        return Topology("required", label.strip())
    if mode == "preferred" and label:
        return Topology("preferred", label.strip())
    raise InvalidClaimError(
        f"annotation {names.TOPOLOGY}: {text!r} is not understood; write required:<node label> or preferred:<node label> (or a device attribute in the label's place)"
    )


class TopologyDomains:
    """The domains of each label, made at first use; the same objects until nodes come, go or change."""

    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self._known: dict[str, dict[str, TopologyDomain]] = {}
        self._joined: dict[tuple[str, tuple[str, ...]], TopologyDomain] = {}
        self._domain_of: dict[str, dict[CandidateNode, str]] = {}
        self._membership = -1

    def of(self, label: str) -> dict[str, TopologyDomain]:
        if self._membership != self._placer.node_snapshot.membership:
            self._membership = self._placer.node_snapshot.membership
            if self._known:
                self._known.clear()
                self._joined.clear()
                self._domain_of.clear()
                self._placer.forget_scored_nodes()
        found = self._known.get(label)
        if found is None:
            nodes = self._placer.node_snapshot.all
            domain_of = _by_label(label, nodes) or _by_attribute(label, nodes)
            groups: dict[str, list[CandidateNode]] = {}
            for node, value in domain_of.items():
                groups.setdefault(value, []).append(node)
            self._domain_of[label] = domain_of
            found = self._known[label] = {value: TopologyDomain(value, groups[value]) for value in sorted(groups)}
        return found

    def place(
        self, gang: GangRequest, units: Sequence[PlacementUnit], budget: StepBudget, *, spread: bool
    ) -> PlacementResult:
        """As Placer.place, within the gang's topology. Raises InvalidClaimError for one that can't be read."""
        topology = parse(gang.topology)
        scope = NodeScope.of(gang, spread=spread)
        if topology is None:
            return self._placer.place(units, budget, scope)
        ordered = self._ordered(gang, topology, units, scope)
        best = PlacementResult(SearchStatus.IMPOSSIBLE)
        for domain in ordered:
            # A long search in one domain must not use up the steps of the next.
            part = StepBudget(max(budget.steps // 4, min(budget.steps, STEPS_MIN)))
            result = self._placer.place(units, part, scope._replace(among=domain))
            if result.status is SearchStatus.FOUND:
                return result
            best = _better(best, result)
        if topology.mode == "required":
            return best
        return self._fewest(topology.label, ordered, units, budget, scope)

    def _ordered(
        self, gang: GangRequest, topology: Topology, units: Sequence[PlacementUnit], scope: NodeScope
    ) -> list[TopologyDomain]:
        """Domains to try in turn: those where the gang runs already, then those likely to hold it, tightest first."""
        domains = self.of(topology.label)
        by_name = self._placer.node_snapshot.by_name
        domain_of = self._domain_of[topology.label]
        taken = {domain_of.get(by_name[name]) for name in gang.placed_nodes if name in by_name}
        known = [domains[value] for value in sorted(value for value in taken if value is not None)]
        if known and topology.mode == "required":
            return known if len(taken) == 1 else []
        rooms: dict[TopologyDomain, float] = {}
        for domain in domains.values():
            rooms[domain] = min(self._room(shape, domain, scope) / count for shape, count in counts(units).items())
        fitting = sorted(
            (domain for domain in domains.values() if rooms[domain] >= 1 and domain not in known),
            key=lambda domain: (-rooms[domain] if scope.spread else rooms[domain], domain.name),
        )
        others = sorted(
            (domain for domain in domains.values() if rooms[domain] < 1 and domain not in known),
            key=lambda domain: (-rooms[domain], domain.name),
        )
        return [*known, *fitting, *others]

    def _room(self, shape: UnitShape, domain: TopologyDomain, scope: NodeScope) -> int:
        return units_at_most(self._placer.scored_nodes(shape, scope._replace(among=domain)))

    def _fewest(
        self,
        label: str,
        ordered: list[TopologyDomain],
        units: Sequence[PlacementUnit],
        budget: StepBudget,
        scope: NodeScope,
    ) -> PlacementResult:
        """The domains with most room together: two, then twice as many, at last every node."""
        shapes = counts(units)
        most_room = sorted(
            ordered,
            key=lambda domain: (-sum(self._room(shape, domain, scope) for shape in shapes), domain.name),
        )
        size = 2
        while size < len(most_room):
            chosen = most_room[:size]
            key = (label, tuple(sorted(domain.name for domain in chosen)))
            joined = self._joined.get(key)
            if joined is None:
                joined = self._joined[key] = TopologyDomain(
                    "+".join(key[1]), [node for domain in chosen for node in domain.nodes]
                )
            result = self._placer.place(units, budget, scope._replace(among=joined))
            if result.status is SearchStatus.FOUND:
                return result
            size *= 2
        return self._placer.place(units, budget, scope)


def _by_label(label: str, nodes: Sequence[CandidateNode]) -> dict[CandidateNode, str]:
    return {node: node.info.labels[label] for node in nodes if label in node.info.labels}


def _by_attribute(name: str, nodes: Sequence[CandidateNode]) -> dict[CandidateNode, str]:
    """Nodes whose devices, as far as they have the attribute, all have one value of it: the clique of an NVL72 rack."""
    found: dict[CandidateNode, str] = {}
    for node in nodes:
        values = {value for device in node.devices.devices for _, value in device.values(name)}
        if len(values) == 1:
            found[node] = str(values.pop())
    return found


def _better(best: PlacementResult, other: PlacementResult) -> PlacementResult:
    """The more informative of two failures: an undecided one, else the one that got further."""
    if other.status is SearchStatus.BUDGET_ENDED and best.status is not SearchStatus.BUDGET_ENDED:
        return other
    if best.status is SearchStatus.BUDGET_ENDED and other.status is not SearchStatus.BUDGET_ENDED:
        return best
    return other if other.members_placed > best.members_placed or best.unplaced is None else best
