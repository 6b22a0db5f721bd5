"""The devices of the last poll, each with all that is known of it. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from fairlead.driver.backend import device_names
from fairlead.driver.backend.types import Gpu, GpuCondition, Inventory, MigDevice, Telemetry
from fairlead.driver.publish.xid_counts import XidCounts


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A GPU, or with `mig` a MIG device on it. What is not known is empty; the condition and Xids are of whole GPUs.

    `name` is the device's in the slices.
    """

    name: str
    uuid: str
    gpu: Gpu
    mig: MigDevice | None = None
    memory_bytes: int | None = None
    telemetry: Telemetry
    condition: GpuCondition
    xids: Mapping[str, int] = dataclasses.field(default_factory=dict)
    last_xid: int | None = None


def measured(
    inventory: Inventory, telemetry: Iterable[Telemetry], conditions: Iterable[GpuCondition], xids: XidCounts
) -> list[Measured]:
    """Each GPU, followed by its MIG devices."""
    loads = {reading.uuid: reading for reading in telemetry}
    states = {condition.uuid: condition for condition in conditions}
    found = []
    for gpu in inventory.gpus:
        found.append(
            Measured(
                name=device_names.gpu_name(gpu),
                uuid=gpu.uuid,
                gpu=gpu,
                memory_bytes=gpu.memory_bytes,
                telemetry=loads.get(gpu.uuid) or Telemetry(uuid=gpu.uuid),
                condition=states.get(gpu.uuid) or GpuCondition(uuid=gpu.uuid),
                xids=xids.by_gpu.get(gpu.uuid, {}),
                last_xid=xids.last.get(gpu.uuid),
            )
        )
        found += [
            Measured(
                name=device_names.mig_name(gpu.minor, mig.profile, mig.start),
                uuid=mig.uuid,
                gpu=gpu,
                mig=mig,
                memory_bytes=mig.profile.memory_bytes,
                telemetry=loads.get(mig.uuid) or Telemetry(uuid=mig.uuid),
                condition=GpuCondition(uuid=mig.uuid),
            )
            for mig in gpu.mig_devices
        ]
    return found
