"""What the apiserver keeps of a ResourceSlice, where a feature gate that is off makes it drop fields in silence. Pure.

Three groups of fields: counters of devices that overlap, taints, shares of a device. What is published follows from `Kept`
(slices.py), never the other way round. It is found out in two ways: slices that are created as a dry run (trial.py), and each slice
that was stored (keeping.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Final, Literal

from fairlead.api.withheld import GROUPS, Group
from fairlead.kube import releases

# "split": counter sets in slices of their own (1.35 and later); "combined": beside the devices that use them (1.34).
Layout = Literal["split", "combined"]

NEEDS: Final[Mapping[Group, releases.Need]] = {
    "counters": releases.need("partitionable-devices"),
    "taints": releases.need("device-taints"),
    "shares": releases.need("consumable-capacity"),
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """`counters`: the layout in which they are kept; None: not at all, so that no two devices may overlap."""

    counters: Layout | None
    taints: bool
    shares: bool

    def has(self, group: Group) -> bool:
        return self.counters is not None if group == "counters" else bool(getattr(self, group))

    def without(self, groups: Collection[Group]) -> Kept:
        return Kept(
            counters=None if "counters" in groups else self.counters,
            taints=self.taints and "taints" not in groups,
            shares=self.shares and "shares" not in groups,
        )

    def lacking(self, wanted: Collection[Group]) -> tuple[Group, ...]:
        return tuple(group for group in GROUPS if group in wanted and not self.has(group))


ALL: Final = Kept(counters="split", taints=True, shares=True)
UNKNOWN: Final = Kept(counters=None, taints=True, shares=True)
"""Before anything was found out: no device overlaps. Lost taints and shares show on the first slice that has them."""
