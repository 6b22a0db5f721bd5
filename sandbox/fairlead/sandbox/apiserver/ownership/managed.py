"""Field ownership: updates metadata.managedFields at every write, and decides what server-side apply may change.

Pure but for the time and the request's manager, which come with the Call. Apply: a field that a manager applied before and
leaves out now is removed, unless another manager owns it; changing a field that another manager owns is a conflict,
unless forced.
Source: k8s.io/apimachinery/pkg/util/managedfields, sigs.k8s.io/structured-merge-diff/v6/merge (Kubernetes 1.36).
"""

from __future__ import annotations

import json
from dataclasses import replace

from fairlead.sandbox.apiserver import statuses
from fairlead.sandbox.apiserver.call import Call
from fairlead.sandbox.apiserver.kinds.base import Kind
from fairlead.sandbox.apiserver.kinds.errors import quote
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.ownership import fieldsets, typed
from fairlead.sandbox.apiserver.ownership.fieldsets import (
    APPLY,
    UPDATE,
    Entries,
    Entry,
    FieldSet,
    Manager,
    capped,
    decode,
    encode,
    take_over,
)

_BEFORE_FIRST_APPLY = "before-first-apply"
_KUBECTL = "kubectl"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_UNTRACKED = FieldSet.of(
    ("f:apiVersion",),
    ("f:kind",),
    ("f:metadata",),
    *(
        ("f:metadata", f"f:{name}")
        for name in (
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        )
    ),
)


def _set(obj: Json, entries: Entries) -> None:
    encoded = encode(entries)
    obj["metadata"].pop("managedFields", None)
    if encoded:
        obj["metadata"]["managedFields"] = encoded


def _bare(obj: Json) -> Json:
    """The object as it is compared: without managedFields."""
    metadata = {k: v for k, v in obj["metadata"].items() if k != "managedFields"}
    return {**obj, "metadata": metadata}


def _schema(kind: Kind) -> Json:
    return typed.with_object_meta(kind.strategy.schema)


# -- updates
def track(call: Call, new: Json, old: Json | None, *, subresource: str = "") -> None:
    """Record the request's manager as owner of the fields that a create, update or patch changes, in place."""
    given = new["metadata"].get("managedFields")
    if given == [{}]:  # a client resets ownership
        entries: Entries = {}
    else:
        entries = decode(given) if not subresource else {}
        if not entries and old is not None:
            entries = decode(old["metadata"].get("managedFields"))
    if old is not None and not entries:
        new["metadata"].pop("managedFields", None)
        return  # an object without owners gets them when it is first applied
    before = _bare(old) if old is not None else _zero(call.kind)
    found = typed.compare(before, _bare(new), _schema(call.kind))
    changed = found.added.union(found.modified)
    entries = take_over(entries, None, changed, found.removed)
    manager = Manager(call.field_manager, UPDATE, call.kind.api_version, subresource)
    mine = _reset(call.kind, subresource, changed.difference(_UNTRACKED))
    if mine:
        previous = entries.get(manager.identity)
        fields = previous.fields.union(mine) if previous else mine
        entries[manager.identity] = Entry(manager, fields, call.context.timestamp())
    _set(new, capped(entries))


def _zero(kind: Kind) -> Json:
    """An object before any field is set. Built-in kinds have Go's zero values, which no manager owns."""
    zero: Json = {"metadata": {}}
    if not kind.strategy.custom_resource:
        kind.strategy.decode(zero)
    return zero


def _reset(kind: Kind, subresource: str, fields: FieldSet) -> FieldSet:
    """Without the fields that this endpoint does not write."""
    if subresource == "status":
        allowed = ("f:status",) if kind.strategy.status_resets_metadata else ("f:status", "f:metadata")
        return fields.only(*allowed)
    if kind.subresource("status") is not None and not subresource:
        return fields.without(FieldSet.of(("f:status",)))
    return fields


# -- apply
def apply_new(call: Call, applied: Json, manager_name: str) -> None:
    """The first apply creates the object."""
    manager = Manager(manager_name, APPLY, call.kind.api_version, call.target.subresource)
    fields = _applied_fields(call.kind, call.target.subresource, applied)
    _set(applied, {manager.identity: Entry(manager, fields, call.context.timestamp())})


def _applied_fields(kind: Kind, subresource: str, applied: Json) -> FieldSet:
    return _reset(kind, subresource, typed.set_of(_bare(applied), _schema(kind)).difference(_UNTRACKED))


