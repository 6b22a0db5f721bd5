"""The arithmetic of MIG: which placements exclude one another, and which free one to take.

Exists so that the simulated hardware, the counters in slices and the choice of a placement share one geometry. A GPU is
a row of memory slices and a budget of compute slices; an instance takes `memory_slices` of the first from its start and
`compute_slices` of the second. Pure; knows no devices, only profiles and starts.
Source: NVIDIA MIG User Guide; on every product listed by nvidia-smi the sum rule and the row rule hold together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairlead.driver.backend.types import MigProfile

Placed = tuple[MigProfile, int]


def covered(profile: MigProfile, start: int) -> range:
    """The memory slices that an instance at `start` takes."""
    return range(start, start + profile.memory_slices)


def memory_slices(profiles: Iterable[MigProfile]) -> int:
    """How many memory slices the GPU has: what its largest placement reaches."""
    return max((start + profile.memory_slices for profile in profiles for start in profile.starts), default=0)


def compute_slices(profiles: Iterable[MigProfile]) -> int:
    """How many compute slices the GPU has: what its largest profile takes."""
    return max((profile.compute_slices for profile in profiles), default=0)


def fits(profiles: Sequence[MigProfile], placed: Iterable[Placed], wanted: Placed) -> bool:
    """Whether `wanted` can be created beside `placed`. `profiles` are all that the GPU has."""
    profile, start = wanted
    if start not in profile.starts:
        return False
    others = list(placed)
    taken = {slice_ for other in others for slice_ in covered(*other)}
    if not taken.isdisjoint(covered(profile, start)):
        return False
    if sum(other.compute_slices for other, _ in others) + profile.compute_slices > compute_slices(profiles):
        return False
    # Media extensions exist once: a second +me does not fit however many slices are free.
    return not (profile.name.endswith("+me") and any(other.name.endswith("+me") for other, _ in others))


def possible(profiles: Sequence[MigProfile], placed: Iterable[Placed]) -> list[Placed]:
    """Everything that could be created now, in the order of `profiles` and starts."""
    there = list(placed)
    return [
        (profile, start) for profile in profiles for start in profile.starts if fits(profiles, there, (profile, start))
    ]


def best_start(profiles: Sequence[MigProfile], placed: Iterable[Placed], profile: MigProfile) -> int | None:
    """The free start for `profile` that leaves the most room, or None when there is none.

    Room is compared by the largest profile still possible, then by how many placements are; among equals the highest
    start, which keeps the low slices (that the larger profiles need) free.
    """
    there = list(placed)

    def room(start: int) -> tuple[int, int, int, int]:
        left = possible(profiles, [*there, (profile, start)])
        largest = max(((p.memory_slices, p.compute_slices) for p, _ in left), default=(0, 0))
        return (*largest, len(left), start)

    starts = [start for start in profile.starts if fits(profiles, there, (profile, start))]
    return max(starts, key=room, default=None)
