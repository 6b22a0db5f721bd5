"""Applies a tenant's objects to a cluster, by server-side apply with the user's own rights.

First everything is looked at, and refused before the first write where a namespace or queue is another's. What all tenants share is
created where it is absent and otherwise left as it is. Then the tenant's own objects, in order; it stops at the first that is refused, and
the next run goes on from there. Nothing is deleted.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

import typer

from fairlead.api import names
from fairlead.api.base import LabelSelector, ManifestError
from fairlead.api.queue import Queue
from fairlead.api.tenant import Tenant
from fairlead.api.tenant_objects import NAME, PER_CLASS, Obj, objects, shared_objects
from fairlead.cli import printer
from fairlead.cli.listing import Listing, Row
from fairlead.cli.printer import Cell, Column, say
from fairlead.cli.reading import Shown
from fairlead.kube import errors, resources
from fairlead.kube.client import Client, Patch
from fairlead.kube.labels import Requirement, Selector
from fairlead.kube.resources import Raw, Resource, raw
from fairlead.ui.reading.cluster import Cluster, list_if_allowed

FIELD_MANAGER: Final = "fairlead-tenant"
KINDS: Final[dict[str, Resource[Any]]] = {
    each.kind: raw(each)
    for each in (
        resources.NAMESPACES,
        resources.QUEUES,
        resources.CLUSTER_ROLES,
        resources.PRIORITY_CLASSES,
        resources.RESOURCE_QUOTAS,
        resources.LIMIT_RANGES,
        resources.NETWORK_POLICIES,
        resources.ROLE_BINDINGS,
    )
}
"""Every kind of which a tenant has objects."""


@dataclass(frozen=True)
class Outcome:
    """What became of an object: created, changed, unchanged, or kept (shared, and differs)."""

    obj: Obj
    what: str

    def line(self) -> str:
        return f"{described(self.obj)}: {self.what}"

    def as_json(self) -> dict[str, str]:
        meta = self.obj["metadata"]
        where = {"namespace": meta["namespace"]} if "namespace" in meta else {}
        return {"kind": self.obj["kind"], **where, "name": meta["name"], "outcome": self.what}


def described(obj: Mapping[str, Any]) -> str:
    meta = obj["metadata"]
    name = f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]
    return f"{obj['kind']} {name}"


class Applying:
    def __init__(self, client: Client, tenant: Tenant, *, adopt: bool, done: Callable[[Outcome], None]) -> None:
        """`done` is told of each object as soon as it is applied."""
        self._client = client
        self._tenant = tenant
        self._adopt = adopt
        self._done = done

    async def run(self) -> list[str]:
        """Why it could not be done, or [] where all is as described. Raises ApiError where the cluster cannot be read."""
        wanted = objects(self._tenant)
        before = [await self._get(each) for each in wanted]
        refused = [
            why
            for obj, found in zip(wanted, before, strict=True)
            if found is not None and (why := self._not_ours(obj, found))
        ]
        refused += await self._queues_that_do_not_select()
        if refused:
            return [*refused, "nothing was written"]
        for each in shared_objects(self._tenant):
            if why := await self._share(each):
                return [why]
        for obj, found in zip(wanted, before, strict=True):
            if why := await self._apply(obj, found):
                return [why, "the objects above are in place; run the command again to go on"]
        return []

    async def notes(self) -> list[str]:
        """What the description names and the cluster lacks, as far as the user may look: it may come later, or be misspelt."""
        tenant = self._tenant
        created = {each.name for each in tenant.own_queues}
        flavors = {each.flavor for queue in tenant.own_queues for each in queue.flavors}
        parents = {queue.parent for queue in tenant.own_queues if queue.parent} - created
        named: list[tuple[Resource[Any], str, str]] = [
            *((resources.FLAVORS, each, "until it does its quota counts nothing") for each in sorted(flavors)),
            *((resources.DEVICE_CLASSES, each, "until it does its quota bounds nothing") for each in tenant.quota.gpus),
            *((resources.QUEUES, each, "until it does the tenant's queue is a root") for each in sorted(parents)),
        ]
        found = []
        for resource, name, meanwhile in named:
            try:
                await self._client.get(raw(resource), name)
            except errors.NotFound:
                found.append(f"note: {resource.kind} {name} does not exist; {meanwhile}")
            except errors.Forbidden:
                continue
        return found

    def _not_ours(self, obj: Obj, found: Raw) -> str:
        owner = (found["metadata"].get("labels") or {}).get(names.TENANT)
        what = described(obj)
        if owner is not None and owner != self._tenant.name:
            return f"{what}: belongs to tenant {owner} (label {names.TENANT}); choose another name"
        if found["metadata"].get("deletionTimestamp"):
            return f"{what}: is being deleted; run the command again when it is gone"
        if owner is None and not self._adopt:
            return f"{what}: exists and is no tenant's; choose another name, or take it over with --adopt"
        return ""

    async def _queues_that_do_not_select(self) -> list[str]:
        """The existing queues that are absent or would not take the pods of a namespace bound to them."""
        found = []
        bound = {each["metadata"]["name"]: each for each in objects(self._tenant) if each["kind"] == "Namespace"}
        for queue in (each for each in self._tenant.own_queues if not each.create):
            stored = await self._get({"kind": "Queue", "metadata": {"name": queue.name}})
            if stored is None:
                found.append(
                    f"Queue {queue.name}: does not exist; create it, or leave --existing-queue (create: false) away"
                )
                continue
            try:
                selector = Queue.stored(stored).spec.namespace_selector
            except ManifestError as error:
                found.append(str(error))
                continue
            if selector is None:
                continue  # open to all: pods name it
            matched = _matching(selector)
            for name, namespace in bound.items():
                if self._tenant.queue_of(name) == queue.name and not matched.matches(namespace["metadata"]["labels"]):
                    shown = (
                        ", ".join(f"{key}={value}" for key, value in selector.match_labels.items()) or "its expressions"
                    )
                    found.append(
                        f"Queue {queue.name}: its namespaceSelector ({shown}) does not select namespace {name}; "
                        "add the labels with --namespace-label (namespaceLabels)"
                    )
        return found

    async def _share(self, obj: Obj) -> str:
        """Create what all tenants share. One that exists may be newer, or another's choice: it stays as it is."""
        found = await self._get(obj)
        if found is None:
            return await self._apply(obj, None)
        own = {key: value for key, value in obj.items() if key not in {"apiVersion", "kind", "metadata"}}
        same = all(found.get(key) == value for key, value in own.items())
        self._done(Outcome(obj, "unchanged" if same else "kept, though it differs from what this version would create"))
        return ""

    async def _apply(self, obj: Obj, before: Raw | None) -> str:
        meta = obj["metadata"]
        try:
            after = await self._client.patch(
                KINDS[obj["kind"]],
                meta["name"],
                obj,
                namespace=meta.get("namespace"),
                kind=Patch.APPLY,
                field_manager=FIELD_MANAGER,
                force=self._adopt,
            )
        except errors.Conflict as error:
            return f"{described(obj)}: not applied: {error}; with --adopt the values of this command count"
        except errors.ApiError as error:
            return f"{described(obj)}: not applied: {error}"
        if before is None:
            what = "created"
        elif _content(before) == _content(after):
            what = "unchanged"
        else:
            what = "changed"
        self._done(Outcome(obj, what))
        return ""

    async def _get(self, obj: Obj) -> Raw | None:
        meta = obj["metadata"]
        try:
            return await self._client.get(KINDS[obj["kind"]], meta["name"], meta.get("namespace"))
        except errors.NotFound as error:
            if error.details is None or not error.details.name:
                raise  # the kind is not served
            return None


