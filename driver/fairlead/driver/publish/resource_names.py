"""Under which extended resource the device plugin would offer each device: `nvidia.com/gpu`, `nvidia.com/mig-1g.10gb`. Pure.

By the device plugin's strategy for MIG devices. `mixed`: each profile has a name of its own. `single`: where all GPUs of the node
are cut into devices of one profile, those are `nvidia.com/gpu`; a node that is cut otherwise offers nothing under a legacy
name. `none`: no names. DeviceClasses that stand for extended resources select by it.
Source: NVIDIA/k8s-device-plugin, internal/rm (resource names) and cmd/nvidia-device-plugin (strategies).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from fairlead.api import mig_profiles, names
from fairlead.api.mig_profiles import MigStrategy
from fairlead.driver.backend.types import Gpu, Inventory, MigProfile


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
