"""Static layouts: how GPUs are cut beforehand, so that their MIG devices are of the sizes that the mix requests.

Pure. A layout lists (profile, start); empty: a whole GPU. Every layout fills its GPU: nothing more could be created on it.
GPUs are cut one after the other, each into what the mix lacks most by then; whole GPUs come first, so that nodes have several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from fairlead.driver.backend import geometry
from fairlead.driver.backend.types import MigProfile

Layout = tuple[tuple[MigProfile, int], ...]


@lru_cache(maxsize=64)
def full_layouts(sizes: tuple[MigProfile, ...]) -> tuple[Layout, ...]:
    """All layouts to which nothing can be added. Profiles with media extensions are left out."""
    plain = tuple(size for size in sizes if "+" not in size.name)
    found: list[Layout] = []

    def extend(placed: Layout, least: int) -> None:
        """By growing start, so that each set of devices comes once."""
        for size in plain:
            for start in sorted(size.starts):
                if start >= least and geometry.fits(sizes, placed, (size, start)):
                    extend((*placed, (size, start)), start + size.memory_slices)
        if not any(geometry.fits(sizes, placed, (size, start)) for size in plain for start in size.starts):
            found.append(placed)

    extend((), 0)
    return tuple(found)


def layouts_for(
    sizes: tuple[MigProfile, ...], gpus: int, shares: Mapping[str, float], whole_share: float
) -> tuple[Layout, ...]:
    """The layouts of so many GPUs. `shares`: of the compute slices that are requested, by profile; `whole_share`: that of whole GPUs."""
    whole = min(gpus, round(whole_share * gpus))
    per_gpu = geometry.compute_slices(sizes)
    cut = gpus - whole
    total = sum(shares.values())
    if not total:
        return ((),) * gpus
    wanted = {name: share / total for name, share in shares.items()}
    supplied = dict.fromkeys(wanted, 0.0)
    chosen: list[Layout] = []
    for number in range(1, cut + 1):
        lacking = {name: max(0.0, share * per_gpu * number - supplied[name]) for name, share in wanted.items()}
        layout = max(full_layouts(sizes), key=lambda each: _served(each, lacking))  # ties: the first
        chosen.append(layout)
        for size, _ in layout:
            if size.name in supplied:
                supplied[size.name] += size.compute_slices
    return ((),) * whole + tuple(chosen)


def _served(layout: Sequence[tuple[MigProfile, int]], lacking: Mapping[str, float]) -> float:
    amounts: dict[str, int] = {}
    for size, _ in layout:
        amounts[size.name] = amounts.get(size.name, 0) + size.compute_slices
    return sum(min(amount, lacking.get(name, 0.0)) for name, amount in amounts.items())
