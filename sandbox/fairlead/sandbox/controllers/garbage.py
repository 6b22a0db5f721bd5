"""Which objects are deleted because of their owners, as in kube-controller-manager's garbage collector.

Pure: one object, its owners as last seen and its dependents in, one action out. References count by UID: an owner that
was recreated under the same name is another owner. The caller asks the API for an owner that its cache lacks before it
says that there is none.
Source: kubernetes pkg/controller/garbagecollector (attemptToDeleteItem, processDeletingDependentsItem, orphanDependents).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from fairlead.sandbox.objects import Obj, finalizers_of, is_deleting, owners_of, uid_of

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
