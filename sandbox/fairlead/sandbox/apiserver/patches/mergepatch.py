"""JSON Merge Patch (RFC 7386): objects merge, null removes, everything else replaces. Pure; unchanged parts are shared."""

from __future__ import annotations

from typing import Any


def apply(document: Any, patch: Any) -> Any:
    """The merged document.

    >>> apply({"a": 1, "b": {"c": 2, "d": 3}}, {"a": None, "b": {"c": 4}, "e": {"f": None}})
    {'b': {'c': 4, 'd': 3}, 'e': {}}
    """
    if not isinstance(patch, dict):
        return patch
    merged = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = apply(merged.get(key), value)
    return merged
