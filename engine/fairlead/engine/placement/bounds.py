"""How much of something there can be at most: quick bounds that rule a placement out before it is searched for.

Exists because proving a "no" by search is dear, and most are plain: too few devices, too few places. A bound may be too
high, never too low, where devices are local to their nodes; elsewhere it is not asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fairlead.engine.inventory.device import Device
    from fairlead.engine.placement.node_info import CandidateNode, ScoredNodes
    from fairlead.engine.placement.shapes import PlacementUnit, UnitShape

MANY = 1 << 20


def counts(units: Iterable[PlacementUnit]) -> dict[UnitShape, int]:
    """How many units there are of each shape."""
    found: dict[UnitShape, int] = {}
    for unit in units:
        found[unit.shape] = found.get(unit.shape, 0) + 1
    return found


def units_at_most(spots: ScoredNodes) -> int:
    """Units of the spots' shape that all its nodes take now; exact for plain shapes."""
    return sum(_units_on(site, spots) for site in spots.ranked())


def too_many(units: Sequence[PlacementUnit], options: Callable[[UnitShape], ScoredNodes]) -> bool:
    """Whether the units surely do not fit: those of one shape, or all of them by the number of devices."""
    wanted = counts(units)
    for shape, count in wanted.items():
        room = 0
        spots = options(shape)
        for site in spots.ranked():
            room += _units_on(site, spots)
            if room >= count:
                break
        if room < count:
            return True
    free: set[Device] = set()
    for shape in wanted:
        spots = options(shape)
        for claim in shape.claims:
            for ask in (ask for asks in claim.alternatives for ask in asks):
                for site in spots.among:
                    found = spots.sites.candidates(site, ask)
                    if found.consumption or ask.admin:
                        return False  # shared or not taken at all: devices say nothing
                    free.update(device for device in found.devices if spots.ledger.free(device))
    return sum(unit.shape.least for unit in units) > len(free)


def _units_on(site: CandidateNode, spots: ScoredNodes) -> int:
    """By devices and by the pods' requests."""
    shape = spots.shape
    most = MANY
    for claim in shape.claims:
        for asks in claim.alternatives:
            here = 0
            for ask in asks:
                found = spots.sites.candidates(site, ask)
                if found.consumption or ask.admin:
                    here = MANY
                else:
                    here = max(here, 1 if ask.all else spots.free(ask, found) // ask.count)
            most = min(most, here)
    if not site.node.allocatable:
        return most
    load = spots.ledger.loads.get(site.node, {})
    for resource, value in shape.needs[0].requests if shape.needs else ():
        left = site.node.allocatable.get(resource, 0) - load.get(resource, 0)
        if not spots.ledger.empty:
            left -= site.node.used.get(resource, 0)
        most = min(most, max(0, left) // value)
    return most
