"""JSON Patch (RFC 6902), as the apiserver applies it, and JSON Merge Patch (RFC 7386).

Pure: each returns a new document and leaves the old one unchanged.
`PatchError` is a patch that does not fit the document (422); `MalformedPatch` a body that is no patch (400).
"""

from __future__ import annotations

from typing import Any

from fairlead.sandbox.apiserver.kinds.request import clone, same

OPERATIONS_LIMIT = 10_000


class MalformedPatch(ValueError):  # noqa: N818 (RFC 6902's word)
    """Not a list of operations."""


class TooManyOperationsError(MalformedPatch):
    """More operations than the limit."""


class PatchError(ValueError):
    """An operation that the document does not allow."""


def apply(document: Any, operations: Any) -> Any:
    """The patched document. Raises MalformedPatch, PatchError."""
    if not isinstance(operations, list) or not all(isinstance(one, dict) for one in operations):
        raise MalformedPatch("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    if len(operations) > OPERATIONS_LIMIT:
        raise TooManyOperationsError(
            f"The allowed maximum operations in a JSON patch is {OPERATIONS_LIMIT}, got {len(operations)}"
        )
    document = clone(document)
    for operation in operations:
        document = _apply_one(document, operation)
    return document


def _apply_one(document: Any, operation: dict[str, Any]) -> Any:
    kind, path = operation.get("op"), operation.get("path")
    if not isinstance(path, str):
        raise PatchError(f"Unable to find path in operation {kind!r}")
    match kind:
        case "add":
            return _add(document, _tokens(path), _value_of(operation))
        case "remove":
            return _remove(document, _tokens(path))
        case "replace":
            _get(document, _tokens(path))
            return _set(document, _tokens(path), _value_of(operation))
        case "test":
            _test(document, path, operation)
            return document
        case "move" | "copy":
            source = operation.get("from")
            if not isinstance(source, str):
                raise PatchError(f"{kind} operation does not apply: no from")
            value = clone(_get(document, _tokens(source)))
            if kind == "move":
                if path.startswith(source + "/"):
                    raise PatchError("move operation does not apply: cannot move into itself")
                document = _remove(document, _tokens(source))
            return _add(document, _tokens(path), value)
        case _:
            raise PatchError(f"Unexpected kind: {kind}")


def _value_of(operation: dict[str, Any]) -> Any:
    if "value" not in operation:
        raise PatchError(f"{operation['op']} operation does not apply: no value")
    return clone(operation["value"])


def _test(document: Any, path: str, operation: dict[str, Any]) -> None:
    try:
        found = _get(document, _tokens(path))
    except PatchError:
        if operation.get("value") is None:  # absent equals null, as in evanphx/json-patch
            return
        raise
    if not same(found, operation.get("value")):
        raise PatchError(f"testing value {path} failed: test failed")


def _tokens(path: str) -> list[str]:
    if path == "":
        return []
    if not path.startswith("/"):
        raise PatchError(f"path {path!r} does not start with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/")]


def _index(container: list[Any], step: str, *, adding: bool) -> int:
    if step == "-":
        if adding:
            return len(container)
        raise PatchError("index - refers to nothing")
    if not step.lstrip("-").isdigit():
        raise PatchError(f"invalid index {step!r}")
    index = int(step)
    limit = len(container) + (1 if adding else 0)
    if index < 0:  # evanphx/json-patch allows negative indices
        index += limit
    if not 0 <= index < limit:
        raise PatchError(f"index {step} out of bounds")
    return index


def _step(container: Any, step: str) -> Any:
    if isinstance(container, dict):
        if step not in container:
            raise PatchError(f"missing key {step!r}")
        return container[step]
    if isinstance(container, list):
        return container[_index(container, step, adding=False)]
    raise PatchError(f"nothing under {step!r}")


def _get(document: Any, tokens: list[str]) -> Any:
    for step in tokens:
        document = _step(document, step)
    return document


def _add(document: Any, tokens: list[str], value: Any) -> Any:
    if not tokens:
        return value
    parent = _get(document, tokens[:-1])
    if isinstance(parent, dict):
        parent[tokens[-1]] = value
    elif isinstance(parent, list):
        parent.insert(_index(parent, tokens[-1], adding=True), value)
    else:
        raise PatchError(f"nothing can be added under {tokens[-1]!r}")
    return document


def _set(document: Any, tokens: list[str], value: Any) -> Any:
    if not tokens:
        return value
    parent = _get(document, tokens[:-1])
    if isinstance(parent, list):
        parent[_index(parent, tokens[-1], adding=False)] = value
    else:
        parent[tokens[-1]] = value
    return document


def _remove(document: Any, tokens: list[str]) -> Any:
    if not tokens:
        raise PatchError("the whole document cannot be removed")
    parent = _get(document, tokens[:-1])
    _step(parent, tokens[-1])
    if isinstance(parent, list):
        del parent[_index(parent, tokens[-1], adding=False)]
    else:
        del parent[tokens[-1]]
    return document


def merge(document: Any, patch: Any) -> Any:
    """The merged document.

    >>> merge({"a": 1, "b": {"c": 2, "d": 3}}, {"a": None, "b": {"c": 4}, "e": {"f": None}})
    {'b': {'c': 4, 'd': 3}, 'e': {}}
    """
    if not isinstance(patch, dict):
        return patch
    merged = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged
