"""The peers of each GPU's NVLinks.

NVML reports the remote end of a link as a PCI address when it is a GPU, or as a switch. All GPUs of a node with links
to switches are peers. In a guest that hides the remote ends, the peer-to-peer status of each pair decides.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from fairlead.driver.backend.interface import BackendError
from fairlead.driver.backend.nvml.calls import Calls
from fairlead.driver.backend.types import Gpu, NvLink


def with_peers(calls: Calls, gpus: list[tuple[Any, Gpu]], warnings: list[str]) -> list[Gpu]:
    """The GPUs with the peers of their NVLinks (as minors) filled in, in the same order."""
    by_bus = {gpu.pci_bus_id: gpu.minor for _, gpu in gpus if gpu.pci_bus_id}
    ends: dict[int, set[int] | None] = {}
    switched: set[int] = set()
    for device, gpu in gpus:
        if gpu.nvlink is None:
            continue
        try:
            found, on_switch = _remote_ends(calls, device, by_bus)
        except BackendError as error:
            warnings.append(f"gpu-{gpu.minor}: {error}; its NVLink peers are left out")
            found, on_switch = set(), False
        ends[gpu.minor] = found
        if on_switch:
            switched.add(gpu.minor)
    for device, gpu in gpus:
        if gpu.minor in ends and ends[gpu.minor] is None:
            ends[gpu.minor] = _by_p2p_status(calls, device, gpu, gpus)
    made = []
    for _, gpu in gpus:
        if gpu.nvlink is not None:
            peers = (ends[gpu.minor] or set()) | (switched if gpu.minor in switched else set())
            nvlink = NvLink(
                version=gpu.nvlink.version,
                links=gpu.nvlink.links,
                peers=tuple(sorted(peers - {gpu.minor})),
                switched=gpu.minor in switched,
            )
            gpu = dataclasses.replace(gpu, nvlink=nvlink)  # noqa: PLW2901 - the same GPU, completed
        made.append(gpu)
    return made


def _remote_ends(calls: Calls, device: Any, by_bus: dict[str, int]) -> tuple[set[int] | None, bool]:
    """(minors of the GPUs at the remote ends, whether one is a switch). None when no remote end is known."""
    nv = calls.nv
    peers: set[int] = set()
    switch = known = False
    for link in range(nv.NVML_NVLINK_MAX_LINKS):
        if not calls.query("DeviceGetNvLinkState", device, link):
            continue
        kind = calls.query("DeviceGetNvLinkRemoteDeviceType", device, link)
        if kind == nv.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            switch = known = True
        elif kind == nv.NVML_NVLINK_DEVICE_TYPE_GPU:
            info = calls.query("DeviceGetNvLinkRemotePciInfo", device, link)
            if info is not None:
                known = True
                bus_id = f"{int(info.domain):04x}:{int(info.bus):02x}:{int(info.device):02x}.0"
                if bus_id in by_bus:
                    peers.add(by_bus[bus_id])
    return (peers if known else None), switch


def _by_p2p_status(calls: Calls, device: Any, gpu: Gpu, gpus: list[tuple[Any, Gpu]]) -> set[int]:
    nv = calls.nv
    return {
        other.minor
        for handle, other in gpus
        if other.minor != gpu.minor
        and calls.query("DeviceGetP2PStatus", device, handle, nv.NVML_P2P_CAPS_INDEX_NVLINK) == nv.NVML_P2P_STATUS_OK
    }
