"""The attributes of a GPU and of its MIG devices, as ResourceSlices hold them. Pure.

Names are those of NVIDIA's driver, so that claims port by changing the domain. A value that the API would refuse is
left out with a warning, never the device. Source: k8s.io/api/resource/v1 types.go.
"""

from __future__ import annotations

import re

from fairlead.api import names
from fairlead.driver.backend.types import Gpu, Inventory, MigProfile
from fairlead.driver.publish.resource_names import ResourceNames
from fairlead.kube import semver
from fairlead.kube.resource import DeviceAttribute

STRING_LENGTH_MAX = 64
_PCI_BUS_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")


class GpuAttributes:
    """The attributes of one GPU: `gpu` for the whole of it, `mig` for a MIG device on it. What is left out is added to `warnings`."""

    def __init__(
        self,
        inventory: Inventory,
        gpu: Gpu,
        island: int | None,
        warnings: list[str],
        resources: ResourceNames | None = None,
        *,
        rail: int | None = None,
    ) -> None:
        self._resources = resources or ResourceNames()
        self._gpu = gpu
        self._warnings = warnings
        self._common: dict[str, DeviceAttribute] = {}
        self._read_common(inventory, gpu)
        if rail is not None:
            self._common["rail"] = DeviceAttribute(int_=rail)
        self.gpu = {
            "type": DeviceAttribute(string="gpu"),
            "uuid": DeviceAttribute(string=gpu.uuid),
            **self._common,
            "migCapable": DeviceAttribute(bool_=gpu.mig_enabled is not None),
            **_nvlink(gpu),
            **_resource(self._resources.gpu),
        }
        if island is not None:
            self.gpu["nvlinkDomain"] = DeviceAttribute(int_=island)

    def _read_common(self, inventory: Inventory, gpu: Gpu) -> None:
        """What a GPU and its MIG devices have in common."""
        self._string("productName", gpu.product_name)
        self._string("brand", gpu.brand)
        self._string("architecture", gpu.architecture)
        self._version("cudaComputeCapability", gpu.cuda_compute_capability)
        self._version("driverVersion", inventory.driver_version)
        self._version("cudaDriverVersion", inventory.cuda_driver_version)
        self._string("addressingMode", gpu.addressing_mode)
        if gpu.pci_bus_id is not None and not _PCI_BUS_ID.fullmatch(gpu.pci_bus_id):
            self._leave_out(names.PCI_BUS_ID, gpu.pci_bus_id, "not of the form 0000:07:00.0")
        else:
            self._string(names.PCI_BUS_ID, gpu.pci_bus_id)
        self._string(names.PCIE_ROOT, gpu.pcie_root)
        if gpu.numa_node is not None and gpu.numa_node >= 0:
            self._common[names.NUMA_NODE] = DeviceAttribute(int_=gpu.numa_node)

    def mig(self, profile: MigProfile, uuid: str | None) -> dict[str, DeviceAttribute]:
        """`uuid` is None while the MIG device does not exist."""
        attributes = {"type": DeviceAttribute(string="mig")}
        if uuid is not None:
            attributes["uuid"] = DeviceAttribute(string=uuid)
        return {
            **attributes,
            "profile": DeviceAttribute(string=profile.name),
            "parentUUID": DeviceAttribute(string=self._gpu.uuid),
            "parentIndex": DeviceAttribute(int_=self._gpu.minor),
            **self._common,
            **_resource(self._resources.mig(profile)),
        }

    def _string(self, name: str, value: str | None) -> None:
        if value is None or not value:
            return
        if len(value) > STRING_LENGTH_MAX:
            self._leave_out(name, value, f"longer than {STRING_LENGTH_MAX} characters")
            return
        self._common[name] = DeviceAttribute(string=value)

    def _version(self, name: str, value: str | None) -> None:
        if value is None:
            return
        try:
            self._common[name] = DeviceAttribute(version=str(semver.normalize(value)))
        except semver.VersionError:
            self._leave_out(name, value, "no version")

    def _leave_out(self, name: str, value: str, why: str) -> None:
        self._warnings.append(f"gpu-{self._gpu.minor}: attribute {name} left out: {value!r} is {why}")


def _resource(name: str | None) -> dict[str, DeviceAttribute]:
    return {} if name is None else {"resourceName": DeviceAttribute(string=name)}


def _nvlink(gpu: Gpu) -> dict[str, DeviceAttribute]:
    """Empty where the GPU has no active link, or is in MIG mode, which switches them off."""
    if gpu.nvlink is None or not gpu.nvlink.links or gpu.mig_enabled:
        return {}
    attributes = {"nvlinkLinks": DeviceAttribute(int_=gpu.nvlink.links)}
    if gpu.nvlink.version is not None:
        attributes["nvlinkVersion"] = DeviceAttribute(int_=gpu.nvlink.version)
    if gpu.nvlink.peers:
        mask = sum(1 << peer for peer in gpu.nvlink.peers)
        attributes["nvlinkPeers"] = DeviceAttribute(string=f"{mask:#x}")
    if gpu.clique is not None:
        attributes["nvlinkClique"] = DeviceAttribute(string=gpu.clique)
    return attributes
