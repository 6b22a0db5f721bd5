"""Whether selectors may match a device of a driver, whatever the device's attributes.

A request is managed when its class's and its own selectors may match a device of a managed driver. The answer is no only when
some selector is false for every device of the driver; in doubt it is yes.
Example: `device.driver == "a" && x` is false for driver b whatever x is, and unknown for driver a.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from fairlead.cel.devices.selector import compile_selector
from fairlead.cel.errors import CompileError, EvaluationError
from fairlead.cel.program_cache import TextMemo
from fairlead.cel.syntax import ast

_excludes: Final[TextMemo[bool]] = TextMemo(50_000)


def may_select(expressions: Iterable[str], driver: str) -> bool:
    """False only if no device of the driver can match all of them; text that does not compile is passed over."""
    return all(_may_be_true(expression, driver) for expression in expressions)


def reads_driver(expression: str) -> bool:
    """False only if the driver's name decides nothing in it."""
    return "driver" in expression


def excludes(expression: str, driver: str) -> bool:
    """Whether no device of the driver can match it. In doubt no, as of text that does not compile.

    Raises AllowanceError.
    """
    if not reads_driver(expression):
        return False
    known = _excludes.get(driver, expression)
    if known is None:
        known = not _may_be_true(expression, driver)
        _excludes.put(known, driver, expression)
    return known


def named_drivers(expressions: Iterable[str]) -> tuple[str, ...]:
    """The drivers that the selectors name as those whose devices they match, sorted; none where they tell drivers apart in another way."""
    texts = tuple(expressions)
    if may_select(texts, ""):
        return ()
    return tuple(sorted({text for each in texts for text in _texts(each) if may_select(texts, text)}))


def _texts(expression: str) -> Iterator[str]:
    try:
        tree = compile_selector(expression).program.tree
    except CompileError:
        return
    yield from (node.value for node in ast.walk(tree) if isinstance(node, ast.Literal) and isinstance(node.value, str))


def _may_be_true(expression: str, driver: str) -> bool:
    try:
        selector = compile_selector(expression)
    except CompileError:
        return True
    known = selector.may_match.get(driver)
    if known is None:
        try:
            known = _known(selector.program.tree, driver) is not False
        except RecursionError:
            known = True
        selector.may_match[driver] = known
    return known


_UNKNOWN: Final = object()
# Results larger than this are not computed: a short text in a claim must not cause long work.
_RESULT_MAX: Final = 10_000


def _known(node: ast.Node, driver: str) -> object:
    """The node's value if the driver's name alone decides it, else _UNKNOWN."""
    if isinstance(node, ast.Literal):
        return node.value
    if isinstance(node, ast.Select):
        is_driver = node.field == "driver" and isinstance(node.operand, ast.Ident) and node.operand.name == "device"
        return driver if is_driver and not node.test_only else _UNKNOWN
    if isinstance(node, ast.ListNode):
        values = [_known(element, driver) for element in node.elements]
        return _UNKNOWN if node.optional or any(value is _UNKNOWN for value in values) else values
    if not isinstance(node, ast.Call):
        return _UNKNOWN
    args = [_known(child, driver) for child in node.children()]
    if node.function in {"_&&_", "_||_"}:
        decisive = node.function == "_||_"
        if any(arg is decisive for arg in args):
            return decisive
        return _UNKNOWN if any(arg is _UNKNOWN for arg in args) else not decisive
    if node.function == "_?_:_":
        if isinstance(args[0], bool):
            return args[1] if args[0] else args[2]
        return args[1] if args[1] is args[2] else _UNKNOWN
    if any(arg is _UNKNOWN for arg in args):
        return _UNKNOWN
    return _apply(node, args)


def _apply(node: ast.Call, args: list[object]) -> object:
    from fairlead.cel.kubernetes import DEVICE

    classes = tuple(map(type, args))
    for overload in DEVICE.functions.get(node.function, ()):
        if overload.member == (node.target is not None) and overload.accepts(classes):
            if overload.charge is not None and overload.charge(*args) > _RESULT_MAX:
                return _UNKNOWN
            try:
                return overload.call(*args)
            except EvaluationError:
                return _UNKNOWN
    return _UNKNOWN
