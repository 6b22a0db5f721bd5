"""The arithmetic of MIG: which placements exclude one another.

A GPU is a row of memory slices and a budget of compute slices. An instance takes `memory_slices` of the row from its
start and `compute_slices` of the budget. Simulated hardware and the counters in slices share this geometry. Pure; knows
no devices, only profiles and starts.
Example: on an H100 (8 memory slices, 7 compute slices) 3g.40gb at 4 covers slices 4 to 7. It excludes 1g.10gb at 5,
which overlaps, and 7g.80gb, which fits neither row nor budget; 4g.40gb at 0 still fits: 3 + 4 compute slices.
Source: NVIDIA MIG User Guide; both rules hold on every product that nvidia-smi lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairlead.driver.backend.types import MigProfile

Placed = tuple[MigProfile, int]


def covered(profile: MigProfile, start: int) -> range:
    """The memory slices of an instance at `start`."""
    return range(start, start + profile.memory_slices)


def memory_slices(profiles: Iterable[MigProfile]) -> int:
    """The number of memory slices of the GPU: the end of the last placement."""
    return max((start + profile.memory_slices for profile in profiles for start in profile.starts), default=0)


def compute_slices(profiles: Iterable[MigProfile]) -> int:
    """The number of compute slices of the GPU: those of its largest profile."""
    return max((profile.compute_slices for profile in profiles), default=0)


def fits(profiles: Sequence[MigProfile], placed: Iterable[Placed], wanted: Placed) -> bool:
    """Whether `wanted` can be created beside `placed`. `profiles` are all profiles of the GPU."""
    profile, start = wanted
    if start not in profile.starts:
        return False
    others = list(placed)
    taken = {slice_ for other in others for slice_ in covered(*other)}
    if not taken.isdisjoint(covered(profile, start)):
        return False
    if sum(other.compute_slices for other, _ in others) + profile.compute_slices > compute_slices(profiles):
        return False
    # The media extensions exist once: a second +me does not fit, however many slices are free.
    return not (profile.name.endswith("+me") and any(other.name.endswith("+me") for other, _ in others))
