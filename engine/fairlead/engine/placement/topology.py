"""Gangs that want to stay together: one topology domain if required, as few as possible if preferred.

Exists apart from placement because a domain is only a smaller cluster to place into. A domain is the set of nodes with one
value of a node label, or (where no node has such a label) of a device attribute, such as the clique of a multi-node NVLink
fabric; other nodes belong to none.
Order: the smallest domain that seems to hold the gang first (larger ones stay whole for larger gangs), ties by value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fairlead.api import names
from fairlead.engine.allocator.model import SearchStatus, StepBudget
from fairlead.engine.allocator.requests import InvalidClaimError
from fairlead.engine.placement.bounds import counts, units_at_most
from fairlead.engine.placement.model import PlacementResult, TopologyDomain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.engine.placement.node_info import CandidateNode
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
    """The domains of each label, made when first asked for; the same objects until nodes come, go or change."""

    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self._known: dict[str, dict[str, TopologyDomain]] = {}
        self._unions: dict[tuple[str, tuple[str, ...]], TopologyDomain] = {}
        self._of_site: dict[str, dict[CandidateNode, str]] = {}
        self._membership = -1

    def of(self, label: str) -> dict[str, TopologyDomain]:
        if self._membership != self._placer.sites.membership:
            self._membership = self._placer.sites.membership
            if self._known:
                self._known.clear()
                self._unions.clear()
                self._of_site.clear()
                self._placer.forget_spots()
        found = self._known.get(label)
        if found is None:
            sites = self._placer.sites.all
            of_site = _by_label(label, sites) or _by_attribute(label, sites)
            groups: dict[str, list[CandidateNode]] = {}
            for site, value in of_site.items():
                groups.setdefault(value, []).append(site)
            self._of_site[label] = of_site
            found = self._known[label] = {value: TopologyDomain(value, groups[value]) for value in sorted(groups)}
        return found

    def place(
        self, gang: GangRequest, units: Sequence[PlacementUnit], budget: StepBudget, *, spread: bool
    ) -> PlacementResult:
        """As Placer.place, within the gang's topology. Raises InvalidClaimError for one that can't be read."""
        topology = parse(gang.topology)
        avoid = frozenset(gang.avoid)
        if topology is None:
            return self._placer.place(units, budget, spread=spread, avoid=avoid)
        domains = self.of(topology.label)
        ordered = self._ordered(gang, topology, domains, units, spread=spread, avoid=avoid)
        best = PlacementResult(SearchStatus.IMPOSSIBLE)
        for domain in ordered:
            # A domain where the search is long must not use up what the next one needs.
            part = StepBudget(max(budget.steps // 4, min(budget.steps, STEPS_MIN)))
            outcome = self._placer.place(units, part, spread=spread, avoid=avoid, among=domain)
            if outcome.verdict is SearchStatus.FOUND:
                return outcome
            best = _better(best, outcome)
        if topology.mode == "required":
            return best
        return self._fewest(topology.label, ordered, units, budget, spread=spread, avoid=avoid)

    def _ordered(
        self,
        gang: GangRequest,
        topology: Topology,
        domains: dict[str, TopologyDomain],
        units: Sequence[PlacementUnit],
        *,
        spread: bool,
        avoid: frozenset[str],
    ) -> list[TopologyDomain]:
        """TopologyDomains to try one by one: where the gang runs already, or those that may hold it, tightest first."""
        sites = self._placer.sites.by_name
        of_site = self._of_site[topology.label]
        taken = {of_site.get(sites[name]) for name in gang.placed_nodes if name in sites}
        known = [domains[value] for value in sorted(value for value in taken if value is not None)]
        if known and topology.mode == "required":
            return known if len(taken) == 1 else []
        rooms: dict[TopologyDomain, float] = {}
        for domain in domains.values():
            rooms[domain] = min(
                self._room(shape, domain, spread=spread, avoid=avoid) / count for shape, count in counts(units).items()
            )
        fitting = sorted(
            (domain for domain in domains.values() if rooms[domain] >= 1 and domain not in known),
            key=lambda domain: (-rooms[domain] if spread else rooms[domain], domain.name),
        )
        others = sorted(
            (domain for domain in domains.values() if rooms[domain] < 1 and domain not in known),
            key=lambda domain: (-rooms[domain], domain.name),
        )
        return [*known, *fitting, *others]

    def _room(self, shape: UnitShape, domain: TopologyDomain, *, spread: bool, avoid: frozenset[str]) -> int:
        return units_at_most(self._placer.spots(shape, spread=spread, avoid=avoid, among=domain))

    def _fewest(
        self,
        label: str,
        ordered: list[TopologyDomain],
        units: Sequence[PlacementUnit],
        budget: StepBudget,
        *,
        spread: bool,
        avoid: frozenset[str],
    ) -> PlacementResult:
        """The roomiest domains together, two at first, then twice as many, at last every node."""
        shapes = counts(units)
        roomiest = sorted(
            ordered,
            key=lambda domain: (
                -sum(self._room(shape, domain, spread=spread, avoid=avoid) for shape in shapes),
                domain.name,
            ),
        )
        size = 2
        while size < len(roomiest):
            chosen = roomiest[:size]
            key = (label, tuple(sorted(domain.name for domain in chosen)))
            union = self._unions.get(key)
            if union is None:
                union = self._unions[key] = TopologyDomain(
                    "+".join(key[1]), [site for domain in chosen for site in domain.sites]
                )
            outcome = self._placer.place(units, budget, spread=spread, avoid=avoid, among=union)
            if outcome.verdict is SearchStatus.FOUND:
                return outcome
            size *= 2
        return self._placer.place(units, budget, spread=spread, avoid=avoid)


def _by_label(label: str, sites: Sequence[CandidateNode]) -> dict[CandidateNode, str]:
    return {site: site.node.labels[label] for site in sites if label in site.node.labels}


def _by_attribute(name: str, sites: Sequence[CandidateNode]) -> dict[CandidateNode, str]:
    """Nodes whose devices, as far as they have the attribute, all have one value of it: the clique of an NVL72 rack."""
    found: dict[CandidateNode, str] = {}
    for site in sites:
        values = {value for device in site.devices.devices for _, value in device.values(name)}
        if len(values) == 1:
            found[site] = str(values.pop())
    return found


def _better(best: PlacementResult, other: PlacementResult) -> PlacementResult:
    """The more telling of two failures: an undecided one, else the one that got further."""
    if other.verdict is SearchStatus.BUDGET_ENDED and best.verdict is not SearchStatus.BUDGET_ENDED:
        return other
    if best.verdict is SearchStatus.BUDGET_ENDED and other.verdict is not SearchStatus.BUDGET_ENDED:
        return best
    return other if other.members_placed > best.members_placed or best.stuck is None else best
