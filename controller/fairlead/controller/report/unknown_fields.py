"""Fields of a status that this version does not know: read past, and kept when the status is written.

A newer version may have written them, before a rollback or as the replica that led. A merge patch keeps what it does not
name, except within lists, which it replaces: entries of a list that has keys keep the unknown fields of their predecessor.
Example: `usage: [{flavor: h100, allocated: 3, later: 1}]` is rewritten as `[{flavor: h100, allocated: 4, later: 1}]`. Pure.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from fairlead.api.base import model_in


@dataclass(frozen=True)
class _Field:
    """`model` is that of an object, or of a list's entries; `key` names the field by which such entries are told apart."""

    model: type[BaseModel] | None
    key: str


@functools.cache
def _fields(model: type[BaseModel]) -> Mapping[str, _Field]:
    found: dict[str, _Field] = {}
    for name, field in model.model_fields.items():
        extra = field.json_schema_extra
        keys: Any = extra.get("x-kubernetes-list-map-keys") if isinstance(extra, dict) else None
        found[field.alias or name] = _Field(model_in(field.annotation), keys[0] if keys else "")
    return found


def known_fields(value: Mapping[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """The value without fields that the model does not have, at any depth."""
    return {name: _known(inner, field.model) for name, inner in value.items() if (field := _fields(model).get(name))}


def _known(value: Any, model: type[BaseModel] | None) -> Any:
    if model is not None and isinstance(value, Mapping):
        return known_fields(value, model)
    if model is not None and isinstance(value, list):
        return [_known(each, model) for each in value]
    return value


def merge_patch(
    before: Mapping[str, Any], status: Mapping[str, Any], model: type[BaseModel], *, whole: bool
) -> dict[str, Any]:
    """What writes `status` over `before`, as stored. With `whole`, known fields that `status` lacks are removed."""
    absent = dict.fromkeys(name for name in before if name in _fields(model)) if whole else {}
    patch: dict[str, Any] = {**absent, **status}
    for name, field in _fields(model).items():
        old, new = before.get(name), status.get(name)
        if field.model is None or not old or not new:
            continue
        if isinstance(new, Mapping):
            patch[name] = merge_patch(old, new, field.model, whole=True)
        elif field.key:
            patch[name] = _entries(old, new, field.model, field.key)
    return patch


def _entries(old: Any, new: Any, model: type[BaseModel], key: str) -> list[dict[str, Any]]:
    kept = {
        entry.get(key): {name: value for name, value in entry.items() if name not in _fields(model)} for entry in old
    }
    return [{**kept.get(entry[key], {}), **entry} for entry in new]