def apply(call: Call, live: Json, applied: Json, manager_name: str, *, force: bool) -> Json:
    """The live object with a configuration applied by `manager_name`. Raises 409 with the conflicts."""
    kind, subresource, now = call.kind, call.target.subresource, call.context.timestamp()
    schema = _schema(kind)
    applied = _written(kind, subresource, applied)
    entries = decode(live["metadata"].get("managedFields"))
    before = _bare(live)
    if not entries:
        entries = _before_first_apply(kind, before)
    manager = Manager(manager_name, APPLY, kind.api_version, subresource)
    previous = entries.get(manager.identity)
    fields = _applied_fields(kind, subresource, applied)
    entries[manager.identity] = Entry(manager, fields, previous.time if previous else "")
    merged: Json = typed.merge(before, _bare(applied), schema)
    if previous:
        owned = FieldSet()
        for entry in entries.values():
            owned = owned.union(entry.fields)
        merged = typed.prune(merged, schema, previous.fields, owned)
    found = typed.compare(before, merged, schema)
    changed = found.added.union(found.modified)
    conflicts = {
        entry.manager: common
        for identity, entry in entries.items()
        if identity != manager.identity and (common := entry.fields.intersection(changed))
    }
    if conflicts and not force and not _migrates(call, manager_name, before, conflicts, schema):
        raise _conflict(conflicts)
    entries = take_over(entries, manager, changed, found.removed)
    if found.added or found.modified or found.removed or not entries[manager.identity].time:
        entries[manager.identity] = replace(entries[manager.identity], time=now)
    new: Json = {**merged, "metadata": dict(merged["metadata"])}
    if manager_name == _KUBECTL and LAST_APPLIED in (new["metadata"].get("annotations") or {}):
        _sync_last_applied(new, applied)
    _set(new, entries)
    return new


def _written(kind: Kind, subresource: str, applied: Json) -> Json:
    """The configuration without the fields that this endpoint does not write: neither owned nor in conflict."""
    if subresource == "status":
        return {
            field: value for field, value in applied.items() if field in ("apiVersion", "kind", "metadata", "status")
        }
    if kind.subresource("status") is not None and not subresource:
        return {field: value for field, value in applied.items() if field != "status"}
    return applied


def _before_first_apply(kind: Kind, live: Json) -> Entries:
    """The owner of an object without managed fields: one manager for all that was set before the first apply."""
    manager = Manager(_BEFORE_FIRST_APPLY, UPDATE, kind.api_version)
    fields = typed.compare({"metadata": {}}, live, _schema(kind)).added.difference(_UNTRACKED)
    return {manager.identity: Entry(manager, fields)} if fields else {}


def _migrates(call: Call, manager_name: str, live: Json, conflicts: dict[Manager, FieldSet], schema: Json) -> bool:
    """Whether kubectl may take over the fields in conflict: it applied them client-side before (its annotation), and they
    did not change since.
    """
    annotation = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    if manager_name != _KUBECTL or annotation is None:
        return False
    try:
        last = json.loads(annotation)
        differs = typed.compare(last, live, schema)
        allowed = typed.set_of(last, schema).difference(differs.modified).difference(differs.removed)
    except (ValueError, TypeError, AttributeError):
        return False
    return not any(fields.difference(allowed) for fields in conflicts.values())


def _sync_last_applied(new: Json, applied: Json) -> None:
    """Update the annotation, for clients that still apply client-side."""
    config = _bare(applied)
    annotations = {k: v for k, v in (config["metadata"].get("annotations") or {}).items() if k != LAST_APPLIED}
    config["metadata"] = {**config["metadata"], "annotations": annotations}
    text = json.dumps(config, separators=(",", ":"), ensure_ascii=False, sort_keys=True) + "\n"
    new["metadata"]["annotations"] = {**new["metadata"]["annotations"], LAST_APPLIED: text}


def _shown(manager: Manager) -> str:
    text = quote(manager.name)
    if manager.subresource:
        text += f" with subresource {quote(manager.subresource)}"
    return f"{text} using {manager.api_version}" if manager.operation == UPDATE else text


def _conflict(conflicts: dict[Manager, FieldSet]) -> statuses.ApiError:
    listed = [
        (_shown(manager), fieldsets.shown(path))
        for manager in sorted(conflicts, key=_shown)
        for path in conflicts[manager].paths()
    ]
    if len(listed) == 1:
        message = f"Apply failed with 1 conflict: conflict with {listed[0][0]}: {listed[0][1]}"
    else:
        lines = []
        for manager in dict.fromkeys(manager for manager, _ in listed):
            lines.append(f"conflicts with {manager}:")
            lines += [f"- {path}" for owner, path in listed if owner == manager]
        message = f"Apply failed with {len(listed)} conflicts: " + "\n".join(lines)
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": path}
        for manager, path in listed
    ]
    return statuses.ApiError(409, "Conflict", message, {"causes": causes})
