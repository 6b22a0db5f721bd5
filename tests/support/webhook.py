"""Helpers for tests of the webhook: reviews, facts, and patches applied as the apiserver applies them."""

import base64
from typing import Any

import msgspec

from fairlead.api import names
from fairlead.kube.resource import DeviceClass, ResourceClaimSpec
from fairlead.webhook.handlers import dispatch
from fairlead.webhook.offline import RESOURCES, SHIPPED
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts, Template
from fairlead.webhook.review.verdict import Verdict, apply_patch

Json = dict[str, Any]


def device_class(name: str, *expressions: str) -> DeviceClass:
    selectors = [{"cel": {"expression": text}} for text in expressions]
    return msgspec.convert({"metadata": {"name": name}, "spec": {"selectors": selectors}}, DeviceClass)


def claim_spec(class_name: str = names.GPU_CLASS, *expressions: str, count: int = 1) -> ResourceClaimSpec:
    selectors = [{"cel": {"expression": text}} for text in expressions]
    exactly = {"deviceClassName": class_name, "selectors": selectors, "count": count}
    return msgspec.convert({"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}, ResourceClaimSpec)


CLASSES = {**SHIPPED, "nic.example.com": device_class("nic.example.com", "device.driver == 'nic.example.com'")}


def facts(**changes: Any) -> Facts:
    """Facts of a cluster with our two classes, a foreign one, and template ml/h100 of ours, ml/nic of the other.

    A template that is given as a spec has the UID `uid-<name>`.
    """
    known: Json = {
        "classes": CLASSES,
        "templates": {("ml", "h100"): claim_spec(), ("ml", "nic"): claim_spec("nic.example.com")},
    }
    known |= changes
    templates = {
        key: found if isinstance(found, Template) else Template(f"uid-{key[1]}", found)
        for key, found in known["templates"].items()
    }
    return Facts(**(known | {"templates": templates}))


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
    group, resource = RESOURCES[object_["kind"]]
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
    """The object with the verdict's patch in it."""
    return apply_patch(object_, verdict.patch)


def admitted(object_: Json, known: Facts, **user: Any) -> tuple[Json, Verdict]:
    """Mutated twice (the second time must change nothing), then validated: the stored object and the last verdict."""
    first = dispatch.mutate(review(object_, **user), known)
    if not first.allowed:
        return object_, first
    stored = patched(object_, first)
    again = dispatch.mutate(review(stored, **user), known)
    assert again.allowed, again.message
    assert again.patch == (), "a second pass must change nothing"
    last = dispatch.validate(review(stored, **user), known)
    return stored, last.with_warnings(first.warnings)


def decoded_answer(body: bytes) -> Json:
    """The response within an encoded answer, with its patch decoded."""
    response: Json = msgspec.json.decode(body)["response"]
    patch: Any = response.get("patch")
    return response | {"patch": msgspec.json.decode(base64.b64decode(patch))} if patch else response
