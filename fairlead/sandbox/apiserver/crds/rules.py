"""x-kubernetes-validations: CEL rules of a custom resource's schema, evaluated where they stand.

A rule that reads `oldSelf` is a transition rule: it counts only where the old object has a counterpart (by property, and
by key in lists of type map). Strings of format date-time and duration are bound as strings. Rules run only on objects
that are valid otherwise. Source: k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel (1.36).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from fairlead.cel import RULE, CompileError, EvaluationError, Program
from fairlead.cel import compile as compile_cel
from fairlead.sandbox.apiserver.kinds.base import Json
from fairlead.sandbox.apiserver.kinds.errors import OMIT, ErrorType, FieldError, invalid

NOT_CHECKED = FieldError(
    ErrorType.INVALID,
    "<nil>",
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
    None,
)
BLOCKING = {
    ErrorType.NOT_SUPPORTED,
    ErrorType.REQUIRED,
    ErrorType.TOO_LONG,
    ErrorType.TOO_MANY,
    ErrorType.TYPE_INVALID,
}
_REASONS = {
    "FieldValueInvalid": ErrorType.INVALID,
    "FieldValueForbidden": ErrorType.FORBIDDEN,
    "FieldValueRequired": ErrorType.REQUIRED,
    "FieldValueDuplicate": ErrorType.DUPLICATE,
}
_ABSENT: Any = object()


@lru_cache(maxsize=2048)
def program(text: str) -> Program:
    """Raises CompileError."""
    return compile_cel(text, RULE)


def has_rules(schema: Any) -> bool:
    """Whether any part of a schema has rules."""
    if not isinstance(schema, dict):
        return False
    if schema.get("x-kubernetes-validations"):
        return True
    inner = [*(schema.get("properties") or {}).values(), schema.get("items"), schema.get("additionalProperties")]
    return any(has_rules(one) for one in inner)


def check(new: Any, old: Any, schema: Json, path: str = "") -> Iterator[FieldError]:
    """Every rule that does not hold. `old` is None on create."""
    yield from _check(new, _ABSENT if old is None else old, schema, path)


def _check(new: Any, old: Any, schema: Json, path: str) -> Iterator[FieldError]:
    if new is None:
        return
    for rule in schema.get("x-kubernetes-validations") or []:
        yield from _rule(rule, new, old, path)
    if isinstance(new, dict):
        properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
        before = old if isinstance(old, dict) else {}
        for name, value in new.items():
            inner = properties.get(name, additional if isinstance(additional, dict) else None)
            if inner is not None and not (not path and name == "metadata"):
                here = f"{path}.{name}" if path else name
                if name not in properties:
                    here = f"{path}[{name}]"
                yield from _check(value, before.get(name, _ABSENT), inner, here)
    elif isinstance(new, list) and isinstance(schema.get("items"), dict):
        for index, value in enumerate(new):
            yield from _check(value, _counterpart(value, old, schema), schema["items"], f"{path}[{index}]")


def _counterpart(value: Any, old: Any, schema: Json) -> Any:
    """The old element that this one was, where the list says how to tell."""
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list) or not isinstance(value, dict):
        return _ABSENT
    keys = schema.get("x-kubernetes-list-map-keys") or []
    return next((one for one in old if all(one.get(key) == value.get(key) for key in keys)), _ABSENT)


def _rule(rule: Json, new: Any, old: Any, path: str) -> Iterator[FieldError]:
    try:
        compiled = program(rule["rule"])
    except CompileError as error:
        yield invalid(path or "<nil>", OMIT, f"rule compile error: {error}")
        return
    bound = {"self": new}
    if "oldSelf" in compiled.variables:
        if old is _ABSENT:
            return
        bound["oldSelf"] = old
    try:
        holds = compiled.evaluate(bound)
    except EvaluationError as error:
        yield invalid(path or "<nil>", OMIT, f"{error} evaluating rule: {_words(rule)}")
        return
    if holds is not True:
        kind = _REASONS.get(rule.get("reason", ""), ErrorType.INVALID)
        yield FieldError(kind, _at(rule, path) or "<nil>", _message(rule, bound))


def _at(rule: Json, path: str) -> str:
    return f"{path}{rule['fieldPath']}".lstrip(".") if rule.get("fieldPath") else path


def _words(rule: Json) -> str:
    return str(rule.get("message") or "").strip() or f"failed rule: {rule['rule'].strip()}"


def _message(rule: Json, bound: dict[str, Any]) -> str:
    if rule.get("messageExpression"):
        try:
            said = program(rule["messageExpression"]).evaluate(bound)
        except (CompileError, EvaluationError):
            said = None
        if isinstance(said, str) and said.strip() and "\n" not in said:
            return said.strip()
    return _words(rule)
