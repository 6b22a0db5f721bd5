"""A claim's allocation, and its JSON for `status.allocation`: the one place that spells the API's field names on the way out.

What is empty is left out of the JSON, as the API server does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from fairlead.engine.types.references import DeviceRef


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
