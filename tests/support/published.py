"""Devices as other projects' GPU drivers publish them, as raw JSON: the attributes, capacities and counters of `fairlead.api.drivers`' sources."""

from __future__ import annotations

from typing import Any

from fairlead.api import drivers, names

Json = dict[str, Any]
AMD_PRODUCT = "AMD_Instinct_MI300X_OAM"


def device(name: str, attributes: Json, capacity: Json, **more: Any) -> Json:
    """Attributes as Python values: text, number, truth."""
    typed = {key: {_TYPES[type(value)]: value} for key, value in attributes.items()}
    return {
        "name": name,
        "attributes": typed,
        "capacity": {key: {"value": value} for key, value in capacity.items()},
        **more,
    }


_TYPES = {str: "string", int: "int", bool: "bool"}


def nvidia_gpu(minor: int, *, numa: int = 0, **partitions: int) -> Json:
    """`partitions`: those of its gate FabricManagerPartitioning."""
    attributes = {
        "type": "gpu",
        "uuid": f"GPU-{minor}",
        "productName": "NVIDIA H100 80GB HBM3",
        "brand": "Nvidia",
        "architecture": "Hopper",
        names.PCI_BUS_ID: f"0000:{minor:02x}:00.0",
        names.PCIE_ROOT: f"pci0000:{minor:02x}",
        names.NUMA_NODE: numa,
        **partitions,
    }
    return device(f"gpu-{minor}", attributes, {"memory": "81559Mi"})


def nvidia_mig(minor: int, profile: str, start: int, slices: int, *, gigabytes: int) -> Json:
    """A MIG device that exists (static)."""
    attributes = {
        "type": "mig",
        "uuid": f"MIG-{minor}-{start}",
        "parentUUID": f"GPU-{minor}",
        "profile": profile,
        "productName": "NVIDIA A100-SXM4-80GB",
        names.NUMA_NODE: 0,
    }
    capacity = {"memory": f"{gigabytes}Gi", **{f"memorySlice{at}": "1" for at in range(start, start + slices)}}
    return device(f"gpu-{minor}-mig-{profile.replace('.', '')}-19-{start}", attributes, capacity)


def amd_gpu(card: int, *, numa: int = 0) -> Json:
    attributes = {
        "type": "amdgpu",
        "pciAddr": f"0000:{card:02x}:00.0",
        "cardIndex": card,
        "renderIndex": 128 + card,
        "deviceID": f"0x74a1-{card}",
        "family": "AI",
        "productName": AMD_PRODUCT,
        "partitionProfile": "spx_nps1",
        "numaNode": numa,
        names.PCIE_ROOT: f"pci0000:{card:02x}",
    }
    return device(
        f"gpu-{card}-{128 + card}", attributes, {"memory": "196592Mi", "computeUnits": "304", "simdUnits": "1216"}
    )


def amd_partition(card: int, parent: int, profile: str, *, product: str = AMD_PRODUCT) -> Json:
    attributes = {
        "type": "amdgpu-partition",
        "parentPciAddr": f"0000:{parent:02x}:00.0",
        "parentDeviceID": f"0000:{parent:02x}:00:0",
        "cardIndex": card,
        "renderIndex": 128 + card,
        "family": "AI",
        "productName": product,
        "partitionProfile": profile,
        "numaNode": 0,
    }
    return device(
        f"gpu-{card}-{128 + card}", attributes, {"memory": "24574Mi", "computeUnits": "38", "simdUnits": "152"}
    )


def intel_gpu(number: int) -> Json:
    attributes = {
        "model": "Max 1550",
        "family": "Data Center Max",
        "driver": "xe",
        "sriov": False,
        "type": "gpu",
        "pciId": "0x0bd5",
        "pciAddress": f"0000:{number:02x}:00.0",
        "health": "Healthy",
        names.PCIE_ROOT: f"pci0000:{number:02x}",
        names.PCI_BUS_ID: f"0000:{number:02x}:00.0",
    }
    return device(f"0000-{number:02x}-00-0-0x0bd5", attributes, {"memory": "131072Mi", "millicores": "1k"})


def example_gpu(index: int, *, partitions: int = 0) -> tuple[list[Json], list[Json]]:
    """Devices and counter sets: the whole GPU, and so many partitions of it."""
    attributes: Json = {"index": index, "uuid": f"gpu-{index}-uuid", "model": "LATEST-GPU-MODEL"}
    if not partitions:
        return [device(f"gpu-{index}", attributes, {"memory": "80Gi", "compute": "100"})], []

    def drawn(part: int) -> Json:
        counters = {"memory": {"value": f"{80 // part}Gi"}, "compute": {"value": str(100 // part)}}
        return {"consumesCounters": [{"counterSet": f"gpu-{index}-counters", "counters": counters}]}

    whole = device(f"gpu-{index}-full", {**attributes, "full": True}, {"memory": "80Gi", "compute": "100"}, **drawn(1))
    parts = [
        device(
            f"gpu-{index}-partition-{number}",
            {**attributes, "partition": number},
            {"memory": f"{80 // partitions}Gi", "compute": str(100 // partitions)},
            **drawn(partitions),
        )
        for number in range(partitions)
    ]
    counters = {"memory": {"value": "80Gi"}, "compute": {"value": "100"}}
    return [*parts, whole], [{"name": f"gpu-{index}-counters", "counters": counters}]


def device_class(driver: str) -> Json:
    """The class of whole GPUs that the driver's project installs, as a DeviceClass' spec."""
    text = f"device.driver == '{driver}'"
    if driver in {drivers.NVIDIA, names.DRIVER}:
        text += f" && device.attributes['{driver}'].type == 'gpu'"
    return {"selectors": [{"cel": {"expression": text}}]}
