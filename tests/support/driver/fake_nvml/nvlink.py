"""NVML's queries of NVLink: states, remote ends, peer-to-peer status, the fabric of several nodes."""

from __future__ import annotations

import ctypes
import uuid
from typing import Any

import pynvml

from tests.support.driver.fake_nvml.gpu import pci_info
from tests.support.driver.fake_nvml.node import Device, FakeNode


class NvLinkCalls(FakeNode):
    def nvmlDeviceGetNvLinkState(self, device: Device, link: int) -> int:
        gpu = self._check(device)
        if gpu.nvlink is None or link >= 18:
            self._fail(pynvml.NVML_ERROR_NOT_SUPPORTED if gpu.nvlink is None else pynvml.NVML_ERROR_INVALID_ARGUMENT)
        assert gpu.nvlink is not None
        return int(link < gpu.nvlink.links)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, device: Device, link: int) -> int:
        gpu = self._check(device)
        direct = gpu.nvlink is not None and not gpu.nvlink.switched
        return int(pynvml.NVML_NVLINK_DEVICE_TYPE_GPU if direct else pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH)

    def nvmlDeviceGetNvLinkRemotePciInfo(self, device: Device, link: int) -> Any:
        gpu = self._check(device)
        assert gpu.nvlink is not None
        peer = next(other.gpu for other in self._devices if other.gpu.minor == gpu.nvlink.peers[0])
        return pci_info(peer.pci_bus_id or "0000:00:00.0")

    def nvmlDeviceGetP2PStatus(self, device: Device, other: Device, index: int) -> int:
        gpu = self._check(device)
        connected = gpu.nvlink is not None and other.gpu.minor in gpu.nvlink.peers
        return 0 if connected else 5

    def nvmlDeviceGetGpuFabricInfoV(self, device: Device, reference: Any) -> int:
        gpu, info = self._check(device), reference._obj
        if gpu.clique is None:
            self._fail(pynvml.NVML_ERROR_NOT_SUPPORTED)
        assert gpu.clique is not None
        cluster, _, clique = gpu.clique.rpartition(".")
        info.clusterUuid = (ctypes.c_uint8 * 16)(*uuid.UUID(cluster).bytes)
        info.cliqueId = int(clique)
        info.state = pynvml.NVML_GPU_FABRIC_STATE_COMPLETED
        info.status = pynvml.NVML_SUCCESS
        return 0
