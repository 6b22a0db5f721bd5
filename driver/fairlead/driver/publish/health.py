"""The health of each published device, for kubelet's health stream. Pure.

Stream and taints agree, because both follow from the same faults.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Literal

from fairlead.driver.backend.types import GpuStatus
from fairlead.driver.publish.faults import Faults, describe, is_severe
from fairlead.kube.resource import Device

HealthState = Literal["healthy", "unhealthy", "unknown"]

MESSAGE_MAX = 1024


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHealth:
    """One published device. `updated_s` is the time of the poll, in seconds since the epoch."""

    pool: str
    device: str
    state: HealthState
    updated_s: float
    message: str = ""


def device_health(
    devices: Iterable[Device],
    statuses: Iterable[GpuStatus],
    faults: Faults,
    *,
    unhealthy: Mapping[str, str],
    pool: str,
    now_s: float,
) -> tuple[DeviceHealth, ...]:
    """The health of each published device: that of its GPU, and its own (`unhealthy`, message by name).

    Unknown where the GPU's status is not known.
    """
    by_uuid = {status.uuid: status for status in statuses}
    found = []
    for device in devices:
        attribute = device.attributes.get("parentUUID") or device.attributes.get("uuid")
        uuid = attribute.string if attribute is not None and attribute.string else ""
        status = by_uuid.get(uuid)
        if is_severe(faults, uuid) or device.name in unhealthy:
            state: HealthState = "unhealthy"
        else:
            state = "healthy" if status is not None and status.responds else "unknown"
        text = describe(faults, uuid) or unhealthy.get(device.name, "") or (status.message if status else "")
        found.append(
            DeviceHealth(pool=pool, device=device.name, state=state, updated_s=now_s, message=text[:MESSAGE_MAX])
        )
    return tuple(found)
