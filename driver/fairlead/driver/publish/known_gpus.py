"""The GPUs to publish, from one inventory to the next: present ones as they should appear, lost ones as they last were.

A GPU that responded once and is lost now stays, to be tainted: claims still hold it. A GPU whose MIG devices the driver
creates on demand appears unpartitioned whatever MIG devices exist just now: counters say to the scheduler what is left of
it, so its slice must not change with every claim.
Example: two H100s joined by NVLink, and a claim creates a MIG device on the first. MIG mode takes NVLink from both
ends, but both keep the links of the last inventory without MIG devices, and the first is not in MIG mode.
Pure but for its memory: same sequence of inventories in, same inventories out.
"""

from __future__ import annotations

import dataclasses

from fairlead.driver.backend.types import Gpu, Inventory, MigPlacement, NvLink


class KnownGpus:
    def __init__(self, *, dynamic_mig: bool) -> None:
        self.partitionable: frozenset[str] = frozenset()
        """UUIDs of the GPUs whose MIG devices are created on demand: each of theirs was created by the driver."""
        self._dynamic_mig = dynamic_mig
        self._gpus: dict[str, Gpu] = {}
        self._links: dict[str, tuple[NvLink | None, str | None]] = {}

    def update(self, inventory: Inventory, *, lost: frozenset[str], own: frozenset[MigPlacement]) -> Inventory:
        """`lost` are the UUIDs of GPUs that do not respond, `own` the MIG devices that the driver created."""
        partitionable = _partitionable(inventory, own) if self._dynamic_mig else frozenset()
        partitioned = frozenset(gpu.uuid for gpu in inventory.gpus if gpu.uuid in partitionable and gpu.mig_devices)
        if not partitioned:
            self._links = {gpu.uuid: (gpu.nvlink, gpu.clique) for gpu in inventory.gpus}
        present = {gpu.uuid: self._unpartitioned(gpu, partitioned) if partitioned else gpu for gpu in inventory.gpus}
        kept = {uuid: gpu for uuid, gpu in self._gpus.items() if uuid in lost and uuid not in present}
        self._gpus = present | kept
        self.partitionable = partitionable | (self.partitionable & kept.keys())
        gpus = tuple(sorted(self._gpus.values(), key=lambda gpu: (gpu.minor, gpu.uuid)))
        return dataclasses.replace(inventory, gpus=gpus)

    def _unpartitioned(self, gpu: Gpu, partitioned: frozenset[str]) -> Gpu:
        nvlink, clique = self._links.get(gpu.uuid, (gpu.nvlink, gpu.clique))
        enabled = False if gpu.uuid in partitioned and gpu.mig_mutable else gpu.mig_enabled
        return dataclasses.replace(gpu, nvlink=nvlink, clique=clique, mig_enabled=enabled)


def _partitionable(inventory: Inventory, own: frozenset[MigPlacement]) -> frozenset[str]:
    return frozenset(
        gpu.uuid
        for gpu in inventory.gpus
        if gpu.mig_profiles
        and (gpu.mig_mutable or gpu.mig_enabled)
        and all((gpu.uuid, mig.profile.id, mig.start) in own for mig in gpu.mig_devices)
    )
