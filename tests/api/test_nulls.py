"""Our kinds, as the cluster holds them, and our drivers' parameters read a null as a field that is absent."""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from fairlead.api import config
from fairlead.api.base import ManifestError
from fairlead.api.config import GpuConfig, MigDeviceConfig
from fairlead.api.flavor import Flavor
from fairlead.api.gang import Gang
from fairlead.api.policy import TenancyPolicy
from fairlead.api.queue import Queue

Json = dict[str, Any]
METADATA: Json = {"name": "a", "namespace": "ml", "labels": {"team": "a"}, "finalizers": ["a.b/c"]}
CONDITION: Json = {
    "type": "Ready", "status": "True", "reason": "Ok", "message": "m", "observedGeneration": 1, "lastTransitionTime": "t",
}  # fmt: skip
RULE: Json = {"key": "team", "operator": "In", "values": ["a"]}
SELECTOR: Json = {"matchLabels": {"team": "a"}, "matchExpressions": [RULE]}
MPS: Json = {
    "defaultActiveThreadPercentage": 50, "defaultPinnedDeviceMemoryLimit": "1Gi",
    "defaultPerDevicePinnedMemoryLimit": {"0": "1Gi"}, "multiUser": True,
}  # fmt: skip
HOLD: Json = {"reason": "fans", "by": "ann", "since": "2026-11-24T08:00:00Z", "evict": True, "protected": True}
QUEUE: Json = {
    "apiVersion": "fairlead.dev/v1alpha1", "kind": "Queue", "metadata": METADATA,
    "spec": {
        "parent": "root", "namespaceSelector": SELECTOR, "priority": 3, "strategy": "spread", "ordering": "StrictFIFO",
        "preemption": "Never", "movable": True, "models": "any", "members": "all", "minRuntime": "30m", "maxMinRuntime": "2h", "hold": HOLD,
        "maxCheckpointGrace": "5m", "maxTerminationGrace": "5m", "lostNodeTimeout": "5m", "maxPriority": 5, "podDisruptionBudgets": "Respected", "disruptionBudget": {"evictions": 2, "window": "2h"},
        "flavors": [
            {"flavor": "h100", "deserved": 4, "limit": 8, "borrowingLimit": 2, "lendingLimit": 1, "weight": 2.0}
        ],
        "schedule": [
            {
                "name": "nights", "start": "0 20 * * *", "for": "11h", "timeZone": "Europe/Berlin",
                "flavors": [{"flavor": "h100", "deserved": 6, "limit": 9, "borrowingLimit": 3, "lendingLimit": 2, "weight": 3.0}],
            }
        ],
        "budget": {"gpuHours": "10", "per": "week", "timeZone": "Europe/Berlin", "onExhausted": "stop", "warnAt": [50]},
        "waitTarget": "10m",
        "idle": {"below": "10%", "devices": "Any", "for": "30m", "grace": "5m", "then": "evict"},
    },
    "status": {
        "observedGeneration": 1, "waiting": 1, "running": 2, "evictions": ["t"], "usageTime": "t", "conditions": [CONDITION],
        "usage": [{"flavor": "h100", "allocated": 1, "demand": 2, "fairShare": 3, "pastUsage": 0.5}],
        "schedule": {
            "inForce": [{"name": "nights", "until": "t"}], "nextChange": "t",
            "quotas": [{"flavor": "h100", "deserved": 6, "limit": 9}],
        },
        "budget": {"gpuHours": "10", "spent": "5", "percent": 50, "renewsAt": "t"},
    },
}  # fmt: skip
OF_A_FLAVOR: Json = {
    **QUEUE,
    "spec": {"budget": {"flavor": "cpu", "hours": "1000", "per": "day"}},
    "status": {"budget": {"flavor": "cpu", "hours": "1000", "unit": "cpu-hours", "renewsAt": "t"}},
}
PRICE: Json = {"perHour": "2.50", "currency": "EUR", "from": "2026-01-01T00:00:00Z", "capacityType": "spot"}
FLAVOR: Json = {
    "apiVersion": "fairlead.dev/v1alpha1", "kind": "Flavor", "metadata": METADATA,
    "spec": {"driver": "gpu.nvidia.com", "deviceSelector": "true", "measure": "Capacity", "capacityName": "memory", "price": [PRICE]},
    "status": {
        "observedGeneration": 1, "devices": 1, "total": 2, "allocated": 1, "scaleUpSeconds": [240.0], "conditions": [CONDITION],
    },
}  # fmt: skip
SCALING: Json = {
    **FLAVOR,
    "spec": {
        "deviceSelector": "true", "measure": "Share",
        "autoscaling": {
            "mode": "ProvisioningRequest", "max": 64, "patience": "30m", "waitBeforeEviction": "10m", "provisioningClass": "a.b",
            "extendedResource": "nvidia.com/gpu", "nodeSelector": {"a": "b"}, "deviceClasses": ["c"],
            "nodeTemplates": [{"devices": 8, "labels": {"a": "b"}, "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
                               "allocatable": {"cpu": "8"}}],
        },
    },
}  # fmt: skip
OF_PODS: Json = {
    **FLAVOR, "spec": {"measure": "Resource", "resourceName": "cpu", "nodeSelector": {"a": "b"}},
}  # fmt: skip
GANG: Json = {
    "apiVersion": "fairlead.dev/v1alpha1", "kind": "Gang", "metadata": METADATA,
    "spec": {
        "size": 2, "queue": "a", "topology": "required:rack", "align": "a.b/c", "models": "same", "minRuntime": "1m", "hold": HOLD, "subgroupSize": 2, "subgroupTopology": "required:rack",
    },
    "status": {
        "observedGeneration": 1, "phase": "Waiting", "queue": "a", "members": 2, "withoutDevices": ["a"], "ready": 1, "position": 1, "reason": "r",
        "message": "m", "nodes": ["n"], "reservedNodes": ["n"], "waitSeconds": 1.5, "queuedTime": "t", "admittedTime": "t", "conditions": [CONDITION],
        "models": {"rule": "same", "held": ["2 × H100"]},
        "placement": [{"level": "rack", "asked": "required", "domains": 1, "apart": 0, "where": ["r: 2 members"]}],
        "why": {
            "message": "m", "advice": "a", "couldEverFit": True, "details": ["d"], "blockers": ["b"],
            "holders": [{"gang": "g", "queue": "q", "devices": 1}],
        },
        "asks": ["8 × gpu"],
        "nodesAwaited": {
            "state": "Asked", "mode": "Visible", "flavor": "f", "since": "t", "expected": "t", "evictsFrom": "t", "message": "m",
        },
        "forecast": {"p50": "t", "p90": "t", "asOf": "t", "because": "b", "never": True},
        "lastEviction": {
            "at": "t", "since": "t", "what": "w", "why": "y", "until": "t", "queue": "q", "owner": "u", "maker": "Job", "held": "t",
            "place": [{"node": "n", "devices": ["d/p/g"], "requests": {"cpu": 1}}],
            "refused": [{"node": "n", "until": "t", "times": 1, "why": "y"}],
        },
        "reservedUntil": "t",
        "evictions": [
            {"kind": "Move", "at": "t", "beneficiary": "ml/x", "place": [{"node": "n", "devices": ["d/p/g"], "requests": {"cpu": 1}}]}
        ],
    },
}  # fmt: skip
POLICY: Json = {
    "apiVersion": "fairlead.dev/v1alpha1", "kind": "TenancyPolicy", "metadata": METADATA,
    "spec": {
        "namespaceSelector": SELECTOR, "exemptions": {"namespaces": ["a"], "users": ["u"], "groups": ["g"]},
        "mode": "Warn", "deviceClasses": ["c"], "flavors": ["f"], "maxDevicesPerClaim": 2, "maxGangSize": 4,
        "maxMinRuntime": "1h", "maxCheckpointGrace": "5m", "maxTerminationGrace": "5m", "lostNodeTimeout": "5m", "maxPriority": 5,
        "isolation": "Any", "wholeGpus": "Forbid", "adminAccess": "Reject", "sharingStrategies": ["MPS"],
        "resourceRequests": "EqualLimits", "multiGpuJobs": "RequireGang", "podFailurePolicy": "Default", "keepIdle": "Reject", "models": "same", "members": "all",
        "deviceBypass": "Reject", "legacyRequests": "Reject",
        "hostAccess": {
            "hostPaths": [{"path": "/data", "readOnly": True}], "capabilities": ["IPC_LOCK"], "namespaces": ["Network"],
            "csiDrivers": ["d"],
        },
        "tolerations": {
            "missing": "Require",
            "tolerations": [
                {"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 3}
            ],
        },
        "nodeAffinity": {"missing": "Require", "matchExpressions": [RULE]},
        "rules": [
            {"name": "n", "kinds": ["Job"], "expression": "true", "message": "m", "messageExpression": "'m'"}
        ],
    },
    "status": {"observedGeneration": 1, "conditions": [CONDITION]},
}  # fmt: skip
GPU: Json = {
    "apiVersion": "gpu.fairlead.dev/v1alpha1", "kind": "GpuConfig", "capabilities": ["compute", "utility"], "sharing": {"strategy": "MPS", "mpsConfig": MPS},
}  # fmt: skip
TIME_SLICES: Json = {
    "apiVersion": "gpu.fairlead.dev/v1alpha1", "kind": "GpuConfig", "ncclTopology": True,
    "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Short"}},
}  # fmt: skip
MIG: Json = {**GPU, "kind": "MigDeviceConfig"}
MIG_TURNS: Json = {
    "apiVersion": "gpu.fairlead.dev/v1alpha1", "kind": "MigDeviceConfig",
    "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Default"}},
}  # fmt: skip