def _content(obj: Raw) -> Raw:
    """The object without what changes when only another manager begins to own fields."""
    ignored = {"managedFields", "resourceVersion"}
    metadata = {key: value for key, value in obj["metadata"].items() if key not in ignored}
    return {**obj, "metadata": metadata, "status": None}


def _matching(selector: LabelSelector) -> Selector:
    wanted = [Requirement(key, "In", (value,)) for key, value in selector.match_labels.items()]
    return Selector((*wanted, *(Requirement(r.key, r.operator, tuple(r.values)) for r in selector.match_expressions)))


COLUMNS = (
    Column(title="TENANT", least=10),
    Column(title="NAMESPACE", least=10),
    Column(title="QUEUE", least=10),
    Column(title="POD SECURITY", dispensable=2),
    Column(title="DEVICES", least=12, dispensable=1),
)
_FIELDS = ("tenant", "namespace", "queue", "podSecurity")


@dataclass(frozen=True, kw_only=True)
class List(Listing):
    """List the cluster's tenants: namespaces, queues, Pod Security, and what their quotas of devices have left."""

    kind: ClassVar[str] = "tenant"
    watches: ClassVar[tuple[Resource[Any], ...]] = (resources.NAMESPACES, resources.RESOURCE_QUOTAS)

    def columns(self) -> Sequence[Column]:
        return COLUMNS

    async def rows(self, cluster: Cluster) -> list[Row]:
        """One for each namespace of a tenant, by tenant."""
        namespaces = [each for each in await cluster.list(resources.NAMESPACES) if _tenant(each)]
        quotas = {
            each["metadata"]["namespace"]: each.get("status") or {}
            for each in await list_if_allowed(cluster, resources.RESOURCE_QUOTAS)
            if each["metadata"]["name"] == NAME
        }
        found = [
            Row(
                name=value["tenant"],
                reference=f"namespace/{value['namespace']}",
                lines=[[*(Cell(value[each]) for each in _FIELDS), Cell(_devices(value["devices"]))]],
                value=value,
                labels=(each["metadata"]["labels"],),
            )
            for each in namespaces
            for value in [_value(each, quotas.get(each["metadata"]["name"], {}))]
        ]
        return sorted(found, key=lambda row: (row.name, row.reference))

    def none(self) -> str:
        return f"no namespace has the label {names.TENANT}; create a tenant: fairlead tenant create NAME"


