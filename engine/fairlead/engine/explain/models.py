"""What each model has for a gang that has a place on several models and none on one.

Counted in devices, now or on the empty cluster, and in pods where free devices are enough but not together where pods need them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.placement.capacity.bounds import counts
from fairlead.engine.placement.model import NodeScope

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairlead.engine.allocator.requests import CompiledRequest
    from fairlead.engine.placement.candidate_nodes import CandidateNode
    from fairlead.engine.placement.search.placer import Placer
    from fairlead.engine.placement.shapes import PlacementUnit
    from fairlead.engine.placement.topology.domain_search import TopologyDomains
    from fairlead.engine.placement.topology.models import Choice
    from fairlead.engine.types.gangs import GangRequest

MODELS_MAX = 6  # that are named


class ModelCounter:
    """Counts in the ledger of a decision, or in that of the empty cluster."""

    def __init__(self, now: TopologyDomains, empty: Callable[[], tuple[Placer, TopologyDomains]]) -> None:
        self._now = now
        self._empty = empty

    def missing(self, gang: GangRequest, units: Sequence[PlacementUnit], *, ever: bool | None) -> str:
        """One phrase, such as `16 of one model wanted, NVIDIA H100 80GB HBM3 has 8 free, NVIDIA A100-SXM4-80GB has 12 free`."""
        domains, free = self._now, " free"
        if ever is False:
            placer, domains = self._empty()
            placer.begin()
            free = ""
        choices = domains.models.choices(gang, units)
        if choices is None:
            return ""
        wanted = max(domains.models.wanted(units).values(), default=0)
        joins = "that of its other members" if gang.placed_claims else "one model"
        found: dict[str, str] = {}
        for choice in choices.of:
            name = " + ".join(dict.fromkeys(map(str, choice.models)))
            devices, pods = self._devices(domains, choice), self._pods(domains, gang, choice)
            few = f", but together for {pods} of its {len(gang.members)} pods" if devices >= wanted else ""
            found.setdefault(name, f"{name} has {devices}{free}{few}")
        named = list(found.values())
        more = f", and {len(named) - MODELS_MAX} more" if len(named) > MODELS_MAX else ""
        return f"{wanted} of {joins} wanted: {', '.join(named[:MODELS_MAX])}{more}"

    def _devices(self, domains: TopologyDomains, choice: Choice) -> int:
        """The model's devices on all nodes, for whichever of its requests there are most."""
        requests = dict.fromkeys(
            each for unit in choice.units for each in unit.shape.requests if each.filter.model is not None
        )
        nodes = domains.placer.node_snapshot.all
        return max((sum(_free(domains, node, each) for node in nodes) for each in requests), default=0)

    def _pods(self, domains: TopologyDomains, gang: GangRequest, choice: Choice) -> int:
        scope = NodeScope.of(gang, spread=False)
        return sum(
            min(count, sum(domains.capacity.by_node(shape, scope).values())) * len(shape.needs)
            for shape, count in counts(choice.units).items()
        )


def _free(domains: TopologyDomains, node: CandidateNode, request: CompiledRequest) -> int:
    """Devices of the node that the request could have at once; of partitions as many as fit beside one another."""
    ledger, found = domains.placer.ledger, domains.placer.node_snapshot.candidates(node, request)
    if found.plain:
        return sum(map(ledger.free, found.devices))
    taken = [
        (device, consumption)
        for device in found.devices
        if ledger.take(device, consumption := found.consumption.get(device, ()))
    ]
    for device, consumption in reversed(taken):
        ledger.release(device, consumption)
    return len(taken)
