"""The base strategy of built-in kinds: the shape from the client's model, and status as a subresource.

Decoding, the schema and dropping status on create are here; defaults and validation are each kind's own. Generic metadata
rules are in meta.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import cached_property
from typing import Any

from fairlead.sandbox.apiserver import names, tables
from fairlead.sandbox.apiserver.kinds import disabled
from fairlead.sandbox.apiserver.kinds.base import Column, Context, Strategy
from fairlead.sandbox.apiserver.kinds.decode import decode, zero
from fairlead.sandbox.apiserver.kinds.errors import FieldError
from fairlead.sandbox.apiserver.kinds.openschema import nested_schema
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.kinds.schema import schema_of
from fairlead.sandbox.release import NEWEST, Guarded, Release

NameCheck = Callable[..., list[str]]


class BuiltIn(Strategy):
    """A kind of Kubernetes itself. `model` is its class in kubernetes.client, `kind` as discovery calls it.

    `catalogue.kinds` sets the release and the kind's name.
    """

    model: str
    kind = ""
    release: Release = NEWEST
    table: tables.Table = tables.GENERIC
    status_resets_metadata = False
    fields: tuple[str, ...] = ()
    """Field selectors: dotted paths of strings (or booleans) in the object."""
    name_check: NameCheck = staticmethod(names.subdomain_complaints)

    def __init__(self, model: str | None = None, *, table: tables.Table | None = None) -> None:
        if model is not None:
            self.model = model
        if table is not None:
            self.table = table

    @cached_property
    def schema(self) -> Json:  # type: ignore[override]  # built at first use: importing all models takes seconds
        return nested_schema(self.model, self.release.unknown)

    @cached_property
    def has_status(self) -> bool:
        return "status" in schema_of(self.model).fields

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
        disabled.drop(new, old, self.guarded)

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
