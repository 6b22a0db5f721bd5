"""Compiling text and evaluating programs: `compile` raises CompileError, `Program.evaluate` raises EvaluationError.

A Program is immutable; tasks and threads may evaluate it at the same time, for all state is in the frame of one call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fairlead.cel.check.checker import Checked, check
from fairlead.cel.check.validators import validate
from fairlead.cel.environment import Environment
from fairlead.cel.errors import CompileError, EvaluationError, Issue
from fairlead.cel.run.compile import Compiled, compile_tree
from fairlead.cel.syntax import ast
from fairlead.cel.syntax.parser import parse
from fairlead.cel.types import BOOL, Type
from fairlead.cel.values import to_python

_TOO_DEEP: Final = "expression recursion limit exceeded"


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    text: str
    environment: Environment
    checked: Checked
    compiled: Compiled

    @property
    def type(self) -> Type:
        """The static type of the result."""
        return self.checked.types[self.checked.root.id]

    @property
    def tree(self) -> ast.Node:
        return self.checked.root

    @property
    def variables(self) -> frozenset[str]:
        """The variables of the environment that it reads."""
        return frozenset(self.compiled.variables)

    def evaluate(self, bindings: Mapping[str, object], budget: int | None = None) -> Any:
        """The result as plain Python (JSON in, JSON out). Raises EvaluationError."""
        try:
            return to_python(self.evaluate_raw(bindings, budget))
        except RecursionError:
            raise EvaluationError(_TOO_DEEP) from None

    def evaluate_raw(self, bindings: Mapping[str, object], budget: int | None = None) -> Any:
        """The result as a CEL value. Raises EvaluationError."""
        compiled = self.compiled
        frame: list[Any] = [None] * compiled.slots
        frame[0] = self.environment.budget if budget is None else budget
        for name, slot in compiled.variables.items():
            try:
                frame[slot] = bindings[name]
            except KeyError:
                raise EvaluationError(f"no such attribute(s): {name}") from None
        try:
            return compiled.step(frame)
        except RecursionError:
            raise EvaluationError(_TOO_DEEP) from None


def compile(  # noqa: A001
    text: str,
    environment: Environment,
    *,
    result: Type | tuple[Type, ...] | None = None,
    exact: bool = False,
    tokens_max: int | None = None,
    fuel: int | None = None,
) -> Program:
    """The program of the text. Raises CompileError.

    `result` is the type, or the types, that it must have; an expression of unknown type passes as well, unless `exact`.
    `tokens_max` and `fuel` (comparisons of types) bound what compiling costs, where the text comes from an untrusted user.
    """
    tree, nodes = parse(
        text,
        environment.macros,
        optional_syntax=environment.optional_syntax,
        quoted_fields=environment.quoted_fields,
        tokens_max=tokens_max,
    )
    try:
        checked, issues = check(tree, environment, nodes, fuel=fuel)
        issues = issues or validate(checked, environment)
        if issues:
            raise CompileError(text, tuple(sorted(issues, key=lambda issue: issue.offset)))
        _require_result(text, checked, result, exact=exact)
        return Program(text, environment, checked, compile_tree(checked, environment, text))
    except RecursionError:
        raise CompileError(text, (Issue(_TOO_DEEP, 0, "split it, or use cel.bind"),)) from None


def _require_result(text: str, checked: Checked, result: Type | tuple[Type, ...] | None, *, exact: bool) -> None:
    if result is None:
        return
    wanted = (result,) if isinstance(result, Type) else result
    found = checked.types[checked.root.id]
    if found in wanted or (found.is_dyn and not exact):
        return
    names = " or ".join("the unknown type" if type_.is_dyn else str(type_) for type_ in wanted)
    hint = f"compare it, as in x == {'true' if BOOL in wanted else '…'}" if found.is_dyn else None
    raise CompileError(text, (Issue(f"must evaluate to {names}, not {found}", checked.root.pos, hint),))
