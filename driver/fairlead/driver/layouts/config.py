"""The file of MIG layouts, in the format of mig-parted (`version: v1`), which NVIDIA's GPU operator uses. Pure.

    version: v1
    mig-configs:
      mixed:
        - device-filter: ["0x233010DE"]    # PCI device IDs; without it every GPU
          devices: [0, 1]                  # or "all"; in the order of PCI addresses
          mig-enabled: true
          mig-devices: {3g.40gb: 1, 1g.10gb: 4}

Read strictly, unknown fields and keys that are there twice included, since a layout that is understood by half cuts GPUs
wrongly. Compute instances that do not fill their GPU instance (`1c.3g.40gb`) are refused: the driver publishes none.
Source: NVIDIA/mig-parted api/spec/v1/spec.go, pkg/types.

What a layout says of each GPU of this node follows from it. Everything that can be wrong with a layout on this hardware is found here,
before any GPU is drained. GPUs that no entry names stay as they are. NVML can place instances itself, but its choice depends on the order
of creation, and a layout that fits may not be found: so every placement is tried, large profiles first, and always the same one is found.
Example: 3g.40gb, 2g.20gb and two 1g.10gb on an H100. 3g.40gb at 0 leaves the slices 4 to 7, of which 1g.10gb cannot have the
last: so it lies at 4, 2g.20gb at 0, and 1g.10gb at 2 and 3.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fairlead.api import mig_profiles
from fairlead.bounded import yaml_text
from fairlead.bounded.limits import Limits, UnreadableError
from fairlead.driver.backend import geometry
from fairlead.driver.backend.geometry import Placed
from fairlead.driver.backend.types import Gpu, Inventory, MigProfile
from fairlead.driver.layouts.cutter import Cut

LIMITS = Limits(bytes=2**20, bytes_expanded=2**20, values=100_000, depth=16)
BYTES_MAX = LIMITS.bytes
VERSION = "v1"
_FIELDS = ("device-filter", "devices", "mig-enabled", "mig-devices")
_DEVICE_ID = re.compile(r"0[xX][0-9A-Fa-f]{8}")


class LayoutError(ValueError):
    """A layout that cannot be read, or that this node's GPUs cannot have; the message names file, config, entry and field."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What some GPUs of a node should be. `field` names it in messages; `devices` None means all.

    `filters` are PCI device IDs in upper case, none where any GPU is meant. `counts` are MIG devices by profile.
    """

    field: str
    filters: frozenset[str] = frozenset()
    devices: frozenset[int] | None = None
    enabled: bool
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)


Layouts = Mapping[str, tuple[Entry, ...]]
"""By name, which a node's label chooses."""


def parse(content: bytes, *, path: str) -> Layouts:
    """Every layout of the file. Raises LayoutError."""
    document = _read(content, path)
    version = document.pop("version", None)
    if version != VERSION:
        raise LayoutError(f"{path}: version: {_shown(version)} is not {VERSION!r}; write version: {VERSION}")
    configs = document.pop("mig-configs", None)
    if document:
        raise LayoutError(f"{path}: {_shown(min(document, key=str))} is no field; write version and mig-configs only")
    if not isinstance(configs, dict) or not configs:
        raise LayoutError(f"{path}: mig-configs: {_shown(configs)} has no layout; write a name with a list of entries")
    return {str(name): _entries(name, entries, path) for name, entries in configs.items()}


def _entries(name: object, entries: object, path: str) -> tuple[Entry, ...]:
    where = f"{path}: mig-configs.{name}"
    if not isinstance(name, str):
        raise LayoutError(f"{where}: {_shown(name)} is no name; write it in quotes")
    if not isinstance(entries, list) or not entries:
        raise LayoutError(
            f"{where}: {_shown(entries)} is no list of entries; write at least one, with devices and mig-enabled"
        )
    return tuple(_entry(f"{where}[{index}]", entry) for index, entry in enumerate(entries))


