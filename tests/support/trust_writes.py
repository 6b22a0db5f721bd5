"""Each way in which the API lets a value be written into an object: the ways that tests/webhook/test_trust_writes.py tries.

An `Attempt` is one value at one place of one object. `WAYS` try to get it there with one kind of request, by one client; a refusal counts
for nothing, what is stored afterwards does. Every way is tried on the object itself and on each subresource that its kind serves.
"""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from fairlead.kube import errors
from fairlead.kube.client import Client, Patch
from fairlead.kube.resources import Resource

Json = dict[str, Any]
SUBRESOURCES = {
    "Pod": ("status", "ephemeralcontainers", "resize"), "Gang": ("status",), "Queue": ("status",), "Flavor": ("status",),
    "ResourceClaim": ("status",), "Namespace": ("status", "finalize"), "Node": ("status",),
}  # fmt: skip
BUILT_IN = {"Pod", "ResourceClaim", "Namespace", "Node", "ResourceSlice", "ConfigMap", "Lease"}


@dataclass(frozen=True, kw_only=True)
class Target:
    """An object that is stored, and how another of its kind is made."""

    resource: Resource[Any]
    name: str
    namespace: str | None
    base: Json = field(hash=False)  # of a new one, without its name


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """`value` None: what is there is to go."""

    target: Target
    path: tuple[str, ...]
    value: Any = field(hash=False)

    @property
    def kind(self) -> str:
        return self.target.resource.kind

    def __str__(self) -> str:
        return f"{self.kind} {'.'.join(self.path)}"

    def nested(self) -> Json:
        made: Any = copy.deepcopy(self.value)
        for key in reversed(self.path):
            made = {key: made}
        return dict(made)

    def put_into(self, obj: Json) -> Json:
        made = copy.deepcopy(obj)
        at = made
        for key in self.path[:-1]:
            at = at.setdefault(key, {})
        if self.value is None:
            at.pop(self.path[-1], None)
        else:
            at[self.path[-1]] = copy.deepcopy(self.value)
        return made

    def is_in(self, obj: Json) -> bool:
        found: Any = obj
        for key in self.path:
            found = (found or {}).get(key) if isinstance(found, dict) else None
        return not found if self.value is None else bool(found == self.value)


Way = Callable[[Client, Attempt, str | None], Awaitable[Json | None]]
"""Returns an object in which the value is to be looked for, or None: in the stored one."""


def patches(kind: Patch, *, dry_run: bool = False) -> Way:
    async def way(client: Client, attempt: Attempt, subresource: str | None) -> Json | None:
        target, body = attempt.target, attempt.nested()
        applied: Json = {"field_manager": "x", "force": True} if kind is Patch.APPLY else {}
        if kind is Patch.JSON:
            pointer = "/" + "/".join(key.replace("~", "~0").replace("/", "~1") for key in attempt.path)
            add = {"op": "add", "path": pointer, "value": attempt.value}
            operations = [{"op": "remove", "path": pointer} if attempt.value is None else add]
            await client.patch(
                target.resource, target.name, operations, namespace=target.namespace, kind=kind, subresource=subresource
            )
            return None
        if dry_run:
            path = target.resource.path(target.namespace, target.name, subresource)
            answer = await client.request("PATCH", path, params={"dryRun": "All"}, body=body, content_type=kind.value)
            return dict(json.loads(answer))
        await client.patch(
            target.resource,
            target.name,
            body,
            namespace=target.namespace,
            kind=kind,
            subresource=subresource,
            **applied,
        )
        return None

    return way


async def replaces(client: Client, attempt: Attempt, subresource: str | None) -> Json | None:
    """By PUT of the object as it is stored, with the value."""
    target = attempt.target
    try:
        stored = await client.get(target.resource, target.name, target.namespace)
    except errors.ApiError:
        stored = {**target.base, "metadata": {"name": target.name, "namespace": target.namespace}}
    await client.replace(target.resource, attempt.put_into(stored), subresource=subresource)
    return None


def creates(*, dry_run: bool = False, generated: bool = False) -> Way:
    async def way(client: Client, attempt: Attempt, subresource: str | None) -> Json | None:
        target = attempt.target
        name = {"generateName": "forged-"} if generated else {"name": "forged"}
        metadata = {**target.base.get("metadata", {}), **name, "namespace": target.namespace}
        made: Json = await client.create(
            target.resource, attempt.put_into({**target.base, "metadata": metadata}), dry_run=dry_run
        )
        return made

    return way


WAYS: dict[str, Way] = {
    "merge": patches(Patch.MERGE),
    "json": patches(Patch.JSON),
    "strategic": patches(Patch.STRATEGIC),
    "apply": patches(Patch.APPLY),
    "dry-run": patches(Patch.MERGE, dry_run=True),
    "update": replaces,
}
CREATES: dict[str, Way] = {
    "create": creates(),
    "create dry-run": creates(dry_run=True),
    "generateName": creates(generated=True),
}


async def ways(client: Client, attempt: Attempt) -> AsyncIterator[tuple[str, Json | None]]:
    """Of each request that was accepted: its name, and the object that it gave."""
    for subresource in (None, *SUBRESOURCES.get(attempt.kind, ())):
        for name, way in (WAYS if subresource or attempt.value is None else WAYS | CREATES).items():
            if name == "strategic" and attempt.kind not in BUILT_IN:
                continue
            with contextlib.suppress(errors.ApiError):
                yield f"{name}{f' of {subresource}' if subresource else ''}", await way(client, attempt, subresource)
