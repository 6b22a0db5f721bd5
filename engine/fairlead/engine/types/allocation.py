"""An allocated claim, as far as the inventory counts it: its devices, and how much of each."""

from __future__ import annotations

from fairlead.engine.types.values import Amount, DeviceRef, Fact, amount, qualified
from fairlead.kube import resource
from fairlead.kube.quantity import QuantityError


class AllocatedDevice(Fact, frozen=True, kw_only=True):
    driver: str
    pool: str
    device: str
    admin: bool = False
    whole: bool = True
    consumed: tuple[tuple[str, Amount], ...] = ()  # qualified names
    tolerations: tuple[resource.DeviceToleration, ...] = ()

    @property
    def ref(self) -> DeviceRef:
        return DeviceRef(self.driver, self.pool, self.device)


class AllocatedClaim(Fact, frozen=True, kw_only=True):
    uid: str = ""  # in a recording the key of its table says it
    namespace: str
    name: str
    devices: tuple[AllocatedDevice, ...] = ()

    @property
    def counted(self) -> int:
        return [device.admin for device in self.devices].count(False)

    @classmethod
    def of(cls, claim: resource.ResourceClaim) -> AllocatedClaim | None:
        """From status.allocation; None where there is none."""
        meta, allocation = claim.metadata, claim.status.allocation
        return None if allocation is None else cls.planned(meta.uid, meta.namespace, meta.name, allocation)

    @classmethod
    def planned(cls, uid: str, namespace: str, name: str, allocation: resource.AllocationResult) -> AllocatedClaim:
        """As a plan allocates it, before anything is written."""
        devices = tuple(map(_device, allocation.devices.results))
        return cls(uid=uid, namespace=namespace, name=name, devices=devices)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def _device(result: resource.DeviceRequestAllocationResult) -> AllocatedDevice:
    return AllocatedDevice(
        driver=result.driver,
        pool=result.pool,
        device=result.device,
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