Read = Callable[[Json], BaseModel]


def _parameters(raw: Json) -> BaseModel:
    return config.decode(raw, subject="ResourceClaim ml/a")


CASES: list[tuple[type[BaseModel], list[Json], Read]] = [
    (Queue, [QUEUE, OF_A_FLAVOR], Queue.stored),
    (Flavor, [FLAVOR, SCALING, OF_PODS], Flavor.stored),
    (Gang, [GANG], Gang.stored),
    (TenancyPolicy, [POLICY], TenancyPolicy.stored),
    (GpuConfig, [GPU, TIME_SLICES], _parameters),
    (MigDeviceConfig, [MIG, MIG_TURNS], _parameters),
]
IDS = [case[0].__name__ for case in CASES]


def places(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every member of every object in a document."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*at, key)
            yield from places(inner, (*at, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places(inner, (*at, index))


def edited(document: Json, place: tuple[str | int, ...], *, absent: bool) -> Json:
    document = copy.deepcopy(document)
    holder: Any = document
    for step in place[:-1]:
        holder = holder[step]
    if absent:
        del holder[place[-1]]
    else:
        holder[place[-1]] = None
    return document


def outcome(read: Read, document: Json) -> object:
    """The object, or the message of the error."""
    try:
        return read(document)
    except ManifestError as error:
        return str(error)


@pytest.mark.parametrize(("model", "documents", "read"), CASES, ids=IDS)
def test_a_null_reads_as_absent_at_every_place(model: type[BaseModel], documents: list[Json], read: Read) -> None:
    for document in documents:
        for place in places(document):
            with_null, without = (outcome(read, edited(document, place, absent=absent)) for absent in (False, True))
            assert with_null == without, place


def test_what_a_user_writes_is_refused_with_a_null_as_by_the_apiserver() -> None:
    with pytest.raises(ManifestError, match=r"Queue ml/a: spec.flavors: input should be a valid list, not None"):
        Queue.read(edited(QUEUE, ("spec", "flavors"), absent=False))


@pytest.mark.parametrize(("model", "documents", "read"), CASES, ids=IDS)
def test_the_documents_leave_out_no_field(model: type[BaseModel], documents: list[Json], read: Read) -> None:
    for document in documents:
        read(document)  # it is valid
    assert sorted(missing(model, documents, "")) == []


def missing(model: type[BaseModel], documents: list[Any], path: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        key = field.alias or name
        found = [document[key] for document in documents if key in document]
        if not found:
            yield f"{path}{key}"
        inner = next(_models(field.annotation), None)
        if inner is not None:
            nested = [each for value in found for each in (value if isinstance(value, list) else [value])]
            yield from missing(inner, [each for each in nested if isinstance(each, Mapping)], f"{path}{key}.")


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)
