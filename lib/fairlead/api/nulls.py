"""JSON `null` as Kubernetes means it: the field is absent."""

from collections.abc import Mapping
from typing import Any


def without_nulls(value: Any) -> Any:
    """A JSON value without the null fields of its maps. A null in a list stays, as its place has a meaning.

    Opaque `parameters` within it stay as they are: their meaning is their driver's, and claims are made from templates.
    """
    if isinstance(value, dict) or isinstance(value, Mapping):  # noqa: SIM101 - the first is quick, the second is not
        return {
            name: inner if type(inner) in _SCALARS or name == "parameters" else without_nulls(inner)
            for name, inner in value.items()
            if inner is not None
        }
    if isinstance(value, list):
        return [inner if type(inner) in _SCALARS else without_nulls(inner) for inner in value]
    return value


_SCALARS = frozenset({str, int, float, bool, type(None)})
