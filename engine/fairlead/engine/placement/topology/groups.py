"""The units of a gang in groups: subgroups, which are placed as one each, or every unit by itself.

A subgroup is what members call by one name. Units are pods that share a claim, so they are on one node: a unit with members of two
subgroups makes one group of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairlead.engine.placement.capacity.bounds import counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fairlead.engine.placement.shapes import PlacementUnit, UnitShape
    from fairlead.engine.types.gangs import GangRequest

NO_RANK = 1 << 62


@dataclass(frozen=True, slots=True, eq=False)
class UnitGroup:
    """Units that belong together. `placed`: nodes on which members of it run already. `names`: of its subgroups."""

    units: tuple[PlacementUnit, ...]
    names: tuple[str, ...] = ()
    placed: tuple[str, ...] = ()

    @property
    def kind(self) -> tuple[int, ...]:
        """Equal for groups that ask for the same."""
        return tuple(sorted(unit.shape.number for unit in self.units))

    @property
    def least(self) -> int:
        """Devices that it takes at least."""
        return sum(unit.shape.least for unit in self.units)

    @property
    def rank(self) -> int:
        """The lowest of its members."""
        return min((rank_of(unit) for unit in self.units), default=NO_RANK)

    @property
    def counts(self) -> dict[UnitShape, int]:
        """How many units there are of each shape."""
        return counts(self.units)


def rank_of(unit: PlacementUnit) -> int:
    """The lowest of its members; `NO_RANK` where none has one."""
    return min((member.rank for member in unit.members if member.rank is not None), default=NO_RANK)


def one_by_one(units: Iterable[PlacementUnit]) -> list[UnitGroup]:
    """Every unit by itself, those of low rank first; otherwise as given."""
    return [UnitGroup((unit,)) for unit in sorted(units, key=rank_of)]


def all_units(groups: Iterable[UnitGroup]) -> list[PlacementUnit]:
    return [unit for group in groups for unit in group.units]


def by_subgroup(gang: GangRequest, units: Sequence[PlacementUnit]) -> list[UnitGroup]:
    """By the names that members give; units without one are groups by themselves. Those of low rank first."""
    number_of: dict[str, int] = {}
    found: dict[int, list[PlacementUnit]] = {}
    names: dict[int, set[str]] = {}
    for number, unit in enumerate(units):
        own = {member.subgroup for member in unit.members if member.subgroup}
        together = sorted({number_of[name] for name in own if name in number_of})
        into = together[0] if together else number
        for other in together[1:]:
            found[into] += found.pop(other)
            names[into] |= names.pop(other)
        found.setdefault(into, []).append(unit)
        names.setdefault(into, set()).update(own)
        number_of.update(dict.fromkeys(names[into], into))
    groups = [
        UnitGroup(
            tuple(sorted(found[number], key=rank_of)),
            tuple(sorted(names[number])),
            tuple(sorted(node for name, node in gang.placed_subgroups if name in names[number])),
        )
        for number in sorted(found)
    ]
    return sorted(groups, key=lambda group: group.rank)
