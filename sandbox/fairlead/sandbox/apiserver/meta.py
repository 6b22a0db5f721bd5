"""ObjectMeta: what the server sets, keeps, and refuses, the same for every kind.

Pure but for uid and random name, which come from the State. Source: k8s.io/apiserver/pkg/registry/rest/{create,update}.go,
k8s.io/apimachinery/pkg/api/validation/objectmeta.go (1.36).
"""

from __future__ import annotations

from typing import Any

from fairlead.sandbox.apiserver import names, statuses
from fairlead.sandbox.apiserver.call import Call
from fairlead.sandbox.apiserver.kinds.base import Kind
from fairlead.sandbox.apiserver.kinds.errors import FieldError, forbidden, invalid, quote, required, too_long
from fairlead.sandbox.apiserver.kinds.request import DecodeError, Json

_ANNOTATIONS_LIMIT_BYTES = 256 * 1024
_STANDARD_FINALIZERS = {"kubernetes", "orphan", "foregroundDeletion"}
_STRINGS = ("name", "generateName", "namespace", "uid", "resourceVersion", "selfLink", "creationTimestamp")
_STRING_MAPS = ("labels", "annotations")
_NUMBERS = ("generation", "deletionGracePeriodSeconds")
_OWNER_FIELDS = {"apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"}
_FIELDS = {*_STRINGS, *_STRING_MAPS, *_NUMBERS, "deletionTimestamp", "finalizers", "ownerReferences", "managedFields"}


def decode(obj: Json, kind_name: str) -> list[str]:
    """Check types, drop nulls, empties and unknown fields of metadata in place; returns the unknown. Raises DecodeError."""
    given = obj.get("metadata")
    if given is None:
        obj["metadata"] = {}
        return []
    if not isinstance(given, dict):
        raise DecodeError(
            f"json: cannot unmarshal {go_type(given)} into Go struct field {kind_name}.metadata of type v1.ObjectMeta"
        )
    metadata: Json = {}
    unknown: list[str] = []
    for name, value in given.items():
        if name not in _FIELDS:
            unknown.append(f'unknown field "metadata.{name}"')
        elif value is not None:
            _check_type(name, value, unknown)
            if value not in ("", [], {}):
                metadata[name] = value
    obj["metadata"] = metadata
    return unknown


def _check_type(name: str, value: Any, unknown: list[str]) -> None:
    where = f"ObjectMeta.metadata.{name}"
    if name in _STRINGS or name == "deletionTimestamp":
        if not isinstance(value, str):
            raise DecodeError(f"json: cannot unmarshal {go_type(value)} into Go struct field {where} of type string")
    elif name in _STRING_MAPS:
        if not isinstance(value, dict):
            raise DecodeError(
                f"json: cannot unmarshal {go_type(value)} into Go struct field {where} of type map[string]string"
            )
        for key, inner in list(value.items()):
            if inner is None:
                value[key] = ""
            elif not isinstance(inner, str):
                raise DecodeError(
                    f"json: cannot unmarshal {go_type(inner)} into Go struct field {where} of type string"
                )
    elif name in _NUMBERS:
        if isinstance(value, bool) or not isinstance(value, int):
            raise DecodeError(f"json: cannot unmarshal {go_type(value)} into Go struct field {where} of type int64")
    elif not isinstance(value, list):
        element = {"finalizers": "string", "ownerReferences": "v1.OwnerReference"}.get(name, "v1.ManagedFieldsEntry")
        raise DecodeError(f"json: cannot unmarshal {go_type(value)} into Go struct field {where} of type []{element}")
    else:
        _check_elements(name, value, where, unknown)


def _check_elements(name: str, value: list[Any], where: str, unknown: list[str]) -> None:
    for index, one in enumerate(value):
        if name == "finalizers" and not isinstance(one, str):
            raise DecodeError(f"json: cannot unmarshal {go_type(one)} into Go struct field {where} of type string")
        if name == "ownerReferences":
            if not isinstance(one, dict):
                raise DecodeError(
                    f"json: cannot unmarshal {go_type(one)} into Go struct field {where} of type v1.OwnerReference"
                )
            for field in [field for field in one if field not in _OWNER_FIELDS]:
                unknown.append(f'unknown field "metadata.ownerReferences[{index}].{field}"')
                del one[field]


