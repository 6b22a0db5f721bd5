"""Which GPU is at the other end of an NVLink.

Exists because NVML names the other end by PCI address where it is a GPU, and as a switch where it is one; all GPUs of a
node with links to switches reach each other. Where a guest hides the other ends, peer-to-peer status tells instead.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from fairlead.driver.backend.nvml.calls import Calls
from fairlead.driver.backend.types import BackendError, Gpu, NvLink


def links(calls: Calls, gpus: list[tuple[Any, Gpu]], warnings: list[str]) -> list[Gpu]:
    """The same GPUs with the peers of their NVLinks filled in, by minor."""
    by_bus = {gpu.pci_bus_id: gpu.minor for _, gpu in gpus if gpu.pci_bus_id}
    ends: dict[int, set[int] | None] = {}
    switched: set[int] = set()
    for device, gpu in gpus:
        if gpu.nvlink is None:
            continue
        try:
            found, on_switch = _ends(calls, device, by_bus)
        except BackendError as error:
            warnings.append(f"gpu-{gpu.minor}: {error}; its NVLink peers are left out")
            found, on_switch = set(), False
        ends[gpu.minor] = found
        if on_switch:
            switched.add(gpu.minor)
    for device, gpu in gpus:
        if gpu.minor in ends and ends[gpu.minor] is None:
            ends[gpu.minor] = _by_status(calls, device, gpu, gpus)
    made = []
    for _, gpu in gpus:
        if gpu.nvlink is not None:
            peers = (ends[gpu.minor] or set()) | (switched if gpu.minor in switched else set())
            nvlink = NvLink(
                version=gpu.nvlink.version, links=gpu.nvlink.links, peers=tuple(sorted(peers - {gpu.minor}))
            )
            gpu = dataclasses.replace(gpu, nvlink=nvlink)  # noqa: PLW2901 - the same GPU, completed
        made.append(gpu)
    return made


def _ends(calls: Calls, device: Any, by_bus: dict[str, int]) -> tuple[set[int] | None, bool]:
    """(minors of the GPUs at the other ends, whether a switch is at one). None when no end could be told."""
    nv = calls.nv
    peers: set[int] = set()
    switch = known = False
    for link in range(nv.NVML_NVLINK_MAX_LINKS):
        if not calls.ask("DeviceGetNvLinkState", device, link):
            continue
        kind = calls.ask("DeviceGetNvLinkRemoteDeviceType", device, link)
        if kind == nv.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            switch = known = True
        elif kind == nv.NVML_NVLINK_DEVICE_TYPE_GPU:
            info = calls.ask("DeviceGetNvLinkRemotePciInfo", device, link)
            if info is not None:
                known = True
                bus_id = f"{int(info.domain):04x}:{int(info.bus):02x}:{int(info.device):02x}.0"
                if bus_id in by_bus:
                    peers.add(by_bus[bus_id])
    return (peers if known else None), switch


def _by_status(calls: Calls, device: Any, gpu: Gpu, gpus: list[tuple[Any, Gpu]]) -> set[int]:
    nv = calls.nv
    return {
        other.minor
        for handle, other in gpus
        if other.minor != gpu.minor
        and calls.ask("DeviceGetP2PStatus", device, handle, nv.NVML_P2P_CAPS_INDEX_NVLINK) == nv.NVML_P2P_STATUS_OK
    }
