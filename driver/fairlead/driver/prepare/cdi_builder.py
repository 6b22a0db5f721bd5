"""Collects what a claim's CDI spec holds: device nodes, driver files, metadata files and MPS directories."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from fairlead.driver.backend.interface import Backend
from fairlead.driver.prepare import cdi, nccl
from fairlead.driver.prepare.libraries import DriverFiles
from fairlead.driver.prepare.metadata import Metadata
from fairlead.driver.prepare.mps.daemons import CONTAINER_PIPE, Daemons
from fairlead.driver.prepare.records import ClaimRecord


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CdiBuilder:
    """`driver_files` are those of NVIDIA's driver, of which a claim gets what its capabilities say."""

    backend: Backend
    metadata: Metadata
    daemons: Daemons
    driver_files: DriverFiles
    boot_id: str

    def build(self, record: ClaimRecord) -> dict[str, Any]:
        """The spec of a claim whose devices exist and whose metadata is written. Raises BackendError."""
        edits: dict[str, cdi.DeviceEdits] = {}
        for device in record.devices:
            instances = None
            if device.mig is not None and device.mig.gi_id is not None and device.mig.ci_id is not None:
                instances = device.mig.gi_id, device.mig.ci_id
            before = edits.get(device.cdi_name, cdi.DeviceEdits())
            mounts = (*before.mounts, *self.metadata.mounts(record, device))
            env: tuple[str, ...] = ()
            if record.mps is not None and device.device in record.mps.devices:
                env = (f"CUDA_MPS_PIPE_DIRECTORY={CONTAINER_PIPE}",)
                mounts += self.daemons.mounts(record.uid)
            if record.nccl_topology:
                env += (f"NCCL_TOPO_FILE={nccl.CONTAINER_FILE}",)
                mounts += (self.metadata.topology_mount(record.uid),)
            nodes = self.backend.device_nodes(device.minor, instances)
            edits[device.cdi_name] = cdi.DeviceEdits(uuid=device.uuid, nodes=nodes, env=env, mounts=mounts)
        return cdi.build(
            msgspec.structs.replace(record, state="prepared"),
            boot_id=self.boot_id,
            edits=edits,
            control=self.backend.control_nodes(),
            mounts=self.driver_files.of(record.capabilities),
        )
