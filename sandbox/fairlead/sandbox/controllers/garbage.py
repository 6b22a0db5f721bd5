"""The garbage collector: deletes objects because of their owners, as in kube-controller-manager.

`decide` is the rule, a pure function: one object, its owners as last seen and its dependents in, one action out. References count by UID:
an owner that was recreated under the same name is another owner. The class watches every kind that owns or is owned here; objects of
other kinds are not collected, and owners of such a kind count as existing. Before an object is deleted the API is asked for the owners
that the cache lacks, so a cache that is behind deletes nothing.
Source: kubernetes pkg/controller/garbagecollector (attemptToDeleteItem, processDeletingDependentsItem, orphanDependents).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from fairlead.kube import errors
from fairlead.kube.client import Client, Patch
from fairlead.kube.informer import Change, Informer
from fairlead.kube.resources import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    DEPLOYMENTS,
    GANGS,
    JOBS,
    LEASES,
    MUTATING_WEBHOOKS,
    NODES,
    PODS,
    REPLICA_SETS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    SECRETS,
    VALIDATING_WEBHOOKS,
    Raw,
    Resource,
    raw,
)
from fairlead.sandbox.controllers.loop import Loop
from fairlead.sandbox.objects import Obj, finalizers_of, is_deleting, key_of, owners_of, split_key, uid_of

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"

Propagation = Literal["Background", "Foreground", "Orphan"]


@dataclass(frozen=True)
class Keep:
    """Nothing to do."""


@dataclass(frozen=True)
class Delete:
    """Delete the object, if it still has this UID."""

    uid: str
    propagation: Propagation


@dataclass(frozen=True)
class DropOwners:
    """Remove the references to these owners; other owners keep the object alive."""

    uids: frozenset[str]


@dataclass(frozen=True)
class DropFinalizer:
    """Remove this finalizer: what it waited for is done."""

    finalizer: str


@dataclass(frozen=True)
class Orphan:
    """Remove the reference to this owner from each dependent, then the finalizer from the owner."""

    dependents: tuple[Obj, ...]


Action = Keep | Delete | DropOwners | DropFinalizer | Orphan


def decide(obj: Obj, *, owner: Callable[[str], Obj | None], dependents: Sequence[Obj]) -> Action:
    """What to do with `obj` now.

    `owner(uid)` is the owner as last seen, None when it is known not to exist. `dependents` are the objects that name
    `obj` as an owner.
    """
    if is_deleting(obj):
        return _while_deleting(obj, dependents)
    references = owners_of(obj)
    if not references:
        return Keep()
    solid, dangling, waiting = [], [], []
    for reference in references:
        found = owner(str(reference["uid"]))
        if found is None:
            dangling.append(reference)
        elif is_deleting(found) and FOREGROUND in finalizers_of(found):
            waiting.append(reference)
        else:
            solid.append(reference)
    if solid:
        gone = frozenset(str(reference["uid"]) for reference in (*dangling, *waiting))
        return DropOwners(gone) if gone else Keep()
    if waiting and dependents:
        return Delete(uid_of(obj), "Foreground")
    return Delete(uid_of(obj), _policy(obj))


def _while_deleting(obj: Obj, dependents: Sequence[Obj]) -> Action:
    finalizers = finalizers_of(obj)
    if ORPHAN in finalizers:
        return Orphan(tuple(dependents))
    if FOREGROUND in finalizers and not any(_blocks(dependent, uid_of(obj)) for dependent in dependents):
        return DropFinalizer(FOREGROUND)
    return Keep()


def _blocks(dependent: Obj, uid: str) -> bool:
    return any(reference.get("blockOwnerDeletion") for reference in owners_of(dependent) if reference.get("uid") == uid)


def _policy(obj: Obj) -> Propagation:
    """A finalizer that a user set chooses what happens to the object's own dependents."""
    finalizers = finalizers_of(obj)
    if ORPHAN in finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in finalizers else "Background"


log = logging.getLogger(__name__)

KINDS: Final = (
    PODS,
    DEPLOYMENTS,
    JOBS,
    RESOURCE_CLAIMS,
    REPLICA_SETS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_SLICES,
    NODES,
    LEASES,
    CONFIG_MAPS,
    SECRETS,
    CLUSTER_ROLES,
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    GANGS,
)

# Which kind, and its key in that kind's informer.
Item = tuple[int, str]


