"""An allocation as JSON for `status.allocation`: the one place that spells the API's field names on the way out.

Exists apart from the model so that the model stays values. Adds nothing: what is empty is left out, as the API server would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from fairlead.engine.types.model import Allocation, DeviceResult


def allocation_json(allocation: Allocation, timestamp: str | None) -> dict[str, Any]:
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
