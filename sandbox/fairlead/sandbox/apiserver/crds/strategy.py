"""The strategy of CustomResourceDefinition itself: validated when written, its kinds served as soon as it is stored.

In the real apiserver controllers write the conditions a moment later; here `committed` writes them at once, as a second
revision, so that a watching client sees the same two steps. Deletion is in `removal`.
Source: apiextensions-apiserver/pkg/registry and pkg/controller/{status,establish} (1.36).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from fairlead.sandbox.apiserver.crds import custom
from fairlead.sandbox.apiserver.crds.custom import STORAGE, Storing, kinds_of
from fairlead.sandbox.apiserver.crds.definition import definition
from fairlead.sandbox.apiserver.kinds import checks
from fairlead.sandbox.apiserver.kinds.base import Context, Registry
from fairlead.sandbox.apiserver.kinds.builtin import BuiltIn
from fairlead.sandbox.apiserver.kinds.decode import decode
from fairlead.sandbox.apiserver.kinds.errors import FieldError
from fairlead.sandbox.apiserver.kinds.request import DecodeError, Json


class CrdStrategy(BuiltIn):
    def decode(self, obj: Json) -> list[str]:
        unknown = super().decode(obj)
        for index, version in enumerate((obj.get("spec") or {}).get("versions") or []):
            root = (version.get("schema") or {}).get("openAPIV3Schema")
            _decode_loose(root, f"spec.versions[{index}].schema.openAPIV3Schema", unknown)
        return unknown

    def default(self, obj: Json) -> None:
        spec = obj.setdefault("spec", {})
        names = spec.setdefault("names", {})
        if names.get("kind"):
            if not names.get("singular"):
                names["singular"] = names["kind"].lower()
            if not names.get("listKind"):
                names["listKind"] = f"{names['kind']}List"
        spec.setdefault("conversion", {"strategy": "None"})

    def prepare_create(self, obj: Json, context: Context) -> None:
        stored = [one["name"] for one in obj["spec"].get("versions") or [] if one.get("storage")]
        obj["status"] = {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored}

    def prepare_update(self, new: Json, old: Json, context: Context) -> None:
        status: Json = new.get("status") or copy.deepcopy(old.get("status") or {})
        new["status"] = status
        versions = status.setdefault("storedVersions", [])
        for one in new["spec"].get("versions") or []:
            if one.get("storage") and one["name"] not in versions:
                new["status"] = {**status, "storedVersions": [*versions, one["name"]]}

    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        yield from definition(obj, self.release.cel.new_rule)

    def validate_change(self, new: Json, old: Json, context: Context) -> Iterator[FieldError]:
        for key in ("group", "scope"):
            yield from checks.unchanged(new["spec"].get(key), old["spec"].get(key), f"spec.{key}")
        for key in ("plural", "kind"):
            after, before = (one["spec"]["names"].get(key) for one in (new, old))
            yield from checks.unchanged(after, before, f"spec.names.{key}")

    def prepare_delete(self, obj: Json, context: Context) -> None:
        custom.hold(obj, context)

    def committed(self, old: Json | None, new: Json | None, context: Context) -> None:
        services = custom.storing(context)
        if new is None:
            if old is not None:
                _take_down(services.registry, old)
            return
        if new["metadata"].get("deletionTimestamp"):
            custom.clean(new["spec"]["group"], new["spec"]["names"]["plural"], context)
            return
        if old is None or old["spec"] != new["spec"]:
            if old is not None:
                _take_down(services.registry, old)
            for kind in kinds_of(new):
                services.registry.add(kind)
            _establish(services, new, context)


def _decode_loose(schema: Any, path: str, unknown: list[str]) -> None:
    """`items` and `additionalProperties` may be a schema or something else: the models leave them open."""
    if not isinstance(schema, dict):
        return
    for key in ("items", "additionalProperties"):
        inner = schema.get(key)
        if isinstance(inner, dict):
            unknown += [one.replace('"', f'"{path}.{key}.', 1) for one in decode(inner, "V1JSONSchemaProps")]
            _decode_loose(inner, f"{path}.{key}", unknown)
        elif key in schema and not isinstance(inner, bool):
            what = "array" if isinstance(inner, list) else "string" if isinstance(inner, str) else "number"
            raise DecodeError(f"json: cannot unmarshal {what} into Go struct field JSONSchemaProps.{key}")
    for name, inner in (schema.get("properties") or {}).items():
        _decode_loose(inner, f"{path}.properties.{name}", unknown)
    for key in ("allOf", "anyOf", "oneOf"):
        for index, inner in enumerate(schema.get(key) or []):
            _decode_loose(inner, f"{path}.{key}[{index}]", unknown)
    _decode_loose(schema.get("not"), f"{path}.not", unknown)


def _establish(services: Storing, new: Json, context: Context) -> None:
    """Write NamesAccepted and Established as their controllers would."""
    spec = new["spec"]
    conditions = (new.get("status") or {}).get("conditions") or []
    stamp = context.timestamp()
    status = {
        **new["status"],
        "conditions": conditions
        or [
            _condition("NamesAccepted", "NoConflicts", "no conflicts found", stamp),
            _condition("Established", "InitialNamesAccepted", "the initial names have been accepted", stamp),
        ],
        "acceptedNames": copy.deepcopy(spec["names"]),
    }
    if status == new["status"]:
        return
    key = ("", new["metadata"]["name"])
    stored = services.store.get(STORAGE, key)
    if stored is not None:
        services.store.put(STORAGE, key, {**stored.obj, "status": status}, expect=stored.revision)


def _condition(type_: str, reason: str, message: str, stamp: str) -> Json:
    return {"type": type_, "status": "True", "lastTransitionTime": stamp, "reason": reason, "message": message}


def _take_down(registry: Registry, old: Json) -> None:
    for version in old["spec"]["versions"]:
        registry.remove(old["spec"]["group"], version["name"], old["spec"]["names"]["plural"])
