"""Devices that the tests of this room ask about."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from fairlead.cel import DeviceView
from fairlead.kube.resource import Device

MakeDevice = Callable[..., DeviceView]


def make_device(
    attributes: dict[str, Any] | None = None,
    capacity: dict[str, str] | None = None,
    *,
    driver: str = "gpu.example.com",
    shared: bool | None = None,
) -> DeviceView:
    """Attributes as plain values; a string that starts with `v:` is a version."""

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


@pytest.fixture
def device() -> MakeDevice:
    return make_device


@pytest.fixture
def h100() -> DeviceView:
    attributes = {
        "type": "gpu",
        "productName": "NVIDIA H100 80GB HBM3",
        "cudaComputeCapability": "v:9.0.0",
        "healthy": True,
        "index": 3,
        "resource.kubernetes.io/numaNode": 1,
    }
    return make_device(attributes, {"memory": "80Gi", "multiprocessors": "132"})
