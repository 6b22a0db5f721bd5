"""Where the MIG devices of a layout lie on a GPU: counts of profiles turned into placements. Pure.

NVML can place instances itself, but its choice depends on the order of creation, and a layout that fits may not be found.
Here every placement is tried, large profiles first, so that a layout which the GPU can have is always found, and always the
same one.
Example: 3g.40gb, 2g.20gb and two 1g.10gb on an H100. 3g.40gb at 0 leaves the slices 4 to 7, of which 1g.10gb cannot have the
last: so it lies at 4, 2g.20gb at 0, and 1g.10gb at 2 and 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairlead.driver.backend import geometry
from fairlead.driver.backend.geometry import Placed
from fairlead.driver.backend.types import MigProfile


def place(profiles: Sequence[MigProfile], counts: Mapping[str, int]) -> tuple[Placed, ...] | None:
    """Placements of all, sorted by start; None where they do not fit together. Every name is one of `profiles`."""
    by_name = {profile.name: profile for profile in profiles}
    wanted = [by_name[name] for name, count in counts.items() for _ in range(count)]
    wanted.sort(key=lambda profile: (-profile.memory_slices, -profile.compute_slices, profile.name))
    if sum(profile.compute_slices for profile in wanted) > geometry.compute_slices(profiles):
        return None
    found = _search(profiles, wanted, [])
    return None if found is None else tuple(sorted(found, key=lambda placed: placed[1]))


def _search(
    profiles: Sequence[MigProfile], wanted: Sequence[MigProfile], placed: Sequence[Placed]
) -> Sequence[Placed] | None:
    if not wanted:
        return placed
    profile, *rest = wanted
    # Equal profiles are placed from left to right: another order of them is the same layout.
    after = max((start for other, start in placed if other.name == profile.name), default=-1)
    for start in profile.starts:
        if start > after and geometry.fits(profiles, placed, (profile, start)):
            found = _search(profiles, rest, [*placed, (profile, start)])
            if found is not None:
                return found
    return None
