"""A webhook's JSON patch, applied to the object it reviewed; failures have the texts of Go's library.

Source: gopkg.in/evanphx/json-patch.v4, as k8s.io/apiserver uses it (1.36).
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.patches import jsonpatch


class PatchFailed(Exception):  # noqa: N818  # what happened
    """The patch is no patch, or does not fit the object."""


def decode_patch(text: str) -> list[Json]:
    """`response.patch`: base64 of a JSON list of operations."""
    try:
        operations = json.loads(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError) as error:
        raise PatchFailed(f"illegal patch: {error}") from error
    if not isinstance(operations, list) or not all(isinstance(one, dict) for one in operations):
        raise PatchFailed("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    return operations


def apply_patch(obj: Json, operations: list[Json]) -> Json:
    """A new object. Raises PatchFailed with the first operation that does not fit."""
    document: Any = obj
    for operation in operations:
        try:
            document = jsonpatch.apply(document, [operation])
        except (jsonpatch.PatchError, jsonpatch.MalformedPatch) as error:
            raise PatchFailed(_go_words(document, operation, str(error))) from error
    if not isinstance(document, dict):
        raise PatchFailed("json: cannot unmarshal into Go value of type map[string]interface {}")
    return document


def _go_words(document: Any, operation: Json, otherwise: str) -> str:
    kind, path = operation.get("op"), str(operation.get("path", ""))
    steps = [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]
    parent: Any = document
    for step in steps[:-1]:
        parent = _child(parent, step)
    last = steps[-1] if steps else ""
    missing_parent = not isinstance(parent, (dict, list))
    match kind:
        case "add" if missing_parent:
            return f'add operation does not apply: doc is missing path: "{path}": missing value'
        case "remove" if missing_parent:
            return f'remove operation does not apply: doc is missing path: "{path}": missing value'
        case "remove" if isinstance(parent, dict):
            return f"error in remove for path: '{path}': Unable to remove nonexistent key: {last}: missing value"
        case "remove" | "add":
            return (
                f"error in {kind} for path: '{path}': Unable to access invalid index: {last}: invalid index referenced"
            )
        case "replace" if missing_parent:
            return f"replace operation does not apply: doc is missing path: {path}: missing value"
        case "replace":
            return f"replace operation does not apply: doc is missing key: {path}: missing value"
        case "test":
            return f"testing value {path} failed: test failed"
        case "move" | "copy":
            source = operation.get("from", "")
            return f"{kind} operation does not apply: doc is missing from path: {source}: missing value"
        case _:
            return otherwise


def _child(parent: Any, step: str) -> Any:
    if isinstance(parent, dict):
        return parent.get(step)
    if isinstance(parent, list) and step.isdigit() and int(step) < len(parent):
        return parent[int(step)]
    return None
