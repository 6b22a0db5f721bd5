"""How large an object may be that is judged: what a review costs grows with the object, and all reviews share one loop.

Counted before anything else is done with the object; what exceeds a maximum is refused with the field, its number and the maximum.
The maxima are far above what runs (kubelet starts no pod with hundreds of containers), and such that a review takes less than 50 ms.
Those of claims are the API's own (resource.k8s.io/v1). `has_too_many_values` bounds what decoding costs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from fairlead.api import names
from fairlead.webhook.objects.fields import Json, object_at
from fairlead.webhook.objects.pod_templates import WORKLOADS, pod_templates

VALUES_MAX = 250_000
_PART_BYTES = 256 * 1024

MAXIMA: Final = {
    "containers": 1_000,
    "env": 20_000,
    "volumeMounts": 10_000,
    "resources": 5_000,
    "capabilities": 5_000,
    "resourceClaims": 1_000,
    "volumes": 500,
    "tolerations": 1_000,
    "schedulingGates": 1_000,
    "nodeSelector": 1_000,
    "nodeSelectorTerms": 1_000,
    "matchExpressions": 2_000,
    "values": 10_000,
    "ownerReferences": 1_000,
    "annotations": 5_000,
    names.ANNOTATION_PREFIX: 200,
    "labels": 5_000,
    "pod templates": 128,
    "requests": 32,
    "selectors": 1_024,
    "config": 32,
    "constraints": 32,
}
"""By field, in all of one object: the containers of all kinds and templates together."""
_CLAIMS = frozenset({"resourceclaims.resource.k8s.io", "resourceclaimtemplates.resource.k8s.io"})


def faults(group_resource: str, object_: Json) -> list[str]:
    """One for each maximum that the object exceeds. Raises MalformedError where its templates cannot be found."""
    counts: dict[str, int] = {}
    for field, _, number in _numbers(group_resource, object_):
        if number:
            counts[field] = counts.get(field, 0) + number
    return [
        f"{_largest(field, group_resource, object_)}: {number} {_name(field)} in all, but at most {MAXIMA[field]} are allowed in one "
        "object; use fewer, or several objects"
        for field, number in counts.items()
        if number > MAXIMA[field]
    ]


def _largest(field: str, group_resource: str, object_: Json) -> str:
    """Where most of a field's entries are."""
    places = ((number, path) for each, path, number in _numbers(group_resource, object_) if each == field)
    return max(places, key=lambda place: place[0])[1]


def has_too_many_values(body: bytes) -> bool:
    """Whether the JSON text holds more than VALUES_MAX objects, lists and members. Reads no further than needed."""
    if len(body) <= VALUES_MAX:
        return False
    found = 0
    for begin in range(0, len(body), _PART_BYTES):
        part = body[begin : begin + _PART_BYTES]
        found += part.count(b",") + part.count(b"{") + part.count(b"[")
        if found > VALUES_MAX:
            return True
    return False


def _name(field: str) -> str:
    return f"annotations {field}*" if field == names.ANNOTATION_PREFIX else field


def _numbers(group_resource: str, object_: Json) -> Iterator[tuple[str, str, int]]:
    yield from _metadata(object_.get("metadata"), "metadata")
    if group_resource == "pods":
        yield from _pod(object_.get("spec"), "spec")
    elif group_resource in WORKLOADS:
        yield from _workload(group_resource, object_)
    elif group_resource in _CLAIMS:
        spec, path = object_.get("spec"), "spec"
        if group_resource.startswith("resourceclaimtemplates"):
            spec, path = _map(spec).get("spec"), "spec.spec"
        yield from _devices(_map(_map(spec).get("devices")), f"{path}.devices")
    elif group_resource == "deviceclasses.resource.k8s.io":
        yield from _lengths(_map(object_.get("spec")), "spec", ("config", "selectors"))


def _workload(group_resource: str, object_: Json) -> Iterator[tuple[str, str, int]]:
    spec = _map(object_.get("spec"))
    for key in ("annotations", "labels"):
        yield key, f"spec.{key}", _length(spec.get(key))
    listed = _template_lists(spec)
    for path, number in listed:
        yield "pod templates", path, number
    if sum(number for _, number in listed) > MAXIMA["pod templates"]:
        return  # each of them costs time already where it is looked for
    for template in pod_templates(group_resource, object_):
        found = object_at(object_, template.path)
        yield from _metadata(found.get("metadata"), f"{template.where}.metadata")
        yield from _pod(found.get("spec"), f"{template.where}.spec")