@dataclass(frozen=True, kw_only=True)
class Show(Shown):
    """Show every object of a tenant that you may list, and how it is removed."""

    name: Annotated[str, typer.Argument(help="The tenant's name.")]

    def run(self) -> int:
        found = self.ask(_labelled)
        own = [each for each in found if _tenant(each) == self.name]
        if not own:
            near = difflib.get_close_matches(self.name, sorted({_tenant(each) for each in found}))
            hint = f"did you mean {', '.join(near)}?" if near else "all tenants: fairlead tenant list"
            say(f"no object bears the label {names.TENANT}={self.name}; {hint}", file=sys.stderr)
            return 1
        if self.output != "table":
            printer.structured({"apiVersion": "v1", "kind": "List", "items": own}, self.output)
            return 0
        for each in own:
            say(described(each))
        remove = f"kubectl delete queues,namespaces -l {names.TENANT}={self.name}"
        say(f"to remove all of it, and what runs there: {remove}")
        return 0


def _value(namespace: Raw, status: Raw) -> dict[str, Any]:
    labels, used = namespace["metadata"]["labels"], status.get("used") or {}
    return {
        "tenant": labels[names.TENANT],
        "namespace": namespace["metadata"]["name"],
        "queue": labels.get(names.QUEUE, ""),
        "podSecurity": labels.get("pod-security.kubernetes.io/enforce", ""),
        "devices": {
            key.removesuffix(PER_CLASS): {"used": used.get(key, "0"), "hard": hard}
            for key, hard in (status.get("hard") or {}).items()
            if key.endswith(PER_CLASS)
        },
    }


def _devices(devices: dict[str, dict[str, str]]) -> str:
    return ", ".join(f"{name} {each['used']}/{each['hard']}" for name, each in devices.items()) or "no quota"


async def _labelled(cluster: Cluster) -> list[Raw]:
    """All objects with the label, of the kinds that the user may list."""
    found = []
    for kind, resource in KINDS.items():
        listed = await list_if_allowed(cluster, resource)
        found += [{"apiVersion": resource.api_version, "kind": kind, **each} for each in listed if _tenant(each)]
    return found


def _tenant(obj: Raw) -> str:
    return str((obj["metadata"].get("labels") or {}).get(names.TENANT, ""))
