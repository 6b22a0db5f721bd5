"""The entries of metadata.managedFields: which manager owns which fields, to and from JSON.

Pure. An entry is identified by manager, operation and subresource, an updater's also by its API version.
Source: k8s.io/apimachinery/pkg/util/managedfields/internal (1.36).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.ownership.fieldsets import FieldSet

APPLY: Final = "Apply"
UPDATE: Final = "Update"
UPDATERS_LIMIT: Final = 10
_ANCIENT: Final = "ancient-changes"


@dataclass(frozen=True)
class Manager:
    """What identifies an entry. Appliers are the same in every version."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""

    @property
    def identity(self) -> tuple[str, str, str, str]:
        return self.name, self.operation, "" if self.operation == APPLY else self.api_version, self.subresource


@dataclass(frozen=True)
class Entry:
    manager: Manager
    fields: FieldSet
    time: str = ""


Entries = dict[tuple[str, str, str, str], Entry]


def decode(managed_fields: Any) -> Entries:
    """The entries of metadata.managedFields; none when they make no sense."""
    entries: Entries = {}
    try:
        for raw in managed_fields or []:
            manager = Manager(
                raw.get("manager", ""), raw["operation"], raw.get("apiVersion", ""), raw.get("subresource", "")
            )
            fields = FieldSet.from_fields(raw.get("fieldsV1") or {})
            entries[manager.identity] = Entry(manager, fields, raw.get("time") or "")
    except (KeyError, ValueError, AttributeError, TypeError):
        return {}
    return entries


def encode(entries: Entries) -> list[Json]:
    """Appliers first, then by time and name."""
    ordered = sorted(
        entries.values(),
        key=lambda one: (
            one.manager.operation,
            one.time,
            one.manager.name,
            one.manager.api_version,
            one.manager.subresource,
        ),
    )
    return [_encode_one(entry) for entry in ordered if entry.fields]


def _encode_one(entry: Entry) -> Json:
    manager = entry.manager
    raw: Json = {"manager": manager.name, "operation": manager.operation, "apiVersion": manager.api_version}
    if entry.time:
        raw["time"] = entry.time
    raw |= {"fieldsType": "FieldsV1", "fieldsV1": entry.fields.to_fields()}
    if manager.subresource:
        raw["subresource"] = manager.subresource
    return raw


def take_over(entries: Entries, but: Manager | None, changed: FieldSet, removed: FieldSet) -> Entries:
    """The entries of other managers than `but` without the fields that were changed or removed."""
    kept: Entries = {}
    for identity, entry in entries.items():
        if but is not None and identity == but.identity:
            kept[identity] = entry
            continue
        fields = entry.fields.difference(changed).difference(removed)
        if fields:
            kept[identity] = replace(entry, fields=fields)
    return kept


def capped(entries: Entries) -> Entries:
    """At most UPDATERS_LIMIT updaters: the oldest are merged into one."""
    updaters = sorted(
        (entry for entry in entries.values() if entry.manager.operation == UPDATE), key=lambda entry: entry.time
    )
    for entry in updaters[: max(0, len(updaters) - UPDATERS_LIMIT)]:
        del entries[entry.manager.identity]
        bucket = Manager(_ANCIENT, UPDATE, entry.manager.api_version)
        other = entries.get(bucket.identity)
        fields = other.fields.union(entry.fields) if other else entry.fields
        entries[bucket.identity] = Entry(bucket, fields, entry.time)
    return entries
