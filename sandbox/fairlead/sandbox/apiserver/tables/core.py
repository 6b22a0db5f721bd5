"""The tables of all kinds but pods that have one of their own.

Source: pkg/printers/internalversion/printers.go (1.36).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.tables import (
    AGE,
    CONTAINERS_DOC,
    IMAGES_DOC,
    NAME,
    NONE,
    UNKNOWN,
    Col,
    Table,
    age_of,
    containers,
    human,
    label_selector,
    labels,
    name_of,
    named,
    parse_time,
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


_CONTAINERS = Col("Containers", CONTAINERS_DOC, wide=True)
_IMAGES = Col("Images", IMAGES_DOC, wide=True)


def _template(obj: Json) -> Json:
    spec: Json = obj.get("spec", {}).get("template", {}).get("spec") or {}
    return spec


def _condition(obj: Json, type_: str) -> bool:
    found = obj.get("status", {}).get("conditions") or []
    return any(c.get("type") == type_ and c.get("status") == "True" for c in found)


@named(
    Col("Status", "Status of the job."),
    Col("Completions", "V1JobStatus.succeeded"),
    Col("Duration", "Time required to complete the job."),
    _CONTAINERS,
    _IMAGES,
    Col("Selector", "V1JobSpec.selector", wide=True),
)
def JOBS(obj: Json, now: datetime) -> list[Any]:  # noqa: N802
    spec, status = obj.get("spec", {}), obj.get("status", {})
    done = status.get("succeeded", 0)
    if spec.get("completions") is not None:
        completions = f"{done}/{spec['completions']}"
    elif (spec.get("parallelism") or 0) > 1:
        completions = f"{done}/1 of {spec['parallelism']}"
    else:
        completions = f"{done}/1"
    duration = ""
    if status.get("startTime"):
        started = parse_time(status["startTime"])
        ended = parse_time(status["completionTime"]) if status.get("completionTime") else now
        duration = human((ended - started).total_seconds())
    word = "Running"
    for type_, shown in (
        ("Complete", "Complete"),
        ("Failed", "Failed"),
        ("Suspended", "Suspended"),
        ("FailureTarget", "FailureTarget"),
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
    ):
        if _condition(obj, type_):
            word = shown
            break
    else:
        if obj.get("metadata", {}).get("deletionTimestamp"):
            word = "Terminating"
    names, images = containers(_template(obj))
    return [word, completions, duration, names, images, label_selector(spec.get("selector"))]


@named(
    Col("Ready", "Number of the pod with ready state"),
    Col("Up-to-date", "V1DeploymentStatus.updatedReplicas"),
    Col("Available", "V1DeploymentStatus.availableReplicas"),
    _CONTAINERS,
    _IMAGES,
    Col("Selector", "V1DeploymentSpec.selector", wide=True),
)
def DEPLOYMENTS(obj: Json, _now: datetime) -> list[Any]:  # noqa: N802
    spec, status = obj.get("spec", {}), obj.get("status", {})
    names, images = containers(_template(obj))
    return [
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        str(status.get("updatedReplicas", 0)),
        str(status.get("availableReplicas", 0)),
        names,
        images,
        label_selector(spec.get("selector")),
    ]


@named(
    Col("Desired", "V1DaemonSetStatus.desiredNumberScheduled"),
    Col("Current", "V1DaemonSetStatus.currentNumberScheduled"),
    Col("Ready", "V1DaemonSetStatus.numberReady"),
    Col("Up-to-date", "V1DaemonSetStatus.updatedNumberScheduled"),
    Col("Available", "V1DaemonSetStatus.numberAvailable"),
    Col("Node Selector", "V1PodSpec.nodeSelector"),
    _CONTAINERS,
    _IMAGES,
    Col("Selector", "V1DaemonSetSpec.selector", wide=True),
)
def DAEMON_SETS(obj: Json, _now: datetime) -> list[Any]:  # noqa: N802
    status = obj.get("status", {})
    counts = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    names, images = containers(_template(obj))
    return [
        *(str(status.get(count, 0)) for count in counts),
        labels(_template(obj).get("nodeSelector")),
        names,
        images,
        label_selector(obj.get("spec", {}).get("selector")),
    ]


@named(
    Col("Min Available", "The minimum number of pods that must be available."),
    Col("Max Unavailable", "The maximum number of pods that may be unavailable."),
    Col("Allowed Disruptions", "Calculated number of pods that may be disrupted at this time."),
)
def POD_DISRUPTION_BUDGETS(obj: Json, _now: datetime) -> list[Any]:  # noqa: N802
    spec, status = obj.get("spec", {}), obj.get("status", {})
    return [
        str(spec.get("minAvailable", "N/A")),
        str(spec.get("maxUnavailable", "N/A")),
        str(status.get("disruptionsAllowed", 0)),
    ]


def _priority_class(obj: Json, now: datetime) -> list[Any]:
    return [
        name_of(obj),
        str(obj.get("value", 0)),
        "true" if obj.get("globalDefault") else "false",
        age_of(obj, now),
        obj.get("preemptionPolicy", ""),
    ]


PRIORITY_CLASSES = Table(
    (
        NAME,
        Col("Value", "V1PriorityClass.value"),
        Col("Global-Default", "V1PriorityClass.globalDefault"),
        AGE,
        Col("PreemptionPolicy", "V1PriorityClass.preemptionPolicy"),
    ),
    _priority_class,
)
