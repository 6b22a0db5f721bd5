"""Counters beside the devices that consume them: how 1.34 wants slices of partitionable devices, where that gate is on.

A device refers to a counter set of its own slice, and the limits are of the slice. Since 1.35 counters are in slices without
devices. Source: validateResourceSliceSpec and validateDevice in pkg/apis/resource/validation/validation.go (1.34).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fairlead.sandbox.apiserver.kinds.errors import FieldError, invalid
from fairlead.sandbox.apiserver.kinds.request import Json

SHARED_MAX: Final = 32
DEVICE_MAX: Final = 32
DEVICES_MAX: Final = 1024


def beside(devices: list[Json], counters: list[Json]) -> Iterator[FieldError]:
    known = {one.get("name", ""): set(one.get("counters") or {}) for one in counters}
    consumed = 0
    for index, device in enumerate(devices):
        path, own = f"spec.devices[{index}]", 0
        for place, one in enumerate(device.get("consumesCounters") or []):
            own += len(one.get("counters") or {})
            yield from _reference(one, f"{path}.consumesCounters[{place}]", known)
        if own > DEVICE_MAX:
            yield invalid(path, own, f"the total number of counters must not exceed {DEVICE_MAX}")
        consumed += own
    if consumed > DEVICES_MAX:
        message = f"the total number of counters in devices must not exceed {DEVICES_MAX}"
        yield invalid("spec.devices", consumed, message)
    shared = sum(map(len, known.values()))
    if shared > SHARED_MAX:
        message = f"the total number of shared counters must not exceed {SHARED_MAX}"
        yield invalid("spec.sharedCounters", shared, message)


def _reference(one: Json, path: str, known: dict[str, set[str]]) -> Iterator[FieldError]:
    name = one.get("counterSet", "")
    if name not in known:
        message = "must reference a counterSet defined in the ResourceSlice sharedCounters"
        yield invalid(f"{path}.counterSet", name, message)
        return
    for counter in one.get("counters") or {}:
        if counter not in known[name]:
            message = "must reference a counter defined in the ResourceSlice sharedCounters"
            yield invalid(f"{path}.counters", counter, message)
