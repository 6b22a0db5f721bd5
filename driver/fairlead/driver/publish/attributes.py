"""The attributes of a GPU and of its MIG devices, as ResourceSlices hold them. Pure.

Names are those of NVIDIA's driver, so that claims port by changing the domain. A value that the API would refuse is
left out with a warning, never the device. Source: k8s.io/api/resource/v1 types.go.

`resourceName` is the extended resource under which the device plugin would offer the device (`nvidia.com/gpu`, `nvidia.com/mig-1g.10gb`),
by its strategy for MIG devices. `mixed`: each profile has a name of its own. `single`: where all GPUs of the node
are cut into devices of one profile, those are `nvidia.com/gpu`; a node that is cut otherwise offers nothing under a legacy
name. `none`: no names. DeviceClasses that stand for extended resources select by it.
Source: NVIDIA/k8s-device-plugin, internal/rm (resource names) and cmd/nvidia-device-plugin (strategies).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from fairlead.api import mig_profiles, names
from fairlead.api.mig_profiles import MigStrategy
from fairlead.driver.backend.types import Gpu, Inventory, MigProfile
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ResourceNames:
    """The extended resources of whole GPUs, and of MIG devices: one for all (`single`), or by profile."""

    gpu: str | None = None
    every_mig: str | None = None
    by_profile: bool = False

    def mig(self, profile: MigProfile) -> str | None:
        if self.by_profile:
            return f"{names.LEGACY_MIG_PREFIX}{mig_profiles.in_resource(profile.name)}"
        return self.every_mig


def resource_names(
    inventory: Inventory, strategy: MigStrategy, *, partitionable: frozenset[str] = frozenset()
) -> ResourceNames:
    """`partitionable` are the UUIDs of GPUs whose MIG devices are made on demand: they count as not cut."""
    if strategy == "none":
        return ResourceNames()
    if strategy == "mixed":
        return ResourceNames(gpu=names.LEGACY_GPU, by_profile=True)
    cut = [gpu for gpu in inventory.gpus if gpu.mig_enabled and gpu.uuid not in partitionable]
    if not cut:
        return ResourceNames(gpu=names.LEGACY_GPU)
    return ResourceNames(every_mig=names.LEGACY_GPU if is_single(inventory.gpus) else None)


def is_single(gpus: Sequence[Gpu]) -> bool:
    """Whether every GPU is cut, all into MIG devices of one product and profile."""
    kinds = {(gpu.product_name, mig.profile.name) for gpu in gpus for mig in gpu.mig_devices}
    return len(kinds) == 1 and all(gpu.mig_enabled and gpu.mig_devices for gpu in gpus)
