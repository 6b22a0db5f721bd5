"""A claim's allocation: as a plan writes it to `status.allocation`, and as far as the inventory counts it.

The one place that spells the API's field names on the way out. What is empty is left out of the JSON, as the API server does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from fairlead.engine.types.values import Amount, DeviceRef, Fact, amount, qualified
from fairlead.kube import resource
from fairlead.kube.quantity import QuantityError


class DeviceResult(msgspec.Struct, frozen=True, kw_only=True):
    """One device of an allocation. `request` is "name" or "name/sub"."""

    request: str
    device: DeviceRef
    admin_access: bool = False
    share_id: str | None = None
    consumed_capacity: tuple[tuple[str, str], ...] = ()  # name, canonical quantity; sorted
    tolerations: tuple[Any, ...] = ()  # resource.DeviceToleration, copied from the request
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceConfig:
    source: Literal["FromClass", "FromClaim"]
    requests: tuple[str, ...]
    driver: str
    parameters: Any  # JSON, as the user wrote it


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """What a claim is allocated. `node_selector` is a core/v1 NodeSelector as JSON; None means usable on every node."""

    results: tuple[DeviceResult, ...]
    config: tuple[DeviceConfig, ...] = ()
    node_selector: Mapping[str, Any] | None = None

    def to_json(self, *, timestamp: str | None = None) -> dict[str, Any]:
        """`status.allocation` as the API has it; `timestamp` is the time of the write (RFC 3339, whole seconds)."""
        return _allocation_json(self, timestamp)


def _allocation_json(allocation: Allocation, timestamp: str | None) -> dict[str, Any]:
    devices: dict[str, Any] = {"results": [_result(result) for result in allocation.results]}
    if allocation.config:
        devices["config"] = [
            {
                "source": config.source,
                **({"requests": list(config.requests)} if config.requests else {}),
                "opaque": {"driver": config.driver, "parameters": config.parameters},
            }
            for config in allocation.config
        ]
    body: dict[str, Any] = {"devices": devices}
    if allocation.node_selector is not None:
        body["nodeSelector"] = dict(allocation.node_selector)
    if timestamp is not None:
        body["allocationTimestamp"] = timestamp
    return body


def _result(result: DeviceResult) -> dict[str, Any]:
    body: dict[str, Any] = {
        "request": result.request,
        "driver": result.device.driver,
        "pool": result.device.pool,
        "device": result.device.device,
    }
    if result.admin_access:
        body["adminAccess"] = True
    if result.tolerations:
        body["tolerations"] = [plain_json(toleration) for toleration in result.tolerations]
    if result.binding_conditions:
        body["bindingConditions"] = list(result.binding_conditions)
        body["bindingFailureConditions"] = list(result.binding_failure_conditions)
    if result.share_id is not None:
        body["shareID"] = result.share_id
    if result.consumed_capacity:
        body["consumedCapacity"] = dict(result.consumed_capacity)
    return body


def plain_json(value: msgspec.Struct) -> Any:
    """A struct as JSON has it: dicts and lists, no tuples."""
    return msgspec.json.decode(msgspec.json.encode(value))


class AllocatedDevice(Fact, frozen=True, kw_only=True):
    """One result of an allocation."""

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
        """Of its devices, those without admin access."""
        return [device.admin for device in self.devices].count(False)

    @classmethod
    def of(cls, claim: resource.ResourceClaim) -> AllocatedClaim | None:
        """From status.allocation; None where there is none."""
        meta = claim.metadata
        allocation = claim.status.allocation
        if allocation is None:
            return None
        devices = tuple(map(_device, allocation.devices.results))
        return cls(uid=meta.uid, namespace=meta.namespace, name=meta.name, devices=devices)

    @classmethod
    def planned(cls, uid: str, namespace: str, name: str, allocation: Allocation) -> AllocatedClaim:
        """As a plan allocates it, before anything is written."""
        devices = tuple(map(_planned_device, allocation.results))
        return cls(uid=uid, namespace=namespace, name=name, devices=devices)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def _planned_device(result: DeviceResult) -> AllocatedDevice:
    return AllocatedDevice(
        driver=result.device.driver,
        pool=result.device.pool,
        device=result.device.device,
        admin=result.admin_access,
        whole=result.share_id is None,
        consumed=tuple(
            (qualified(name, result.device.driver), _measured(value)) for name, value in result.consumed_capacity
        ),
        tolerations=result.tolerations,
    )


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
