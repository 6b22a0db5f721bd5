"""Of a gang that has a place, and none where its members' devices are aligned: which values come nearest, and which are in the way."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from fairlead.api.texts import counted
from fairlead.engine.placement.model import NodeScope
from fairlead.engine.placement.topology.value_sets import multiset, order, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairlead.engine.inventory.device import Values
    from fairlead.engine.placement.search.placer import Placer
    from fairlead.engine.placement.shapes import PlacementUnit
    from fairlead.engine.placement.topology.alignment import Nearest
    from fairlead.engine.placement.topology.domain_search import TopologyDomains
    from fairlead.engine.types.gangs import GangRequest

VALUES_MAX = 8  # that are named


class AlignmentCounter:
    """Counts in the ledger of a decision, or in that of the empty cluster."""

    def __init__(self, now: TopologyDomains, empty: Callable[[], tuple[Placer, TopologyDomains]]) -> None:
        self._now = now
        self._empty = empty

    def missing(self, gang: GangRequest, units: Sequence[PlacementUnit], *, ever: bool | None) -> str:
        """One phrase, such as `gpu.fairlead.dev/rail 0, 1 of request gpu can be had by 5 of its 8 pods, no other values by more;
        in use elsewhere: 0 on 3 nodes, 1 on 2 nodes`.
        """
        domains = self._now
        if ever is False:
            placer, domains = self._empty()
            placer.begin()
        found = domains.alignment.nearest(gang, units, NodeScope.of(gang, spread=False))
        if found is None:
            return f"no values of {gang.align} serve all of its pods together"
        pods = f"{found.units} of its {found.wanted} pods"
        if found.wanted == 1:
            pods = "its pod" if found.units else "none of its pods"
        attribute, request = found.part.entry.attribute, found.part.request
        joins = "those of its other members" if gang.placed_members else "no other values by more"
        missing = _in_use(domains, units, found)
        return f"{attribute} {shown(found.values)} of request {request} can be had by {pods}, {joins}{missing}"


def _in_use(domains: TopologyDomains, units: Sequence[PlacementUnit], found: Nearest) -> str:
    """Values of devices that would serve and are in use, with on how many nodes."""
    wanted = {values for values, _ in found.values}
    requests = dict.fromkeys(
        each for unit in units for each in unit.shape.requests if each.request == found.part.request
    )
    nodes: Counter[Values] = Counter()
    for node in domains.placer.node_snapshot.all:
        there = {
            values
            for request in requests
            for device in domains.placer.node_snapshot.candidates(node, request).devices
            if (values := device.values(found.part.entry.attribute)) in wanted
            and not device.shared
            and not domains.placer.ledger.free(device)
        }
        nodes.update(there)
    if not nodes:
        return ""
    listed = [
        f"{shown(multiset({values: 1}))} on {counted(nodes[values], 'node')}" for values in sorted(nodes, key=order)
    ]
    more = f" and {len(listed) - VALUES_MAX} more" if len(listed) > VALUES_MAX else ""
    return f"; in use: {', '.join(listed[:VALUES_MAX])}{more}"