def go_type(value: Any) -> str:
    """The word of encoding/json for the type of a JSON value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def wipe(call: Call, obj: Json) -> None:
    """Before admission of a new object: drop what only the server sets. Raises when metadata contradicts the URL."""
    metadata = obj["metadata"]
    _match_namespace(call, metadata)
    for field in (
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "generation",
        "uid",
        "creationTimestamp",
    ):
        metadata.pop(field, None)
    if metadata.pop("resourceVersion", "") not in {"", "0"}:
        raise statuses.ApiError(500, "", "resourceVersion should not be set on objects to be created")


def fill(call: Call, obj: Json) -> None:
    """After admission: uid, creationTimestamp, and a name where one is to be generated."""
    metadata = obj["metadata"]
    metadata["uid"] = call.state.new_uid()
    metadata["creationTimestamp"] = call.context.timestamp()
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = call.state.new_name(metadata["generateName"])


def _match_namespace(call: Call, metadata: Json) -> None:
    given = metadata.get("namespace", "")
    if not call.kind.namespaced:
        metadata.pop("namespace", None)
        return
    if given and given != call.namespace:
        raise statuses.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    metadata["namespace"] = call.namespace


def match_url(call: Call, obj: Json) -> None:
    """The body of a PUT must name the object of its URL."""
    metadata = obj["metadata"]
    name, wanted = metadata.get("name", ""), call.target.name
    if not name:
        raise statuses.bad_request(
            f"the name of the object ({wanted} based on URL) was undeterminable: name must be provided"
        )
    if name != wanted:
        raise statuses.bad_request(f"the name of the object ({name}) does not match the name on the URL ({wanted})")
    given = metadata.get("namespace", "")
    if call.kind.namespaced and given and given != call.namespace:
        raise statuses.bad_request(
            f"the namespace of the object ({given}) does not match the namespace on the request ({call.namespace})"
        )
    _match_namespace(call, metadata)


def prepare_update(new: Json, old: Json) -> None:
    """Restore what an update leaves out or may not change."""
    metadata, before = new["metadata"], old["metadata"]
    for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"):
        metadata.pop(field, None)
        if field in before:
            metadata[field] = before[field]
    for field in ("uid", "creationTimestamp", "generateName"):
        if field not in metadata and field in before:
            metadata[field] = before[field]


def bump_generation(kind: Kind, new: Json, old: Json | None) -> None:
    """metadata.generation counts changes of the desired state: everything but metadata and status."""
    if not kind.strategy.generation:
        return
    if old is None:
        new["metadata"]["generation"] = 1
    elif _wanted(new) != _wanted(old):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _wanted(obj: Json) -> Json:
    return {k: v for k, v in obj.items() if k not in ("metadata", "status", "apiVersion", "kind")}


def validate_create(kind: Kind, obj: Json) -> list[FieldError]:
    metadata = obj["metadata"]
    errors: list[FieldError] = []
    if metadata.get("generateName"):
        complaints = kind.strategy.validate_name(metadata["generateName"], prefix=True)
        errors += [invalid("metadata.generateName", metadata["generateName"], text) for text in complaints]
    name = metadata.get("name", "")
    if not name:
        errors.append(required("metadata.name", "name or generateName is required"))
    else:
        errors += [invalid("metadata.name", name, text) for text in kind.strategy.validate_name(name, prefix=False)]
    return errors + _validate_rest(kind, metadata)


def validate_update(kind: Kind, new: Json, old: Json) -> list[FieldError]:
    """Errors as the real one lists them: of the kind's validation and again of the generic one, so twice."""
    metadata, before = new["metadata"], old["metadata"]
    errors = _validate_rest(kind, metadata)
    if before.get("deletionTimestamp"):
        held = before.get("finalizers", [])
        added = [one for one in metadata.get("finalizers", []) if one not in held]
        if added:
            shown = "[]string{" + ", ".join(quote(one) for one in added) + "}"
            errors.append(
                forbidden(
                    "metadata.finalizers",
                    f"no new finalizers can be added if the object is being deleted, found new finalizers {shown}",
                )
            )
    for field in ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"):
        if metadata.get(field) != before.get(field):
            errors.append(invalid(f"metadata.{field}", metadata.get(field), "field is immutable"))
    return errors + errors


def _validate_rest(kind: Kind, metadata: Json) -> list[FieldError]:
    """Labels, annotations, owners, finalizers."""
    errors: list[FieldError] = []
    for key, value in metadata.get("labels", {}).items():
        errors += [invalid("metadata.labels", key, text) for text in names.qualified_name_complaints(key)]
        errors += [invalid("metadata.labels", value, text) for text in names.label_value_complaints(value)]
    annotations = metadata.get("annotations", {})
    for key in annotations:
        errors += [invalid("metadata.annotations", key, text) for text in names.qualified_name_complaints(key.lower())]
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _ANNOTATIONS_LIMIT_BYTES:
        errors.append(too_long("metadata.annotations", _ANNOTATIONS_LIMIT_BYTES))
    errors += _validate_owners(metadata.get("ownerReferences", []))
    for index, finalizer in enumerate(metadata.get("finalizers", [])):
        complaints = names.qualified_name_complaints(finalizer)
        errors += [invalid("metadata.finalizers", finalizer, text) for text in complaints]
        if not kind.strategy.custom_resource and "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            errors.append(invalid(f"metadata.finalizers[{index}]", finalizer, text))
    return errors


def _validate_owners(owners: list[Json]) -> list[FieldError]:
    errors: list[FieldError] = []
    controller = ""
    for index, owner in enumerate(owners):
        path = f"metadata.ownerReferences[{index}]"
        group, slash, version = owner.get("apiVersion", "").rpartition("/")
        if not version or (slash and not group):
            errors.append(invalid(f"{path}.apiVersion", owner.get("apiVersion", ""), "version must not be empty"))
        errors += [
            invalid(f"{path}.{field}", "", "must not be empty")
            for field in ("kind", "name", "uid")
            if not owner.get(field)
        ]
        if owner.get("controller"):
            if controller:
                shown = f'Only one reference can have Controller set to true. Found "true" in references for {controller} and {owner.get("name")}'
                errors.append(invalid("metadata.ownerReferences", owners, shown))
            controller = str(owner.get("name"))
    return errors