def _entry(where: str, entry: object) -> Entry:
    if not isinstance(entry, dict):
        raise LayoutError(f"{where}: {_shown(entry)} is no entry; write {', '.join(_FIELDS)}")
    for key in entry:
        if key not in _FIELDS:
            raise LayoutError(f"{where}: {_shown(key)} is no field; write {', '.join(_FIELDS)}")
    for key in ("devices", "mig-enabled"):
        if key not in entry:
            raise LayoutError(f"{where}.{key}: is missing")
    enabled = entry["mig-enabled"]
    if not isinstance(enabled, bool):
        raise LayoutError(f"{where}.mig-enabled: {_shown(enabled)} is neither true nor false")
    if enabled and entry.get("mig-devices") is None:
        raise LayoutError(f"{where}.mig-devices: is missing; write {{}} for MIG mode without MIG devices")
    counts = _counts(f"{where}.mig-devices", entry.get("mig-devices"))
    if counts and not enabled:
        raise LayoutError(f"{where}.mig-devices: there are none with mig-enabled: false; remove it, or write true")
    return Entry(
        field=where,
        filters=_filters(f"{where}.device-filter", entry.get("device-filter")),
        devices=_devices(f"{where}.devices", entry["devices"]),
        enabled=enabled,
        counts=counts,
    )


def _filters(where: str, value: object) -> frozenset[str]:
    found = [] if value in (None, "") else [value] if isinstance(value, str) else value
    if not isinstance(found, list):
        raise LayoutError(f'{where}: {_shown(value)} is no list of PCI device IDs; write ["0x233010DE"]')
    for each in found:
        if not isinstance(each, str) or not _DEVICE_ID.fullmatch(each):
            raise LayoutError(
                f'{where}: {_shown(each)} is no PCI device ID; write device and vendor in quotes, such as "0x233010DE"'
            )
    return frozenset("0x" + each[2:].upper() for each in found)


def _devices(where: str, value: object) -> frozenset[int] | None:
    if value == "all":
        return None
    if not isinstance(value, list) or not value:
        raise LayoutError(f"{where}: {_shown(value)} names no GPUs; write all, or a list of indices such as [0, 1]")
    for each in value:
        if isinstance(each, bool) or not isinstance(each, int) or each < 0:
            raise LayoutError(f"{where}: {_shown(each)} is no index of a GPU; write whole numbers from 0")
    if len(set(value)) < len(value):
        raise LayoutError(f"{where}: {_shown(value)} names a GPU twice")
    return frozenset(value)


def _counts(where: str, value: object) -> dict[str, int]:
    """Profiles with a count of 0 are left out."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise LayoutError(f"{where}: {_shown(value)} is no map; write profiles with counts, such as {{1g.10gb: 7}}")
    found: dict[str, int] = {}
    for profile, count in value.items():
        if isinstance(profile, str) and mig_profiles.is_compute_instance(profile):
            raise LayoutError(
                f"{where}: {profile!r} is a compute instance that does not fill its GPU instance, and the driver publishes "
                f"none; write {profile.partition('.')[2]!r}, and share it with MPS"
            )
        if not isinstance(profile, str) or not mig_profiles.is_profile(profile):
            raise LayoutError(f"{where}: {_shown(profile)} is no MIG profile; write one such as 1g.10gb")
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= 16:
            raise LayoutError(f"{where}.{profile}: {_shown(count)} is no number of MIG devices; write 1 to 16")
        if count:
            found[profile] = count
    if value and not found:
        raise LayoutError(f"{where}: all counts are 0; write {{}} for MIG mode without MIG devices")
    return found


def _read(content: bytes, path: str) -> dict[Any, Any]:
    try:
        document = yaml_text.document(content, LIMITS)
    except UnreadableError as error:
        raise LayoutError(f"{path}: {error}") from error
    if not isinstance(document, dict):
        raise LayoutError(f"{path}: {_shown(document)} has no layouts; write version: {VERSION} and mig-configs")
    return document


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except RecursionError:
        text = f"a {type(value).__name__}"
    return text if len(text) <= 64 else f"{text[:64]}…"


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
