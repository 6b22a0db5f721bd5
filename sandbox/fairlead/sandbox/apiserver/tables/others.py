"""Tables of resource.k8s.io and coordination, and that of every kind without one of its own.

Source: pkg/printers/internalversion/printers.go (1.36).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.tables import Col, named


@named(
    Col("Node", "V1ResourceSliceSpec.nodeName"),
    Col("Driver", "V1ResourceSliceSpec.driver"),
    Col("Pool", "V1ResourcePool.name"),
)
def RESOURCE_SLICES(obj: Json, _now: datetime) -> list[Any]:  # noqa: N802
    spec = obj.get("spec", {})
    return [spec.get("nodeName") or "<unset>", spec.get("driver", ""), (spec.get("pool") or {}).get("name", "")]


@named(Col("State", "A summary of the current state (allocated, pending, reserved, etc.)."))
def RESOURCE_CLAIMS(obj: Json, _now: datetime) -> list[Any]:  # noqa: N802
    status = obj.get("status") or {}
    deleted = bool(obj.get("metadata", {}).get("deletionTimestamp"))
    states = ["deleted"] if deleted else []
    if status.get("allocation"):
        states.append("allocated")
        if status.get("reservedFor"):
            states.append("reserved")
    elif not deleted:
        states.append("pending")
    return [",".join(states)]


@named()
def NAME_AND_AGE(_obj: Json, _now: datetime) -> list[Any]:  # noqa: N802
    return []


@named(Col("Holder", "V1LeaseSpec.holderIdentity"))
def LEASES(obj: Json, _now: datetime) -> list[Any]:  # noqa: N802
    return [obj.get("spec", {}).get("holderIdentity") or ""]
