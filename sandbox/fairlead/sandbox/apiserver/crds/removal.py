"""Deletion of a CustomResourceDefinition: a finalizer holds it until its last object is removed.

In the real apiserver a controller cleans up; here it happens with the deletion, and again whenever an object of the
definition is removed. Objects with finalizers are marked and waited for. No object can be created meanwhile.
Source: apiextensions-apiserver/pkg/controller/finalizer, pkg/registry/customresourcedefinition/etcd.go (1.36).
"""

from __future__ import annotations

from typing import Protocol, cast

from fairlead.sandbox.apiserver.kinds.base import Context, Registry
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.storage.store import Store

STORAGE = "apiextensions.k8s.io/customresourcedefinitions"
FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
_SOON = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"


class Storing(Protocol):
    """Services that can write: the changes of definitions are stored."""

    registry: Registry
    store: Store


def storing(context: Context) -> Storing:
    return cast("Storing", context.services)


def hold(obj: Json, context: Context) -> None:
    """At the first DELETE: mark the object, add the finalizer and the Terminating condition."""
    obj["metadata"]["deletionTimestamp"] = context.timestamp()
    finalizers = obj["metadata"].setdefault("finalizers", [])
    if FINALIZER not in finalizers:
        finalizers.append(FINALIZER)
    condition = {
        "type": "Terminating",
        "status": "True",
        "lastTransitionTime": context.timestamp(),
        "reason": "InstanceDeletionPending",
        "message": _SOON,
    }
    status = obj.setdefault("status", {})
    others = [one for one in status.get("conditions") or [] if one.get("type") != "Terminating"]
    status["conditions"] = [*others, condition]


def terminating(group: str, plural: str, context: Context) -> bool:
    stored = storing(context).store.get(STORAGE, ("", f"{plural}.{group}"))
    return stored is not None and "deletionTimestamp" in stored.obj["metadata"]


def clean(group: str, plural: str, context: Context) -> None:
    """Remove a terminating definition's objects that nothing holds; with the last of them, drop the finalizer."""
    services = storing(context)
    objects = f"{group}/{plural}"
    for one in list(services.store.entries(objects, "")):
        metadata = one.obj["metadata"]
        if not metadata.get("finalizers"):
            services.store.remove(objects, one.key, expect=one.revision)
        elif "deletionTimestamp" not in metadata:
            marked = {**metadata, "deletionTimestamp": context.timestamp(), "deletionGracePeriodSeconds": 0}
            services.store.put(objects, one.key, {**one.obj, "metadata": marked}, expect=one.revision)
    if services.store.entries(objects, ""):
        return
    key = ("", f"{plural}.{group}")
    stored = services.store.get(STORAGE, key)
    if stored is None:
        return
    metadata = stored.obj["metadata"]
    left = [one for one in metadata.get("finalizers") or [] if one != FINALIZER]
    if left:
        services.store.put(
            STORAGE, key, {**stored.obj, "metadata": {**metadata, "finalizers": left}}, expect=stored.revision
        )
        return
    services.store.remove(STORAGE, key, expect=stored.revision)
    for version in stored.obj["spec"]["versions"]:
        services.registry.remove(group, version["name"], plural)
