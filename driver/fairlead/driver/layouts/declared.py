"""What a layout says of each GPU of this node, and which GPUs are not so yet. Pure.

Everything that can be wrong with a layout on this hardware is found here, before any GPU is drained. GPUs that no entry
names stay as they are.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable

from fairlead.driver.backend.types import Gpu, Inventory
from fairlead.driver.layouts.config import Entry, LayoutError, Layouts
from fairlead.driver.layouts.intents import Cut
from fairlead.driver.layouts.placing import place


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a GPU should be: in MIG mode or not, with this many MIG devices by profile, and where those may lie."""

    uuid: str
    minor: int
    counts: dict[str, int]
    cut: Cut


def choose(layouts: Layouts, name: str, *, path: str) -> tuple[Entry, ...]:
    """The layout of that name. Raises LayoutError."""
    if name not in layouts:
        known = ", ".join(sorted(layouts))
        raise LayoutError(
            f"{path}: mig-configs: has no layout {name!r}; set the label nvidia.com/mig.config to one of {known}"
        )
    return layouts[name]


def resolve(entries: Iterable[Entry], inventory: Inventory) -> tuple[Wanted, ...]:
    """What each GPU that an entry names should be, sorted by minor. Raises LayoutError."""
    gpus = sorted(inventory.gpus, key=lambda gpu: (gpu.pci_bus_id or "", gpu.minor))
    found: dict[str, tuple[Entry, Wanted]] = {}
    minors = {gpu.minor for gpu in gpus}
    missing = sorted(set(range(max(minors, default=-1) + 1)) - minors)
    for entry in entries:
        if entry.devices is not None and missing:
            raise LayoutError(
                f"{entry.field}.devices: gpu-{missing[0]} does not answer, so indices would name other GPUs than they should; "
                "repair it, or write devices: all"
            )
        beyond = sorted(index for index in entry.devices or () if index >= len(gpus))
        if beyond and not entry.filters:
            raise LayoutError(
                f"{entry.field}.devices: {beyond[0]}: this node has {len(gpus)} GPUs, so 0 to {len(gpus) - 1}"
            )
        for index, gpu in enumerate(gpus):
            if not _matches(entry, gpu, index):
                continue
            if gpu.uuid in found:
                raise LayoutError(
                    f"{entry.field}: gpu-{gpu.minor} (index {index}) is in {found[gpu.uuid][0].field}, too; name each GPU once"
                )
            found[gpu.uuid] = entry, _wanted(entry, gpu)
    return tuple(sorted((wanted for _, wanted in found.values()), key=lambda wanted: wanted.minor))


def _matches(entry: Entry, gpu: Gpu, index: int) -> bool:
    if entry.filters and gpu.pci_device_id not in entry.filters:
        return False
    return entry.devices is None or index in entry.devices


def _wanted(entry: Entry, gpu: Gpu) -> Wanted:
    name = f"gpu-{gpu.minor} ({gpu.product_name or 'of an unknown product'})"
    if gpu.mig_enabled is None and entry.enabled:
        raise LayoutError(f"{entry.field}.mig-enabled: {name} has no MIG; leave it out with devices or device-filter")
    known = {profile.name for profile in gpu.mig_profiles}
    for profile in entry.counts:
        if profile not in known:
            raise LayoutError(
                f"{entry.field}.mig-devices: {profile!r} is no profile of {name}, which has {', '.join(sorted(known))}; "
                "use device-filter where nodes have GPUs of several kinds"
            )
    placed = place(gpu.mig_profiles, entry.counts)
    if placed is None:
        asked = ", ".join(f"{profile}: {count}" for profile, count in entry.counts.items())
        raise LayoutError(f"{entry.field}.mig-devices: {{{asked}}} does not fit on {name}; ask for less")
    cut = Cut(enabled=entry.enabled, placements=tuple((profile.id, start) for profile, start in placed))
    return Wanted(uuid=gpu.uuid, minor=gpu.minor, counts=dict(entry.counts), cut=cut)


def is_so(wanted: Wanted, gpu: Gpu, *, on_demand: bool) -> bool:
    """Whether the GPU is as wanted, wherever its MIG devices lie.

    `on_demand`: its MIG devices, if it has any, are made for claims, and it counts as one without.
    """
    if on_demand:
        return not wanted.counts and (not wanted.cut.enabled or gpu.mig_mutable or bool(gpu.mig_enabled))
    has = Counter(mig.profile.name for mig in gpu.mig_devices)
    return bool(gpu.mig_enabled) == wanted.cut.enabled and has == Counter(wanted.counts)
