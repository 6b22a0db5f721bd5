"""Devices for the tests of CEL."""

from collections.abc import Callable

import pytest

from fairlead.cel import DeviceView
from tests.support.cel import make_device

MakeDevice = Callable[..., DeviceView]


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