class GarbageCollector(Loop[Item]):
    name = "garbage collector"
    workers = 1

    def __init__(self, client: Client, kinds: Iterable[Resource[Any]] = KINDS) -> None:
        super().__init__()
        self._client = client
        self._kinds = [raw(kind) for kind in kinds]
        self._informers = [Informer(client, kind) for kind in self._kinds]
        self._items: dict[str, Item] = {}  # by UID, what exists
        self._dependents: dict[str, set[Item]] = {}  # by owner's UID
        self._absent: set[str] = set()  # UIDs of what was deleted; a UID is never used again
        self._not_in: set[tuple[str, str]] = set()  # namespace, UID: asked for there, and not found
        for index, informer in enumerate(self._informers):
            informer.subscribe(lambda change, index=index: self._note(index, change))  # type: ignore[misc]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run())
            for informer in self._informers:
                if informer.resource.group != GANGS.group:  # a cluster without Fairlead has no such kind
                    await informer.synced.wait()
            await super().run()

    def _note(self, index: int, change: Change[Raw]) -> None:
        item = (index, change.key)
        if change.old is not None:
            for owner in owners_of(change.old):
                self._dependents.get(str(owner["uid"]), set()).discard(item)
                self._wake(str(owner["uid"]))
        if change.new is None:
            uid = uid_of(change.object)
            self._items.pop(uid, None)
            self._absent.add(uid)
            for dependent in self._dependents.pop(uid, ()):
                self.queue.add(dependent)
            return
        self._items[uid_of(change.new)] = item
        for owner in owners_of(change.new):
            self._dependents.setdefault(str(owner["uid"]), set()).add(item)
        self.queue.add(item)
        if change.new["metadata"].get("deletionTimestamp"):
            for dependent in self._dependents.get(uid_of(change.new), ()):
                self.queue.add(dependent)

    def _wake(self, uid: str) -> None:
        if uid in self._items:
            self.queue.add(self._items[uid])

    def _find(self, item: Item) -> Obj | None:
        return self._informers[item[0]].get(item[1])

    async def sync(self, item: Item) -> None:
        obj = self._find(item)
        if obj is None:
            return
        known = {str(owner["uid"]): await self._owner(obj, owner) for owner in owners_of(obj)}
        items = sorted(self._dependents.get(uid_of(obj), ()))
        dependents = [found for found in map(self._find, items) if found is not None]
        action = decide(obj, owner=known.__getitem__, dependents=dependents)
        try:
            await self._carry_out(item, obj, action)
        except errors.NotFound:
            return

    async def _owner(self, obj: Obj, reference: Obj | object) -> Obj | None:
        """The owner as cached, else as the apiserver has it, else None: also where it is in another namespace than the object."""
        assert isinstance(reference, dict)
        uid, here = str(reference["uid"]), str(obj["metadata"].get("namespace") or "")
        if uid in self._items:
            found = self._find(self._items[uid])
            elsewhere = found is not None and str(found["metadata"].get("namespace") or here) != here
            return None if elsewhere and here else found
        if uid in self._absent or (here, uid) in self._not_in:
            return None
        kind = next(
            (k for k in self._kinds if (k.api_version, k.kind) == (reference["apiVersion"], reference["kind"])), None
        )
        if kind is None:
            return reference  # a kind that is not watched: never a reason to delete
        namespace = obj["metadata"].get("namespace") if kind.namespaced else None
        if kind.namespaced and not namespace:
            return reference  # a cluster-scoped object can't be owned by a namespaced one; ignored, as upstream does
        try:
            found = await self._client.get(kind, str(reference["name"]), namespace)
        except errors.NotFound:
            found = None
        if found is None or uid_of(found) != uid:
            self._not_in.add((here, uid))
            return None
        return found

    async def _carry_out(self, item: Item, obj: Obj, action: Action) -> None:
        kind, (namespace, name) = self._kinds[item[0]], split_key(item[1])
        match action:
            case Delete(uid, propagation):
                log.debug("deleting %s %s: its owners are gone", kind, item[1])
                await self._client.delete(kind, name, namespace, uid=uid, propagation=propagation)
            case DropOwners(uids):
                await self._drop_owners(kind, obj, uids)
            case DropFinalizer(finalizer):
                await self._drop_finalizer(kind, obj, finalizer)
            case Orphan(dependents):
                for dependent in dependents:
                    index, _ = self._items[uid_of(dependent)]
                    await self._drop_owners(self._kinds[index], dependent, frozenset({uid_of(obj)}))
                await self._drop_finalizer(kind, obj, ORPHAN)
            case Keep():
                pass

    async def _drop_owners(self, kind: Resource[Raw], obj: Obj, uids: frozenset[str]) -> None:
        kept = [dict(owner) for owner in owners_of(obj) if owner["uid"] not in uids]
        await self._patch(kind, obj, {"ownerReferences": kept or None})

    async def _drop_finalizer(self, kind: Resource[Raw], obj: Obj, finalizer: str) -> None:
        kept = [name for name in finalizers_of(obj) if name != finalizer]
        await self._patch(kind, obj, {"finalizers": kept or None})

    async def _patch(self, kind: Resource[Raw], obj: Obj, metadata: Obj) -> None:
        """Conditional on the resourceVersion that was decided on."""
        namespace, name = split_key(key_of(obj))
        body = {"metadata": {**metadata, "uid": uid_of(obj), "resourceVersion": obj["metadata"]["resourceVersion"]}}
        await self._client.patch(kind, name, body, namespace=namespace, kind=Patch.MERGE)
