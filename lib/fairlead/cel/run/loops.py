"""Comprehensions as plain loops, one maker per macro.

The fold that a macro expands to would copy a list for each element; the loop has the same result. `all` and `exists` hold an
error back until an element decides, the others fail at the first error. Each turn takes from the budget at least what the
fold's step costs in cel-go.
Example: `[0, 2].exists(x, 1 / x > 0)` is the error of its first element, `[0, 1].exists(x, 1 / x > 0)` is true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from fairlead.cel.errors import BudgetError, EvaluationError
from fairlead.cel.run.frame import Compilation, Frame, Step, spend
from fairlead.cel.syntax import ast
from fairlead.cel.values import items_of, keys_of, map_key, no_overload, type_name

_UNREAD: Final = object()


def make_loop(compiler: Compilation, node: ast.Comprehension) -> Step:
    if node.macro == "bind":
        return _bind(compiler, node)
    ranged = compiler.visit(node.iter_range)
    first = compiler.slot()
    second = compiler.slot() if node.iter_var2 is not None else None
    compiler.locals.append((node.iter_var, first))
    if node.iter_var2 is not None and second is not None:
        compiler.locals.append((node.iter_var2, second))
    compiler.loops += 1
    before = len(compiler.results)
    test = compiler.visit(node.filter) if node.filter is not None else None
    body = compiler.visit(node.body) if node.body is not None else None
    nodes = len(compiler.results) - before  # a chain of `&&` costs little in cel-go's count, and time all the same
    compiler.loops -= 1
    del compiler.locals[-1 if second is None else -2 :]
    each = _iterate(ranged, first, second, max(step_cost(node), nodes // 8))
    return _MAKERS[node.macro](each, test, body)


def step_cost(node: ast.Comprehension) -> int:
    """The least that cel-go charges for one turn of the fold."""
    return max(1, _least(node.condition) + _least(node.step))


def _least(root: ast.Node) -> int:
    """A lower bound of cel-go's run-time cost: 1 per name, field and call, nothing for branches not surely taken."""
    total, stack = 0, [root]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Comprehension):
            stack += [node.iter_range, node.accu_init, node.result]
        elif isinstance(node, ast.Call) and node.function in {"_?_:_", "_&&_", "_||_"}:
            stack.append(node.args[0])
            if isinstance(node.args[0], ast.Ident):  # the accumulator of all and exists: the predicate runs as well
                stack += node.args[1:2] if node.function != "_?_:_" else ()
        else:
            total += isinstance(node, (ast.Ident, ast.Select, ast.Call))
            total += 10 if isinstance(node, ast.ListNode) else 30 if isinstance(node, ast.MapNode) else 0
            stack += node.children()
    return total


def _bind(compiler: Compilation, node: ast.Comprehension) -> Step:
    """`cel.bind(v, init, e)`: init is evaluated when v is first read; if it is never read, an error in it has no effect."""
    init = compiler.visit(node.accu_init)
    slot = compiler.slot()

    def read(frame: Frame) -> Any:
        value = frame[slot]
        if value is _UNREAD:
            value = frame[slot] = init(frame)
        return value

    compiler.lazy[slot] = read
    compiler.locals.append((node.accu_var, slot))
    body = compiler.visit(node.result)
    compiler.locals.pop()

    def evaluate(frame: Frame) -> Any:
        frame[slot] = _UNREAD
        return body(frame)

    return evaluate


def _iterate(ranged: Step, first: int, second: int | None, cost: int) -> Callable[[Frame], Iterable[Any]]:
    """A generator over the elements: takes the cost of a turn from the budget, and puts the element into the frame."""

    def one(frame: Frame) -> Iterable[Any]:
        values = ranged(frame)
        if isinstance(values, dict):
            values = list(keys_of(values))
        elif not isinstance(values, (list, tuple)):
            raise _not_iterable(values)
        for value in values:
            spend(frame, cost)
            frame[first] = value
            yield value

    def two(frame: Frame) -> Iterable[Any]:
        values = ranged(frame)
        if isinstance(values, dict):
            pairs: Iterable[tuple[object, object]] = list(items_of(values))
        elif isinstance(values, (list, tuple)):
            pairs = enumerate(values)
        else:
            raise _not_iterable(values)
        assert second is not None
        for key, value in pairs:
            spend(frame, cost)
            frame[first] = key
            frame[second] = value
            yield key

    return one if second is None else two


def _not_iterable(value: object) -> EvaluationError:
    return EvaluationError(f"got '{type_name(value)}', expected iterable type")


def _truth(value: object, name: str) -> bool:
    if type(value) is not bool:
        no_overload(name, value)
    return bool(value)


Turns = Callable[[Frame], Iterable[Any]]


def _quantifier(decisive: bool, name: str) -> Callable[[Turns, Any, Any], Step]:
    def make(each: Turns, test: Any, _: Any) -> Step:
        def evaluate(frame: Frame) -> bool:
            held: EvaluationError | None = None
            for _ in each(frame):
                try:
                    value = test(frame)
                    if value is decisive:
                        return bool(value)
                    if type(value) is not bool:
                        no_overload(name, value)
                except BudgetError:
                    raise
                except EvaluationError as error:
                    held = held or error
            if held is not None:
                raise held
            return not decisive

        return evaluate

    return make


def _exists_one(each: Turns, test: Any, _: Any) -> Step:
    return lambda frame: sum(_truth(test(frame), "_?_:_") for _ in each(frame)) == 1


def _collect(each: Turns, test: Any, body: Any) -> Step:
    if test is None:
        return lambda frame: [body(frame) for _ in each(frame)]
    return lambda frame: [body(frame) for _ in each(frame) if _truth(test(frame), "_?_:_")]


def _insert(made: dict[object, object], key: object, value: object) -> None:
    held = map_key(key)
    if held in made:
        raise EvaluationError(f"insert failed: key {key} already exists")
    made[held] = value


def _transform_map(each: Turns, test: Any, body: Any) -> Step:
    def evaluate(frame: Frame) -> dict[object, object]:
        made: dict[object, object] = {}
        for key in each(frame):
            if test is None or _truth(test(frame), "_?_:_"):
                _insert(made, key, body(frame))
        return made

    return evaluate


def _transform_entry(each: Turns, test: Any, body: Any) -> Step:
    def evaluate(frame: Frame) -> dict[object, object]:
        made: dict[object, object] = {}
        for _ in each(frame):
            if test is None or _truth(test(frame), "_?_:_"):
                entries = body(frame)
                if not isinstance(entries, dict):
                    no_overload("cel.@mapInsert", made, entries)
                for key, value in items_of(entries):
                    _insert(made, key, value)
        return made

    return evaluate


_MAKERS: Final[dict[str, Callable[[Turns, Any, Any], Step]]] = {
    "all": _quantifier(False, "_&&_"),
    "exists": _quantifier(True, "_||_"),
    "exists_one": _exists_one,
    "map": _collect,
    "filter": _collect,
    "transformList": _collect,
    "transformMap": _transform_map,
    "transformMapEntry": _transform_entry,
}
