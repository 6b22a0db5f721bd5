"""The base strategy of built-in kinds: the shape from the client's model, and status as a subresource.

Decoding, the schema, the defaults of defaults.yaml and dropping status on create are here; validation is each kind's own. Generic metadata
rules are in meta.py. Fields that a release does not store, because a feature gate is off, are dropped when written, unless the
stored object uses them; in their paths `[]` stands for the elements of a list, `{}` for the values of a map.
Example: where taints are guarded a new slice loses them, and an update of a slice with taints keeps them.
Source: dropDisabledFields in pkg/registry/resource/{resourceslice,resourceclaim,deviceclass}/strategy.go, dropDisabledPodStatusFields
in pkg/api/pod/util.go (1.34 to 1.36).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import cached_property
from typing import Any

from fairlead.sandbox.apiserver import names, tables
from fairlead.sandbox.apiserver.kinds import defaults
from fairlead.sandbox.apiserver.kinds.base import Column, Context, Strategy
from fairlead.sandbox.apiserver.kinds.decode import decode, zero
from fairlead.sandbox.apiserver.kinds.errors import FieldError
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.kinds.schema import nested_schema, schema_of
from fairlead.sandbox.release import NEWEST, Guarded, Release

NameCheck = Callable[..., list[str]]


class BuiltIn(Strategy):
    """A kind of Kubernetes itself. `model` is its class in kubernetes.client, `kind` as discovery calls it.

    `catalogue.kinds` sets these attributes as its table has them.
    """

    model = ""
    kind = ""
    release: Release = NEWEST
    table: tables.Table = tables.GENERIC
    status_resets_metadata = False
    fields: tuple[str, ...] = ()
    """Field selectors: dotted paths of strings (or booleans) in the object."""
    name_check: NameCheck = staticmethod(names.subdomain_complaints)

    @cached_property
    def schema(self) -> Json:  # type: ignore[override]  # built at first use: importing all models takes seconds
        return nested_schema(self.model, self.release.unknown)

    @cached_property
    def has_status(self) -> bool:
        return "status" in schema_of(self.model).fields

    def default(self, obj: Json) -> None:
        defaults.fill(obj, self.kind)

    def decode(self, obj: Json) -> list[str]:
        return decode(obj, self.model, self.release.unknown)

    def zero(self) -> Json:
        return {name: value for name, value in zero(self.model).items() if name != "metadata"}

    def prepare_create(self, obj: Json, context: Context) -> None:
        if self.has_status:
            self.reset_status(obj)

    @cached_property
    def guarded(self) -> list[Guarded]:
        """What a feature gate of the release guards that is off."""
        return self.release.guarded(self.kind)

    def drop_disabled(self, new: Json, old: Json | None) -> None:
        _drop(new, old, self.guarded)

    def reset_status(self, obj: Json) -> None:
        """The initial status, whatever the client sent."""
        field = schema_of(self.model).fields["status"]
        if field.value_struct:
            obj["status"] = zero(field.ref)
        else:
            obj.pop("status", None)

    def validate_name(self, name: str, *, prefix: bool) -> list[str]:
        return self.name_check(name, prefix=prefix)

    def validate_create(self, obj: Json, context: Context) -> list[FieldError]:
        return list(self.validate(obj, context))

    def validate_update(self, new: Json, old: Json, context: Context) -> list[FieldError]:
        return [*self.validate(new, context), *self.validate_change(new, old, context)]

    def validate(self, obj: Json, context: Context) -> Iterable[FieldError]:
        """What holds for every version of the object."""
        return ()

    def validate_change(self, new: Json, old: Json, context: Context) -> Iterable[FieldError]:
        """What may not change from one version to the next."""
        return ()

    def selectable_fields(self, obj: Json) -> dict[str, str]:
        return {path: _selectable(obj, path) for path in self.fields}

    def columns(self) -> list[Column]:
        return self.table.columns

    def cells(self, obj: Json, now: datetime) -> list[Any]:
        return self.table.cells(obj, now)


def _selectable(obj: Any, path: str) -> str:
    for step in path.split("."):
        obj = obj.get(step) if isinstance(obj, dict) else None
    if isinstance(obj, bool):
        return "true" if obj else "false"
    return "" if obj is None else str(obj)


def _drop(new: Json, old: Json | None, guarded: Iterable[Guarded]) -> None:
    """Drop disabled fields, in place. `old` is None for a new object."""
    for group in guarded:
        if old is not None and any(_used(old, path) for path in group.paths):
            continue
        for path in group.dropped:
            for holder, name in _holders(new, path.split(".")):
                holder.pop(name, None)


def _used(obj: Json, path: str) -> bool:
    return any(holder.get(name) not in (None, []) for holder, name in _holders(obj, path.split(".")))


def _holders(value: Any, steps: list[str]) -> Iterator[tuple[Json, str]]:
    """The objects that may have the path's last field, and its name."""
    if not isinstance(value, dict):
        return
    step, *rest = steps
    if not rest:
        yield value, step
        return
    inner = value.get(step.rstrip("[]{}"))
    for one in _elements(inner, step):
        yield from _holders(one, rest)


def _elements(value: Any, step: str) -> Iterable[Any]:
    if step.endswith("[]"):
        return value if isinstance(value, list) else ()
    if step.endswith("{}"):
        return value.values() if isinstance(value, dict) else ()
    return (value,)
