"""Checks of literals after the types are right: patterns, timestamps, durations, format strings, mixed lists.

Exists because Kubernetes refuses what could only fail when it runs. Source: cel-go cel/validator.go, ext/formatting.go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fairlead.cel import ast
from fairlead.cel.checked import Checked
from fairlead.cel.environment import Environment
from fairlead.cel.errors import EvaluationError, Issue
from fairlead.cel.library.clock import parse_duration, parse_timestamp
from fairlead.cel.library.formatting import clauses
from fairlead.cel.library.formatting_v1 import format_v1
from fairlead.cel.library.regex import compiled
from fairlead.cel.types import Type

_LITERAL_CHECKS: Final[dict[str, Callable[[str], object]]] = {
    "matches": compiled,
    "timestamp": parse_timestamp,
    "duration": parse_duration,
}
_NUMBERS: Final = frozenset({"int", "uint", "double", "dyn"})
_DOUBLES: Final = frozenset({"double", "string", "dyn"})
_CLAUSE_KINDS: Final[dict[str, tuple[frozenset[str], str]]] = {
    "d": (_NUMBERS, "decimal clause can only be used on ints, uints, and doubles"),
    "f": (_NUMBERS | {"string"}, "fixed-point clause can only be used on ints, uints, and doubles"),
    "e": (_NUMBERS | {"string"}, "scientific clause can only be used on ints, uints, and doubles"),
    "b": (frozenset({"int", "uint", "bool", "dyn"}), "only ints, uints, and bools can be formatted as binary"),
    "o": (frozenset({"int", "uint", "dyn"}), "octal clause can only be used on ints and uints"),
    "x": (
        frozenset({"int", "uint", "string", "bytes", "dyn"}),
        "only ints, uints, bytes, and strings can be formatted as hex",
    ),
    "X": (
        frozenset({"int", "uint", "string", "bytes", "dyn"}),
        "only ints, uints, bytes, and strings can be formatted as hex",
    ),
    "s": (
        frozenset(
            {
                "string",
                "bool",
                "bytes",
                "int",
                "uint",
                "double",
                "map",
                "list",
                "type",
                "duration",
                "timestamp",
                "null",
                "dyn",
            }
        ),
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps",
    ),
}


# Kubernetes' older version of format() takes less.
_CLAUSE_KINDS_V1: Final[dict[str, tuple[frozenset[str], str]]] = {
    **_CLAUSE_KINDS,
    "d": (frozenset({"int", "uint", "dyn"}), "decimal clause can only be used on integers"),
    "f": (_DOUBLES, "fixed-point clause can only be used on doubles"),
    "e": (_DOUBLES, "scientific clause can only be used on doubles"),
}


def validate(checked: Checked, environment: Environment) -> list[Issue]:
    """Every literal that cannot work."""
    issues: list[Issue] = []
    exempt: set[int] = set()
    seen: set[int] = set()
    stack = [checked.root]
    while stack:
        node = stack.pop()
        if node.id in seen:
            continue
        seen.add(node.id)
        if isinstance(node, ast.Call):
            if environment.validate_literals:
                issues += _check_call(node, checked)
            if node.function == "format":
                exempt.update(child.id for child in node.children())
        elif isinstance(node, (ast.ListNode, ast.MapNode)):
            if node.id in exempt:
                exempt.update(child.id for child in node.children())
            elif environment.homogeneous_literals:
                issues += _check_mixture(node, checked)
        stack += reversed(list(node.children()))
    return issues


def _check_call(node: ast.Call, checked: Checked) -> list[Issue]:
    check = _LITERAL_CHECKS.get(node.function)
    if check is not None and node.args:
        literal = node.args[0]
        if (
            isinstance(literal, ast.Literal)
            and isinstance(literal.value, str)
            and (node.target or node.function != "matches")
        ):
            try:
                check(literal.value)
            except EvaluationError as error:
                return [Issue(f"invalid {node.function} argument", literal.pos, error.message)]
    if node.function == "format" and isinstance(node.target, ast.Literal) and isinstance(node.target.value, str):
        return _check_format(node, node.target, checked)
    return []


def _check_format(node: ast.Call, target: ast.Literal, checked: Checked) -> list[Issue]:
    try:
        verbs = [clause.verb for clause in clauses(str(target.value)) if clause.verb]
    except EvaluationError as error:
        return [Issue(error.message, target.pos)]
    given = node.args[0]
    if not isinstance(given, ast.ListNode):
        return []
    if len(given.elements) != len(verbs):
        if len(given.elements) < len(verbs):
            return [
                Issue(
                    f"index {len(given.elements)} out of range", given.pos, f"{len(verbs)} clauses need as many values"
                )
            ]
        return [
            Issue(
                f"too many arguments supplied to string.format (expected {len(verbs)}, got {len(given.elements)})",
                given.pos,
            )
        ]
    old = checked.overloads[node.id][0].call is format_v1
    for verb, element in zip(verbs, given.elements, strict=True):
        kinds, complaint = (_CLAUSE_KINDS_V1 if old else _CLAUSE_KINDS)[verb]
        culprit = _misfit(element, kinds, checked)
        if culprit is not None:
            element, type_ = culprit, checked.type_of(culprit)  # noqa: PLW2901
            name = type_.name if type_.kind == "any" else str(type_)
            return [
                Issue(f"error during formatting: {complaint}, was given {name}", element.pos, "wrap it in string(…)")
            ]
    return []


def _misfit(node: ast.Node, kinds: frozenset[str], checked: Checked) -> ast.Node | None:
    """The value of a type that the clause cannot print; within lists and maps only those that are literals are looked at."""
    if checked.type_of(node).kind not in kinds:
        return node
    if isinstance(node, (ast.ListNode, ast.MapNode)):
        for child in node.children():
            culprit = _misfit(child, kinds, checked)
            if culprit is not None:
                return culprit
    return None


def _check_mixture(node: ast.ListNode | ast.MapNode, checked: Checked) -> list[Issue]:
    if isinstance(node, ast.ListNode):
        return _mismatch(
            [(child, index in node.optional) for index, child in enumerate(node.elements)], checked, first=True
        )
    keys = _mismatch([(entry.key, False) for entry in node.entries], checked)
    return keys + _mismatch([(entry.value, entry.optional) for entry in node.entries], checked)


def _mismatch(members: list[tuple[ast.Node, bool]], checked: Checked, *, first: bool = False) -> list[Issue]:
    issues: list[Issue] = []
    wanted: Type | None = None
    for member, optional in members:
        type_ = checked.type_of(member)
        if optional and type_.params:
            type_ = type_.params[0]
        if wanted is None:
            wanted = type_
        elif type_ != wanted and not (type_.kind == "type" and wanted.kind == "type"):
            message = f"expected type '{wanted}' but found '{type_}'"
            issues.append(Issue(message, member.pos, "wrap them in dyn(…) to mix types"))
            if first:
                break
    return issues
