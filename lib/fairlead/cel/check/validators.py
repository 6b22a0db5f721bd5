"""Checks of literals after the types are right: patterns, timestamps, durations, format strings, mixed lists.

Kubernetes refuses, when it is written, a literal that fails in every evaluation. Source: cel-go cel/validator.go,
ext/formatting.go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fairlead.cel.check.checker import Checked
from fairlead.cel.environment import Environment
from fairlead.cel.errors import EvaluationError, Issue
from fairlead.cel.library.clock import parse_duration, parse_timestamp
from fairlead.cel.library.formatting import VERBS, clauses
from fairlead.cel.library.regex import compiled
from fairlead.cel.syntax import ast
from fairlead.cel.types import Type

_LITERAL_CHECKS: Final[dict[str, Callable[[str], object]]] = {
    "matches": compiled,
    "timestamp": parse_timestamp,
    "duration": parse_duration,
}


def validate(checked: Checked, environment: Environment) -> list[Issue]:
    """One issue for each literal that always fails, and for each list or map literal of mixed types."""
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
        verbs = [VERBS[clause.verb] for clause in clauses(str(target.value)) if clause.verb]
    except EvaluationError as error:
        return [Issue(error.message, target.pos)]
    given = node.args[0]
    if not isinstance(given, ast.ListNode):
        return []
    count = len(given.elements)
    if count < len(verbs):
        return [Issue(f"index {count} out of range", given.pos, f"{len(verbs)} clauses need as many values")]
    if count > len(verbs):
        message = f"too many arguments supplied to string.format (expected {len(verbs)}, got {count})"
        return [Issue(message, given.pos)]
    for verb, element in zip(verbs, given.elements, strict=True):
        misfit = _misfit(element, verb.kinds, checked)
        if misfit is not None:
            type_ = checked.type_of(misfit)
            name = type_.name if type_.kind == "any" else str(type_)
            message = f"error during formatting: {verb.complaint}, was given {name}"
            return [Issue(message, misfit.pos, "wrap it in string(…)")]
    return []


def _misfit(node: ast.Node, kinds: frozenset[str], checked: Checked) -> ast.Node | None:
    """The value of a type that the clause cannot print; within lists and maps only those that are literals are looked at."""
    if checked.type_of(node).kind not in kinds:
        return node
    if isinstance(node, (ast.ListNode, ast.MapNode)):
        for child in node.children():
            misfit = _misfit(child, kinds, checked)
            if misfit is not None:
                return misfit
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
