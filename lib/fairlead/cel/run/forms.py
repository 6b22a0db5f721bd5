"""Calls with an evaluation order of their own, and operators with a faster closure than a function call.

`&&` and `||` absorb the error of one side when the other side decides, `?:` evaluates one branch, `orValue` its argument only
for an empty optional. Each maker returns None where the call is compiled as any other (calls.py).
Example: `1 / 0 > 1 || true` is true; `1 / 0 > 1 || false` is the error.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

from fairlead.cel.equality import equal
from fairlead.cel.errors import BudgetError, EvaluationError
from fairlead.cel.run import access
from fairlead.cel.run.frame import Compilation, Frame, Step, spend
from fairlead.cel.syntax import ast
from fairlead.cel.values import NONE, Optional, no_overload, weight


def _not_bool(value: object, name: str) -> EvaluationError:
    try:
        no_overload(name, value)
    except EvaluationError as error:
        return error


def _logic(decisive: bool, name: str) -> Callable[[Compilation, ast.Call], Step]:
    """`&&` (decided by false) and `||` (by true): an error counts only if no argument decides."""

    def make(compiler: Compilation, node: ast.Call) -> Step:
        steps = tuple(compiler.visit(arg) for arg in node.args)

        def evaluate(frame: Frame) -> bool:
            held: EvaluationError | None = None
            for step in steps:
                try:
                    value = step(frame)
                except BudgetError:
                    raise
                except EvaluationError as error:
                    held = held or error
                else:
                    if value is decisive:
                        return bool(value)
                    if type(value) is not bool:
                        held = held or _not_bool(value, name)
            if held is not None:
                raise held
            return not decisive

        return evaluate

    return make


def _conditional(compiler: Compilation, node: ast.Call) -> Step:
    shared = _optional_map(compiler, node)
    if shared is not None:
        return shared
    condition, then, otherwise = (compiler.visit(arg) for arg in node.args)

    def evaluate(frame: Frame) -> Any:
        value = condition(frame)
        if value is True:
            return then(frame)
        if value is False:
            return otherwise(frame)
        raise _not_bool(value, "_?_:_")

    return evaluate


def _optional_map(compiler: Compilation, node: ast.Call) -> Step | None:
    """`x.optMap(v, e)` holds x twice in its tree; n of them chained would evaluate the first 2**n times."""
    test, then, _ = node.args
    if not (isinstance(test, ast.Call) and test.function == "hasValue" and test.target is not None):
        return None
    wrap = isinstance(then, ast.Call) and then.function == "optional.of"
    bind = then.args[0] if wrap and isinstance(then, ast.Call) else then
    if not (isinstance(bind, ast.Comprehension) and bind.macro == "bind" and isinstance(bind.accu_init, ast.Call)):
        return None
    if bind.accu_init.target is not test.target:
        return None
    held = compiler.visit(test.target)
    slot = compiler.slot()
    compiler.locals.append((bind.accu_var, slot))
    body = compiler.visit(bind.result)
    compiler.locals.pop()

    def evaluate(frame: Frame) -> Any:
        value = held(frame)
        if type(value) is not Optional:
            no_overload("hasValue", value)
        if not value.present:
            return NONE
        frame[slot] = value.content
        mapped = body(frame)
        return Optional(mapped) if wrap else mapped

    return evaluate


def _index(compiler: Compilation, node: ast.Call) -> Step:
    operand, key = (compiler.visit(arg) for arg in node.args)
    container = compiler.checked.type_of(node.args[0])
    if container.kind == "map" and isinstance(node.args[1], ast.Literal) and isinstance(node.args[1].value, str):
        name = node.args[1].value

        def get(frame: Frame) -> Any:
            try:
                return operand(frame)[name]
            except KeyError:
                raise access.no_such_key(name) from None
            except TypeError:
                return access.index(operand(frame), name)

        return get
    return lambda frame: access.index(operand(frame), key(frame))


def _optional_index(compiler: Compilation, node: ast.Call) -> Step:
    operand, key = (compiler.visit(arg) for arg in node.args)
    return lambda frame: access.optional_index(operand(frame), key(frame))


def _optional_select(compiler: Compilation, node: ast.Call) -> Step:
    operand = compiler.visit(node.args[0])
    field_node = node.args[1]
    assert isinstance(field_node, ast.Literal)
    name = str(field_node.value)
    return lambda frame: access.optional_select(operand(frame), name)


def _or_value(function: str) -> Callable[[Compilation, ast.Call], Step | None]:
    def make(compiler: Compilation, node: ast.Call) -> Step | None:
        if node.target is None or len(node.args) != 1:
            return None
        held, other = compiler.visit(node.target), compiler.visit(node.args[0])

        def evaluate(frame: Frame) -> Any:
            value = held(frame)
            if type(value) is not Optional:
                no_overload(function, value)
            if not value.present:
                return other(frame)
            return value.content if function == "orValue" else value

        return evaluate

    return make


def _equality(negated: bool) -> Callable[[Compilation, ast.Call], Step]:
    def make(compiler: Compilation, node: ast.Call) -> Step:
        left, right = (compiler.visit(arg) for arg in node.args)
        right_node = node.args[1]
        if isinstance(right_node, ast.Literal) and type(right_node.value) is str:
            wanted = right_node.value

            def same_text(frame: Frame) -> bool:
                value = left(frame)
                return (value == wanted if type(value) is str else equal(value, wanted)) is not negated

            return same_text
        if compiler.loops and any(compiler.checked.type_of(arg).kind in _LARGE for arg in node.args):
            return _charged_equality(left, right, negated=negated)
        if negated:
            return lambda frame: not equal(left(frame), right(frame))
        return lambda frame: equal(left(frame), right(frame))

    return make


_LARGE: Final = frozenset({"list", "map", "dyn", "any"})


def _charged_equality(left: Step, right: Step, *, negated: bool) -> Step:
    """Within a loop, the size of lists and maps is taken from the budget before they are compared."""

    def evaluate(frame: Frame) -> bool:
        value, other = left(frame), right(frame)
        if isinstance(value, (list, tuple, dict)):
            spend(frame, weight(value, 10_000_000) // 10)
        return equal(value, other) is not negated

    return evaluate


def _order(test: Callable[[Any, Any], bool]) -> Callable[[Compilation, ast.Call], Step | None]:
    """Two ints or two strings, by their static types: Python's own order is CEL's."""

    def make(compiler: Compilation, node: ast.Call) -> Step | None:
        kinds = {compiler.checked.type_of(arg).kind for arg in node.args}
        if kinds not in ({"int"}, {"string"}):
            return None
        left, right = (compiler.visit(arg) for arg in node.args)
        if compiler.is_constant(node.args[1]):
            limit = compiler.constants[node.args[1].id]
            return lambda frame: test(left(frame), limit)
        return lambda frame: test(left(frame), right(frame))

    return make


SPECIAL: Final[dict[str, Callable[[Compilation, ast.Call], Step | None]]] = {
    "_&&_": _logic(False, "_&&_"),
    "_||_": _logic(True, "_||_"),
    "_?_:_": _conditional,
    "_[_]": _index,
    "_[?_]": _optional_index,
    "_?._": _optional_select,
    "or": _or_value("or"),
    "orValue": _or_value("orValue"),
    "_==_": _equality(False),
    "_!=_": _equality(True),
    "_<_": _order(operator.lt),
    "_<=_": _order(operator.le),
    "_>_": _order(operator.gt),
    "_>=_": _order(operator.ge),
}