def _template_lists(spec: Json) -> list[tuple[str, int]]:
    """The lists of a workload's spec that have a template per entry, and their lengths."""
    cluster = _map(spec.get("rayClusterSpec"))
    return [
        ("spec.replicatedJobs", _length(spec.get("replicatedJobs"))),
        ("spec.workerGroupSpecs", _length(spec.get("workerGroupSpecs"))),
        ("spec.rayClusterSpec.workerGroupSpecs", _length(cluster.get("workerGroupSpecs"))),
        ("spec.pytorchReplicaSpecs", _length(spec.get("pytorchReplicaSpecs"))),
        ("spec.mpiReplicaSpecs", _length(spec.get("mpiReplicaSpecs"))),
    ]


def _metadata(metadata: Any, path: str) -> Iterator[tuple[str, str, int]]:
    found = _map(metadata)
    yield from _lengths(found, path, ("annotations", "labels", "ownerReferences"))
    ours = sum(1 for key in _map(found.get("annotations")) if key.startswith(names.ANNOTATION_PREFIX))
    yield names.ANNOTATION_PREFIX, f"{path}.annotations", ours


def _pod(spec: Any, path: str) -> Iterator[tuple[str, str, int]]:
    found = _map(spec)
    yield from _lengths(found, path, ("resourceClaims", "volumes", "tolerations", "schedulingGates", "nodeSelector"))
    for name in ("containers", "initContainers", "ephemeralContainers"):
        if (listed := found.get(name)) is None:
            continue
        yield "containers", f"{path}.{name}", _length(listed)
        if _length(listed) > MAXIMA["containers"]:
            continue
        for container in listed if isinstance(listed, list) else ():
            yield from _container(_map(container), f"{path}.{name}[]")
    if "affinity" not in found:
        return
    affinity = _map(_map(_map(found["affinity"]).get("nodeAffinity")).get(_REQUIRED))
    terms, where = affinity.get("nodeSelectorTerms"), f"{path}.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
    yield "nodeSelectorTerms", where, _length(terms)
    for term in terms if isinstance(terms, list) and len(terms) <= MAXIMA["nodeSelectorTerms"] else ():
        for key in ("matchExpressions", "matchFields"):
            expressions = _map(term).get(key)
            yield "matchExpressions", f"{where}[].{key}", _length(expressions)
            for expression in expressions if isinstance(expressions, list) else ():
                yield "values", f"{where}[].{key}[].values", _length(_map(expression).get("values"))


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _container(container: Json, path: str) -> Iterator[tuple[str, str, int]]:
    for key in ("env", "volumeMounts"):
        if key in container:
            yield key, f"{path}.{key}", _length(container[key])
    if "resources" in container:
        resources = _map(container["resources"])
        for side in ("limits", "requests", "claims"):
            yield "resources", f"{path}.resources.{side}", _length(resources.get(side))
    if "securityContext" in container:
        added = _map(_map(container["securityContext"]).get("capabilities")).get("add")
        yield "capabilities", f"{path}.securityContext.capabilities.add", _length(added)


def _devices(devices: Json, path: str) -> Iterator[tuple[str, str, int]]:
    yield from _lengths(devices, path, ("requests", "config", "constraints"))
    requests = devices.get("requests")
    for request in requests if isinstance(requests, list) and len(requests) <= MAXIMA["requests"] else ():
        found = _map(request)
        options = found.get("firstAvailable")
        for option in (found.get("exactly"), found, *(options if isinstance(options, list) else ())):
            yield "selectors", f"{path}.requests[].selectors", _length(_map(option).get("selectors"))


def _lengths(parent: Json, path: str, keys: tuple[str, ...]) -> Iterator[tuple[str, str, int]]:
    for key in keys:
        if key in parent:
            yield key, f"{path}.{key}", _length(parent[key])


def _map(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list | dict) else 0
