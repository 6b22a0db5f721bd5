"""x-kubernetes-validations: CEL rules of a custom resource's schema, evaluated on the values that they apply to.

A schema's rules are compiled once, into a tree like the schema without the parts that have none. A rule that reads `oldSelf`
is a transition rule: it is evaluated only where the old object has a counterpart (by property, and by key in lists of
type map). Rules run only on objects that are valid otherwise.
Source: k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel (1.36).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fairlead.cel import CompileError, Environment, EvaluationError, Program
from fairlead.cel import compile as compile_cel
from fairlead.cel import types as t
from fairlead.sandbox.apiserver.crds.celtypes import RULE_LIMIT, bind, changes, cost_of, environment, over_limit
from fairlead.sandbox.apiserver.kinds.errors import OMIT, ErrorType, FieldError, forbidden, invalid, required
from fairlead.sandbox.apiserver.kinds.request import Json

NOT_CHECKED = FieldError(
    ErrorType.INVALID,
    "<nil>",
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
    None,
)
BLOCKING = {ErrorType.NOT_SUPPORTED, ErrorType.REQUIRED, ErrorType.TOO_LONG, ErrorType.TOO_MANY, ErrorType.TYPE_INVALID}
_REASONS = {
    "FieldValueInvalid": ErrorType.INVALID,
    "FieldValueForbidden": ErrorType.FORBIDDEN,
    "FieldValueRequired": ErrorType.REQUIRED,
    "FieldValueDuplicate": ErrorType.DUPLICATE,
}
_ABSENT: Any = object()


@dataclass(frozen=True)
class Rule:
    """One rule, ready to run."""

    raw: Json
    program: Program
    message: Program | None
    transition: bool


@dataclass
class Node:
    """The rules of one part of a schema and of the parts below it."""

    schema: Json
    rules: list[Rule] = field(default_factory=list)
    properties: dict[str, Node] = field(default_factory=dict)
    items: Node | None = None
    additional: Node | None = None
    binds: bool = False

    @property
    def empty(self) -> bool:
        return not (self.rules or self.properties or self.items or self.additional)


def compile_rules(schema: Any, *, root: bool = True) -> Node | None:
    """The rules of a (checked) schema; None where it has none. Raises CompileError."""
    if not isinstance(schema, dict):
        return None
    node = Node(schema)
    given = schema.get("x-kubernetes-validations") or []
    if given:
        env = environment(schema, root=root)
        node.binds = changes(schema)
        for raw in given:
            program = compile_cel(raw["rule"], env, result=t.BOOL)
            text = raw.get("messageExpression")
            message = compile_cel(text, env, result=t.STRING) if text else None
            node.rules.append(Rule(raw, program, message, "oldSelf" in program.variables))
    for name, inner in (schema.get("properties") or {}).items():
        below = compile_rules(inner, root=False)
        if below is not None and not (root and name == "metadata"):
            node.properties[name] = below
    node.items = compile_rules(schema.get("items"), root=False)
    node.additional = compile_rules(schema.get("additionalProperties"), root=False)
    return None if node.empty else node


@dataclass
class Checked:
    """One definition's rules, checked: the environment of new expressions, and the worst case of each rule so far."""

    environment: Environment
    costs: list[int] = field(default_factory=list)


def complaints(schema: Json, path: str, *, checked: Checked, root: bool, places: int) -> Iterator[FieldError]:
    """Complaints about the new rules of this schema (not of those below), which applies at up to `places` places.

    Each rule's worst case is appended to what was `checked`.
    """
    given = schema.get("x-kubernetes-validations") or []
    env = environment(schema, root=root, base=checked.environment) if given else None
    for index, raw in enumerate(given):
        here = f"{path}.x-kubernetes-validations[{index}]"
        if not raw.get("rule", "").strip():
            yield required(f"{here}.rule", "rule is not specified")
            continue
        for key, result, what in (
            ("rule", t.BOOL, "estimated rule cost"),
            ("messageExpression", t.STRING, "estimated messageExpression cost"),
        ):
            if not raw.get(key) or env is None:
                continue
            try:
                program = compile_cel(raw[key], env, result=result)
            except CompileError as error:
                yield invalid(f"{here}.{key}", raw[key], f"compilation failed: {error}")
                continue
            cost = cost_of(program, schema, places)
            checked.costs.append(cost)
            complaint = over_limit(what, cost, RULE_LIMIT)
            if complaint:
                yield forbidden(f"{here}.{key}", complaint)


def check(new: Any, old: Any, node: Node, path: str = "") -> Iterator[FieldError]:
    """Every rule that does not hold. `old` is None on create."""
    yield from _check(new, _ABSENT if old is None else old, node, path)


def _check(new: Any, old: Any, node: Node, path: str) -> Iterator[FieldError]:
    if new is None:
        return
    if node.rules:
        values = {"self": bind(new, node.schema) if node.binds else new}
        if old is not _ABSENT:
            values["oldSelf"] = bind(old, node.schema) if node.binds else old
        for rule in node.rules:
            yield from _rule(rule, values, path)
    if isinstance(new, dict):
        before = old if isinstance(old, dict) else {}
        for name, value in new.items():
            if name in node.properties:
                here = f"{path}.{name}" if path else name
                yield from _check(value, before.get(name, _ABSENT), node.properties[name], here)
            elif node.additional is not None:
                yield from _check(value, before.get(name, _ABSENT), node.additional, f"{path}[{name}]")
    elif isinstance(new, list) and node.items is not None:
        for index, value in enumerate(new):
            yield from _check(value, _counterpart(value, old, node.schema), node.items, f"{path}[{index}]")


def _counterpart(value: Any, old: Any, schema: Json) -> Any:
    """The old element with the same keys, where the list has keys."""
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list) or not isinstance(value, dict):
        return _ABSENT
    keys = schema.get("x-kubernetes-list-map-keys") or []
    return next((one for one in old if all(one.get(key) == value.get(key) for key in keys)), _ABSENT)


def _rule(rule: Rule, values: dict[str, Any], path: str) -> Iterator[FieldError]:
    if rule.transition and "oldSelf" not in values:
        return
    try:
        holds = rule.program.evaluate(values)
    except EvaluationError as error:
        yield invalid(path or "<nil>", OMIT, f"{error} evaluating rule: {_words(rule.raw)}")
        return
    if holds is not True:
        kind = _REASONS.get(rule.raw.get("reason", ""), ErrorType.INVALID)
        where = f"{path}{rule.raw.get('fieldPath', '')}".lstrip(".")
        yield FieldError(kind, where or "<nil>", _message(rule, values))


def _words(raw: Json) -> str:
    return str(raw.get("message") or "").strip() or f"failed rule: {raw['rule'].strip()}"


def _message(rule: Rule, values: dict[str, Any]) -> str:
    if rule.message is not None:
        try:
            said = rule.message.evaluate(values)
        except EvaluationError:
            said = None
        if isinstance(said, str) and said.strip() and "\n" not in said:
            return said.strip()
    return _words(rule.raw)
