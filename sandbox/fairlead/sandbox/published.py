"""Devices of our driver as another driver publishes them; pure, JSON in, JSON out.

For clusters whose GPUs belong to `gpu.nvidia.com`: what Fairlead decides must not depend on which driver publishes. Names and capacities of GPUs
and MIG devices are the same in both drivers; what only ours has is left out, and NVLink shows as that driver shows it: with its gate
FabricManagerPartitioning each GPU names the fabric partitions of 2, 4 and 8 GPUs that it belongs to, and nothing otherwise.
Source: kubernetes-sigs/dra-driver-nvidia-gpu 0.5, cmd/gpu-kubelet-plugin/deviceinfo.go and mig.go; docs on Fabric Manager partitions.

Example: an HGX of eight GPUs in one NVLink island has partition8 1; partition4 2 and 3; partition2 4 to 7.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from fairlead.api.drivers import DRIVERS, NVIDIA, attributes_of
from fairlead.api.names import DRIVER

Json = dict[str, Any]
_OURS: Final = frozenset(
    {
        "nvlinkDomain",
        "nvlinkLinks",
        "nvlinkVersion",
        "nvlinkPeers",
        "nvlinkClique",
        "migCapable",
        "parentIndex",
        "resourceName",
    }
)
_CLASSES: Final = (("gpu.nvidia.com", "gpu"), ("mig.nvidia.com", "mig"))


def as_nvidia(devices: Iterable[Mapping[str, Any]]) -> list[Json]:
    """A node's devices, in the form of gpu.nvidia.com. Devices as in ResourceSlices, of our driver."""
    made = [{**device, "attributes": dict(device.get("attributes") or {})} for device in devices]
    islands: dict[str, list[Json]] = {}
    for device in made:
        island = device["attributes"].get("nvlinkDomain")
        if island is not None:
            islands.setdefault(str(island), []).append(device)
    for device in made:
        device["attributes"] = {name: value for name, value in device["attributes"].items() if name not in _OURS}
    for size, name in attributes_of(NVIDIA).islands:
        _partition(islands.values(), size, name)
    return made


def _partition(islands: Iterable[Sequence[Json]], size: int, name: str) -> None:
    """Give each GPU the number of its fabric partition of so many GPUs. Numbers are the node's, over all sizes."""
    number = 8 // size  # larger partitions have lower numbers: 1; 2 and 3; 4 to 7
    for devices in islands:
        for start in range(0, len(devices) - size + 1, size):
            for device in devices[start : start + size]:
                device["attributes"][name] = {"int": number}
            number += 1


def classes() -> list[Json]:
    """The DeviceClasses that NVIDIA's chart installs, as far as pods use them."""
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": name},
            "spec": {
                "selectors": [
                    {
                        "cel": {
                            "expression": f"device.driver == '{NVIDIA}' && device.attributes['{NVIDIA}'].type == '{kind}'"
                        }
                    }
                ]
            },
        }
        for name, kind in _CLASSES
    ]


def for_driver(text: str, driver: str, *, gpus: int) -> str:
    """A manifest of ours for another driver: its classes, its domain, and the attribute by which so many GPUs are joined.

    What a user who follows docs/migration.md writes. Raises KeyError for a driver that is not known.
    """
    known = DRIVERS[driver]
    for ours, theirs in (
        (f"{DRIVER}/nvlinkDomain", known.island(gpus)),
        (f"mig.{DRIVER}", known.part_class),
        (DRIVER, known.driver),
    ):
        text = text.replace(ours, theirs)
    return text
