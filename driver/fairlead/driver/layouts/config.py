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
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from fairlead.api import mig_profiles
from fairlead.bounded import yaml_text
from fairlead.bounded.limits import Limits, UnreadableError

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
