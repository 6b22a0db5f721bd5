"""Optional values: `optional.of`, `orValue`, `a.?b`, `a[?0]`.

`or` and `orValue`, which evaluate their argument only if it is needed, and the accesses `_?._` and `_[?_]` are only declared
here; their code is in forms.py. Source: cel-go cel/library.go (OptionalTypes).
"""

from __future__ import annotations

from typing import Final

from fairlead.cel.declare import Library
from fairlead.cel.errors import EvaluationError
from fairlead.cel.library.standard import compiled_specially
from fairlead.cel.values import NONE, Duration, Optional, Timestamp

OPTIONALS: Final = Library("optionals")


def _is_zero(value: object) -> bool:
    if isinstance(value, (Timestamp, Duration)):
        return value.ns == 0
    return value is None or (isinstance(value, (bool, int, float, str, bytes, list, tuple, dict)) and not value)


def _of_non_zero(value: object) -> Optional:
    return NONE if _is_zero(value) else Optional(value)


def _value(held: Optional) -> object:
    return held.unwrap()


def _unwrap_list(values: list[object]) -> list[object]:
    out: list[object] = []
    for value in values:
        if not isinstance(value, Optional):
            raise EvaluationError("optional.unwrap takes a list of optionals")
        if value.present:
            out.append(value.content)
    return out


def _first(values: list[object]) -> Optional:
    return Optional(values[0]) if values else NONE


def _last(values: list[object]) -> Optional:
    return Optional(values[-1]) if values else NONE


def _declare() -> None:
    lib = OPTIONALS
    lib.function("optional.of", "V", "optional(V)", "optional_of", Optional)
    lib.function("optional.ofNonZeroValue", "V", "optional(V)", "optional_ofNonZeroValue", _of_non_zero)
    lib.function("optional.none", "", "optional(V)", "optional_none", lambda: NONE)
    lib.member("value", "optional(V)", "V", "optional_value", _value)
    lib.member("hasValue", "optional(V)", "bool", "optional_hasValue", lambda held: held.present)
    lib.member("or", "optional(V), optional(V)", "optional(V)", "optional_or_optional", compiled_specially)
    lib.member("orValue", "optional(V), V", "V", "optional_orValue_value", compiled_specially)
    lib.function("optional.unwrap", "list(optional(V))", "list(V)", "optional_unwrap", _unwrap_list)
    lib.member("unwrapOpt", "list(optional(V))", "list(V)", "optional_unwrapOpt", _unwrap_list)
    lib.member("first", "list(V)", "optional(V)", "list_first", _first)
    lib.member("last", "list(V)", "optional(V)", "list_last", _last)
    lib.function("_?._", "dyn, string", "optional(V)", "select_optional_field", compiled_specially)
    lib.function("_[?_]", "list(V), int", "optional(V)", "list_optindex_optional_int", compiled_specially)
    lib.function(
        "_[?_]", "optional(list(V)), int", "optional(V)", "optional_list_optindex_optional_int", compiled_specially
    )
    lib.function("_[?_]", "map(K, V), K", "optional(V)", "map_optindex_optional_value", compiled_specially)
    lib.function(
        "_[?_]", "optional(map(K, V)), K", "optional(V)", "optional_map_optindex_optional_value", compiled_specially
    )
    lib.function("_[_]", "optional(list(V)), int", "optional(V)", "optional_list_index_int", compiled_specially)
    lib.function("_[_]", "optional(map(K, V)), K", "optional(V)", "optional_map_index_value", compiled_specially)


_declare()
