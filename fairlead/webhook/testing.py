"""Helpers for tests that talk to the webhook: reviews, facts, and patches applied as the apiserver would.

Exists so that a test reads as manifest in, verdict out. Not imported by the programs.
"""

import copy
from typing import Any

import msgspec

from fairlead.api import names
from fairlead.kube.resource import DeviceClass, ResourceClaimSpec
from fairlead.webhook import handlers
from fairlead.webhook.facts import Facts
from fairlead.webhook.review import Review
from fairlead.webhook.verdict import Verdict

Json = dict[str, Any]

_RESOURCES = {
    "Pod": ("", "pods"),
    "Job": ("batch", "jobs"),
    "CronJob": ("batch", "cronjobs"),
    "ResourceClaim": ("resource.k8s.io", "resourceclaims"),
    "ResourceClaimTemplate": ("resource.k8s.io", "resourceclaimtemplates"),
    "DeviceClass": ("resource.k8s.io", "deviceclasses"),
    "Queue": (names.API_GROUP, "queues"),
    "Flavor": (names.API_GROUP, "flavors"),
    "TenancyPolicy": (names.API_GROUP, "tenancypolicies"),
    "Namespace": ("", "namespaces"),
}


def device_class(name: str, *expressions: str) -> DeviceClass:
    selectors = [{"cel": {"expression": text}} for text in expressions]
    return msgspec.convert({"metadata": {"name": name}, "spec": {"selectors": selectors}}, DeviceClass)


def claim_spec(class_name: str = names.GPU_CLASS, *expressions: str, count: int = 1) -> ResourceClaimSpec:
    selectors = [{"cel": {"expression": text}} for text in expressions]
    exactly = {"deviceClassName": class_name, "selectors": selectors, "count": count}
    return msgspec.convert({"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}, ResourceClaimSpec)


CLASSES = {
    names.GPU_CLASS: device_class(
        names.GPU_CLASS, f"device.driver == '{names.DRIVER}' && device.attributes['{names.DRIVER}'].type == 'gpu'"
    ),
    names.MIG_CLASS: device_class(
        names.MIG_CLASS, f"device.driver == '{names.DRIVER}' && device.attributes['{names.DRIVER}'].type == 'mig'"
    ),
    "nic.example.com": device_class("nic.example.com", "device.driver == 'nic.example.com'"),
}


def facts(**changes: Any) -> Facts:
    """Facts of a cluster with our two classes, a foreign one, and template ml/h100 of ours, ml/nic of the other."""
    known: Json = {
        "classes": CLASSES,
        "templates": {("ml", "h100"): claim_spec(), ("ml", "nic"): claim_spec("nic.example.com")},
    }
    return Facts(**(known | changes))


def review(
    object_: Json,
    *,
    operation: str = "CREATE",
    old: Json | None = None,
    username: str = "alice",
    groups: tuple[str, ...] = ("system:authenticated",),
    subresource: str = "",
    dry_run: bool = False,
) -> Review:
    group, resource = _RESOURCES[object_["kind"]]
    metadata = object_.get("metadata") or {}
    return Review(
        uid="11111111-2222-3333-4444-555555555555",
        group=group,
        resource=resource,
        subresource=subresource,
        kind=object_["kind"],
        operation=operation,
        namespace=metadata.get("namespace", ""),
        name=metadata.get("name", ""),
        username=username,
        groups=frozenset(groups),
        dry_run=dry_run,
        object=object_,
        old=old,
    )


def patched(object_: Json, verdict: Verdict) -> Json:
    """The object with the verdict's patch in it. Raises KeyError, IndexError or ValueError where it does not apply."""
    result = copy.deepcopy(object_)
    for operation in verdict.patch:
        _apply(result, operation)
    return result


def admitted(object_: Json, known: Facts, **who: Any) -> tuple[Json, Verdict]:
    """Mutated twice (the second time must change nothing), then validated: the stored object and the last verdict."""
    first = handlers.mutate(review(object_, **who), known)
    if not first.allowed:
        return object_, first
    stored = patched(object_, first)
    again = handlers.mutate(review(stored, **who), known)
    assert again.allowed, again.message
    assert again.patch == (), "a second pass must change nothing"
    last = handlers.validate(review(stored, **who), known)
    return stored, last.with_warnings(first.warnings)


def _apply(document: Json, operation: Json) -> None:
    *parents, last = [step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]]
    node: Any = document
    for step in parents:
        node = node[int(step)] if isinstance(node, list) else node[step]
    value = copy.deepcopy(operation.get("value"))
    match operation["op"], node:
        case "add", list():
            node.insert(len(node) if last == "-" else int(last), value)
        case "add", dict():
            node[last] = value
        case "replace", list():
            node[int(last)] = value
        case "replace", dict() if last in node:
            node[last] = value
        case "remove", list():
            del node[int(last)]
        case "remove", dict():
            del node[last]
        case other:
            raise ValueError(f"{operation} does not apply to {other}")
