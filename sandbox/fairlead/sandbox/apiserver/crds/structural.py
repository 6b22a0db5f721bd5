"""Structural schemas applied to objects: pruning of unknown fields, and defaults.

Pure; changes the object in place. Values of the wrong type are left for validation.
Source: k8s.io/apiextensions-apiserver/pkg/apiserver/schema/{pruning,defaulting} (1.36).
"""

from __future__ import annotations

import copy
from typing import Any

from fairlead.sandbox.apiserver.kinds.request import Json

_META = ("apiVersion", "kind", "metadata")


def prune(obj: Json, schema: Json) -> list[str]:
    """Drop fields that no schema names; returns their paths. The root's apiVersion, kind and metadata stay."""
    dropped: list[str] = []
    _prune(obj, schema, "", dropped, root=True)
    return dropped


def _prune(value: Any, schema: Json, path: str, dropped: list[str], *, root: bool = False) -> None:
    if isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, dict):
            for index, one in enumerate(value):
                _prune(one, items, f"{path}[{index}]", dropped)
        return
    if not isinstance(value, dict):
        return
    root = root or bool(schema.get("x-kubernetes-embedded-resource"))
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    keep = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    for name in list(value):
        here = f"{path}.{name}" if path else name
        if root and name in _META:
            continue
        if name in properties:
            _prune(value[name], properties[name], here, dropped)
        elif isinstance(additional, dict):
            _prune(value[name], additional, here, dropped)
        elif additional is True or keep:
            continue
        else:
            del value[name]
            dropped.append(here)


def default(value: Any, schema: Json) -> None:
    """Set defaults, outermost first: a defaulted object is then defaulted itself."""
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        for name, inner in properties.items():
            if "default" in inner and (name not in value or (value[name] is None and not inner.get("nullable"))):
                value[name] = copy.deepcopy(inner["default"])
            if name in value:
                default(value[name], inner)
        additional = schema.get("additionalProperties")
        if isinstance(additional, dict):
            for name, one in value.items():
                if name not in properties:
                    default(one, additional)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for one in value:
            default(one, schema["items"])
