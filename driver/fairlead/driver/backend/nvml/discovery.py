"""What NVML and the kernel say about each GPU, as an Inventory.

A query that is not supported, not permitted or unknown to an older driver leaves its attribute out. A GPU that cannot
be identified is left out with a warning. Changes nothing on the hardware.
The peers of an NVLink: NVML reports its remote end as a PCI address when it is a GPU, or as a switch. All GPUs of a node with links
to switches are peers. In a guest that hides the remote ends, the peer-to-peer status of each pair decides.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from fairlead.driver.backend.interface import BackendError, DeviceGone
from fairlead.driver.backend.nvml import tables
from fairlead.driver.backend.nvml.calls import Calls, text
from fairlead.driver.backend.nvml.mig import NvmlMig
from fairlead.driver.backend.nvml.sysfs import Kernel
from fairlead.driver.backend.types import Gpu, Inventory, MigDevice, MigProfile, NvLink

T = TypeVar("T")


class Discovery:
    def __init__(self, calls: Calls, mig: NvmlMig, kernel: Kernel) -> None:
        self._calls = calls
        self._mig = mig
        self._kernel = kernel

    def inventory(self) -> Inventory:
        """Raises BackendError when NVML does not even count the GPUs."""
        warnings: list[str] = []
        gpus: list[tuple[Any, Gpu]] = []
        for index in range(int(self._calls.call("DeviceGetCount"))):
            try:
                device = self._calls.call("DeviceGetHandleByIndex", index)
                gpu = self._gpu(device, warnings)
            except BackendError as error:
                warnings.append(f"GPU with NVML index {index}: {error}; it is left out")
                continue
            if gpu is not None:
                gpus.append((device, gpu))
        found = self._kernel.rails([gpu.pci_bus_id for _, gpu in gpus if gpu.pci_bus_id])
        gpus = [(device, replace(gpu, rail=found.get(gpu.pci_bus_id or ""))) for device, gpu in gpus]
        cuda = self._calls.query("SystemGetCudaDriverVersion")
        return Inventory(
            driver_version=text(self._calls.query("SystemGetDriverVersion")),
            cuda_driver_version=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
            gpus=tuple(sorted(with_peers(self._calls, gpus, warnings), key=lambda gpu: gpu.minor)),
            warnings=tuple(warnings),
        )

    def _gpu(self, device: Any, warnings: list[str]) -> Gpu | None:
        """One GPU, without its NVLink peers. A query that fails outright costs its attribute and a warning."""
        uuid = text(self._calls.call("DeviceGetUUID", device))
        assert uuid is not None

        def asked(call: Callable[[], T]) -> T | None:
            try:
                return call()
            except DeviceGone:
                raise
            except BackendError as error:
                warnings.append(f"{uuid}: {error}; what depends on it is left out")
                return None

        def query(name: str, *arguments: Any) -> Any:
            return asked(lambda: self._calls.query(name, device, *arguments))

        pci = query("DeviceGetPciInfo")
        bus_id = _bus_id(pci)
        minor = query("DeviceGetMinorNumber")
        if minor is None and bus_id is not None:
            minor = self._kernel.minor(bus_id)
        if minor is None:
            warnings.append(f"{uuid}: its device minor cannot be read; it is left out")
            return None
        architecture = query("DeviceGetArchitecture")
        capability = query("DeviceGetCudaComputeCapability")
        cores = query("DeviceGetNumGpuCores")
        cores_each = tables.CORES.get(tuple(capability)) if capability else None
        memory = asked(lambda: self._calls.memory(device))
        numa_node = self._kernel.numa_node(bus_id) if bus_id else None
        if numa_node is None:  # the kernel of a virtual machine may not tell
            numa_node = asked(lambda: self._calls.numa_node(device))
        mode = query("DeviceGetMigMode")
        mig_profiles, mig_devices = self._mig_of(device, uuid, int(minor), mode, warnings)
        return Gpu(
            minor=int(minor),
            uuid=uuid,
            product_name=text(query("DeviceGetName")),
            brand=tables.BRANDS.get(query("DeviceGetBrand") or 0),
            architecture=tables.ARCHITECTURES.get(architecture or 0),
            cuda_compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
            memory_bytes=memory.total or None if memory is not None else None,
            multiprocessors=cores // cores_each if cores and cores_each else None,
            addressing_mode=tables.ADDRESSING.get(query("DeviceGetAddressingMode")),
            pci_device_id=_device_id(pci),
            pci_bus_id=bus_id,
            pcie_root=self._kernel.pcie_root(bus_id) if bus_id else None,
            numa_node=numa_node,
            nvlink=self._nvlink(query, capability),
            clique=self._clique(device, warnings),
            mig_enabled=None if mode is None else bool(mode[0]),
            mig_mutable=mode is not None and self._mig.mutable(device),
            mig_profiles=mig_profiles,
            mig_devices=mig_devices,
        )

    def _mig_of(
        self, device: Any, uuid: str, minor: int, mode: Any, warnings: list[str]
    ) -> tuple[tuple[MigProfile, ...], tuple[MigDevice, ...]]:
        """The MIG profiles and devices of a GPU; `mode` is the answer of DeviceGetMigMode."""
        try:
            profiles = self._mig.profiles(device) if mode is not None else ()
            return profiles, self._mig.devices(device, uuid, minor, warnings)
        except DeviceGone:
            raise
        except BackendError as error:
            warnings.append(f"{uuid}: {error}; its MIG devices are left out")
            return (), ()

    def _nvlink(self, query: Callable[..., Any], capability: Any) -> NvLink | None:
        """The active links. Their peers follow when all GPUs are known (with_peers)."""
        active = 0
        for link in range(self._calls.nv.NVML_NVLINK_MAX_LINKS):
            state = query("DeviceGetNvLinkState", link)
            if state is None and link == 0:
                return None
            active += bool(state)
        # NVML's version counts revisions of the protocol; users speak of the generation, which the architecture fixes.
        version = {6: 1, 7: 2, 8: 3, 9: 4, 10: 5}.get(capability[0]) if capability else None
        return NvLink(version=version, links=active, peers=()) if active else None

    def _clique(self, device: Any, warnings: list[str]) -> str | None:
        try:
            return self._calls.clique(device)
        except DeviceGone:
            raise
        except BackendError as error:
            warnings.append(f"fabric: {error}; nvlinkClique is left out")
            return None


def _bus_id(info: Any) -> str | None:
    """As sysfs names it: lower case, with a domain of four digits, where NVML has eight."""
    if info is None:
        return None
    bus_id = f"{int(info.domain):04x}:{int(info.bus):02x}:{int(info.device):02x}.0"
    return bus_id if re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.0", bus_id) else None


def _device_id(info: Any) -> str | None:
    """Device and vendor, as NVML has them in one number: `0x233010DE`."""
    number = 0 if info is None else int(info.pciDeviceId)
    return f"0x{number:08X}" if number else None


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
