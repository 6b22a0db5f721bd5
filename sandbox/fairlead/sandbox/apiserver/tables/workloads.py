"""Tables of batch, apps, policy and scheduling.

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
)

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
