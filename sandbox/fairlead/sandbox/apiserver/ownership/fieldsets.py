"""Who owns which fields: sets of field paths, and the entries of metadata.managedFields that hold them, to and from JSON.

Pure. A path is a sequence of FieldsV1 elements: `f:name`, `k:{"key":"value"}`, `v:"value"`, `i:0`. A node is a member
itself (`.` in FieldsV1), or only leads to members below it. An entry is identified by manager, operation and subresource, an updater's
also by its API version.
Source: sigs.k8s.io/structured-merge-diff/v6/fieldpath, k8s.io/apimachinery/pkg/util/managedfields/internal (Kubernetes 1.36).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from fairlead.sandbox.apiserver.kinds.request import Json

Path = tuple[str, ...]


class FieldSet:
    """A trie. Treat as a value: the operations return new sets (which may share parts)."""

    __slots__ = ("children", "members")

    def __init__(self, members: set[str] | None = None, children: dict[str, FieldSet] | None = None) -> None:
        self.members = members if members is not None else set()
        self.children = children if children is not None else {}

    @classmethod
    def of(cls, *paths: Path) -> FieldSet:
        found = cls()
        for path in paths:
            found.insert(path)
        return found

    def insert(self, path: Path) -> None:
        """The only operation that changes a set: for building one."""
        node = self
        for element in path[:-1]:
            node = node.children.setdefault(element, FieldSet())
        node.members.add(path[-1])

    def __bool__(self) -> bool:
        return bool(self.members) or any(self.children.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldSet) and self.to_fields() == other.to_fields()

    def has(self, element: str) -> bool:
        """Whether the element is a member or leads to one."""
        return element in self.members or element in self.children

    def union(self, other: FieldSet) -> FieldSet:
        children = dict(self.children)
        for element, child in other.children.items():
            children[element] = children[element].union(child) if element in children else child
        return FieldSet(self.members | other.members, children)

    def intersection(self, other: FieldSet) -> FieldSet:
        children = {}
        for element, child in self.children.items():
            if element in other.children:
                common = child.intersection(other.children[element])
                if common:
                    children[element] = common
        return FieldSet(self.members & other.members, children)

    def difference(self, other: FieldSet) -> FieldSet:
        """Without the members of `other`; what is below them stays."""
        children = {}
        for element, child in self.children.items():
            rest = child.difference(other.children[element]) if element in other.children else child
            if rest:
                children[element] = rest
        return FieldSet(self.members - other.members, children)

    def without(self, other: FieldSet) -> FieldSet:
        """Without the members of `other` and all that is below them."""
        children = {}
        for element, child in self.children.items():
            if element in other.members:
                continue
            rest = child.without(other.children[element]) if element in other.children else child
            if rest:
                children[element] = rest
        return FieldSet(self.members - other.members, children)

    def only(self, *elements: str) -> FieldSet:
        """What is at or below some of the first elements."""
        return FieldSet(
            {one for one in self.members if one in elements},
            {one: child for one, child in self.children.items() if one in elements},
        )

    def paths(self, prefix: Path = ()) -> Iterator[Path]:
        """All members, sorted."""
        for element in sorted(self.members | self.children.keys()):
            if element in self.members:
                yield (*prefix, element)
            if element in self.children:
                yield from self.children[element].paths((*prefix, element))

    def to_fields(self) -> dict[str, Any]:
        """FieldsV1."""
        fields: dict[str, Any] = {}
        for element in sorted(self.members | self.children.keys()):
            below = self.children[element].to_fields() if element in self.children else {}
            if element in self.members and below:
                below = {".": {}, **below}
            if element in self.members or below:
                fields[element] = below
        return fields

    @classmethod
    def from_fields(cls, fields: Any) -> FieldSet:
        """Raises ValueError when `fields` is not FieldsV1."""
        if not isinstance(fields, dict):
            raise ValueError("FieldsV1 must be an object")  # noqa: TRY004 (what callers catch)
        found = cls()
        for element, below in fields.items():
            if element == ".":
                continue
            if element[:2] not in {"f:", "k:", "v:", "i:"} or not isinstance(below, dict):
                raise ValueError(f"no FieldsV1 element: {element!r}")
            if not below or "." in below:
                found.members.add(element)
            if below and set(below) != {"."}:
                found.children[element] = cls.from_fields(below)
        return found


def field(name: str) -> str:
    return f"f:{name}"


def key(keys: dict[str, Any]) -> str:
    """The element of a list item found by its keys."""
    return "k:" + json.dumps(keys, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def value(item: Any) -> str:
    """The element of a set's item."""
    return "v:" + json.dumps(item, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def shown(path: Path) -> str:
    """A path as conflicts name it.

    >>> shown(("f:spec", 'k:{"name":"c"}', "f:image"))
    '.spec[name="c"].image'
    """
    text = ""
    for element in path:
        kind, rest = element[:2], element[2:]
        if kind == "f:":
            text += f".{rest}"
        elif kind == "k:":
            pairs = ",".join(f"{name}={json.dumps(one)}" for name, one in json.loads(rest).items())
            text += f"[{pairs}]"
        elif kind == "v:":
            text += f"[={rest}]"
        else:
            text += f"[{rest}]"
    return text


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
