"""Devices for tests of selectors, from plain values."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlead.cel.device import DeviceView
from fairlead.kube.resource import Device


def make_device(
    attributes: dict[str, Any] | None = None,
    capacity: dict[str, str] | None = None,
    *,
    driver: str = "gpu.example.com",
    shared: bool | None = None,
) -> DeviceView:
    """A device's view. Attributes are plain values; a string that starts with `v:` is a version."""

    def typed(value: Any) -> dict[str, Any]:
        if isinstance(value, bool):
            return {"bool": value}
        if isinstance(value, int):
            return {"int": value}
        if isinstance(value, list):
            return {"ints" if isinstance(value[0], int) else "strings": value}
        return {"version": value[2:]} if value.startswith("v:") else {"string": value}

    raw = {
        "name": "device",
        "attributes": {name: typed(value) for name, value in (attributes or {}).items()},
        "capacity": {name: {"value": value} for name, value in (capacity or {}).items()},
        "allowMultipleAllocations": shared,
    }
    return DeviceView.of(driver, msgspec.convert(raw, Device))
