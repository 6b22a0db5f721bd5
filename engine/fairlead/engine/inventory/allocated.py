"""An allocated claim, as far as the inventory counts it: its devices, and how much of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairlead.engine.types.amounts import amount, qualified
from fairlead.engine.types.references import DeviceRef
from fairlead.kube.quantity import QuantityError

if TYPE_CHECKING:
    from fairlead.engine.types.allocation import Allocation, DeviceResult
    from fairlead.engine.types.amounts import Amount
    from fairlead.kube import resource


@dataclass(frozen=True, slots=True)
class AllocatedDevice:
    """One result of an allocation."""

    ref: DeviceRef
    admin: bool
    whole: bool
    consumed: tuple[tuple[str, Amount], ...]  # qualified names
    tolerations: tuple[resource.DeviceToleration, ...] = ()


@dataclass(frozen=True, slots=True)
class AllocatedClaim:
    uid: str
    namespace: str
    name: str
    devices: tuple[AllocatedDevice, ...]
    counted: int  # of them, without those of admin access

    @classmethod
    def of(cls, claim: resource.ResourceClaim) -> AllocatedClaim | None:
        """From status.allocation; None where there is none."""
        meta = claim.metadata
        allocation = claim.status.allocation
        if allocation is None:
            return None
        devices = tuple(map(_device, allocation.devices.results))
        return cls(meta.uid, meta.namespace, meta.name, devices, sum(not device.admin for device in devices))

    @classmethod
    def planned(cls, uid: str, namespace: str, name: str, allocation: Allocation) -> AllocatedClaim:
        """As a plan allocates it, before anything is written."""
        devices = tuple(map(_planned_device, allocation.results))
        return cls(uid, namespace, name, devices, sum(not device.admin for device in devices))

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def _planned_device(result: DeviceResult) -> AllocatedDevice:
    return AllocatedDevice(
        ref=result.device,
        admin=result.admin_access,
        whole=result.share_id is None,
        consumed=tuple(
            (qualified(name, result.device.driver), _measured(value)) for name, value in result.consumed_capacity
        ),
        tolerations=result.tolerations,
    )


def _device(result: resource.DeviceRequestAllocationResult) -> AllocatedDevice:
    return AllocatedDevice(
        ref=DeviceRef(result.driver, result.pool, result.device),
        admin=bool(result.admin_access),
        whole=result.share_id is None,
        consumed=tuple(
            (qualified(name, result.driver), _measured(value))
            for name, value in sorted(result.consumed_capacity.items())
        ),
        tolerations=result.tolerations,
    )


def _measured(value: str | int) -> Amount:
    """0 for what is no quantity: the rest of the claim still counts."""
    try:
        return amount(value)
    except QuantityError:
        return 0
