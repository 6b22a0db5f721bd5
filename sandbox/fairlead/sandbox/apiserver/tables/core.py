"""Tables of the core group but pods: nodes, namespaces, events, secrets.

Source: pkg/printers/internalversion/printers.go (1.36).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.tables import (
    AGE,
    NAME,
    NONE,
    UNKNOWN,
    Col,
    Table,
    age_of,
    name_of,
    named,
    since,
)

_ROLE_PREFIX = "node-role.kubernetes.io/"


def _nodes(node: Json, now: datetime) -> list[Any]:
    status = node.get("status", {})
    info = status.get("nodeInfo") or {}
    ready = next((c for c in status.get("conditions") or [] if c.get("type") == "Ready"), None)
    states = ["Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"]
    if node.get("spec", {}).get("unschedulable"):
        states.append("SchedulingDisabled")
    given = node.get("metadata", {}).get("labels") or {}
    roles = sorted(
        {key.removeprefix(_ROLE_PREFIX) for key in given if key.startswith(_ROLE_PREFIX) and key != _ROLE_PREFIX}
        | {value for key, value in given.items() if key == "kubernetes.io/role" and value}
    )
    kernel, arch = info.get("kernelVersion") or UNKNOWN, info.get("architecture")
    return [
        name_of(node),
        ",".join(states),
        ",".join(roles) or NONE,
        age_of(node, now),
        info.get("kubeletVersion", ""),
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        info.get("osImage") or UNKNOWN,
        f"{kernel} ({arch})" if arch else kernel,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _address(status: Json, type_: str) -> str:
    return next((a.get("address", "") for a in status.get("addresses") or [] if a.get("type") == type_), NONE)


@named(Col("Status", "The status of the namespace"))
def NAMESPACES(obj: Json, _now: datetime) -> list[Any]:  # noqa: N802  # the decorator makes it a constant
    return [obj.get("status", {}).get("phase", "")]


@named(Col("Type", "V1Secret.type"), Col("Data", "V1Secret.data"))
def SECRETS(obj: Json, _now: datetime) -> list[Any]:  # noqa: N802
    return [obj.get("type", ""), str(len(obj.get("data") or {}))]


def _event(obj: Json, now: datetime) -> list[Any]:
    target = obj.get("involvedObject") or obj.get("regarding") or {}
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    series = obj.get("series") or {}
    born = obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp") or obj.get("eventTime")
    first = since(born, now)
    last_text = obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp")
    last = since(last_text, now) if last_text else first
    count = obj.get("count") or obj.get("deprecatedCount") or 1
    if series:
        last, count = since(series.get("lastObservedTime"), now), series.get("count", 1)
    component = source.get("component") or obj.get("reportingComponent") or obj.get("reportingController") or ""
    host = source.get("host") or obj.get("reportingInstance") or ""
    kind = str(target.get("kind", "")).lower()
    shown = f"{kind}/{target.get('name', '')}" if target.get("name") else kind
    return [
        last,
        obj.get("type", ""),
        obj.get("reason", ""),
        shown,
        target.get("fieldPath", ""),
        f"{component}, {host}" if host else component,
        str(obj.get("message") or obj.get("note") or "").strip(),
        first,
        int(count),
        name_of(obj),
    ]


EVENTS = Table(
    (
        Col("Last Seen", "CoreV1Event.lastTimestamp"),
        Col("Type", "CoreV1Event.type"),
        Col("Reason", "CoreV1Event.reason"),
        Col("Object", "CoreV1Event.involvedObject"),
        Col("Subobject", "CoreV1Event.involvedObject", wide=True),
        Col("Source", "CoreV1Event.source", wide=True),
        Col("Message", "CoreV1Event.message"),
        Col("First Seen", "CoreV1Event.firstTimestamp", wide=True),
        Col("Count", "CoreV1Event.count", wide=True),
        Col("Name", "V1ObjectMeta.name", format="name", wide=True),
    ),
    _event,
)
NODES = Table(
    (
        NAME,
        Col("Status", "The status of the node"),
        Col("Roles", "The roles of the node"),
        AGE,
        Col("Version", "V1NodeSystemInfo.kubeletVersion"),
        Col("Internal-IP", "V1NodeStatus.addresses", wide=True),
        Col("External-IP", "V1NodeStatus.addresses", wide=True),
        Col("OS-Image", "V1NodeSystemInfo.osImage", wide=True),
        Col("Kernel-Version", "V1NodeSystemInfo.kernelVersion", wide=True),
        Col("Container-Runtime", "V1NodeSystemInfo.containerRuntimeVersion", wide=True),
    ),
    _nodes,
)
