"""What a call costs and how large its result may be, function by function.

The charges are upstream's, looked up in the order in which the API server asks for them: cel-go's extensions, Kubernetes'
own functions, cel-go's standard functions. A function that none of them names costs one unit. All are pure functions of
the operands' sizes. Example: `s.contains(t)` with sizes up to 64 and 10 costs up to ceil(6.4) * ceil(1.0) = 7.

Source: k8s.io/apiserver/pkg/cel/library/cost.go; cel-go checker/cost.go, ext/lists.go, ext/sets.go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from fairlead.cel import types as t
from fairlead.cel.cost.ranges import (
    LIST_COST,
    ONE,
    UINT64_MAX,
    UNKNOWN,
    ZERO,
    Charge,
    Members,
    Operand,
    Range,
    Sizes,
    fixed,
)
from fairlead.cel.declare import Overload
from fairlead.cel.syntax import ast

_PER_CHARACTER: Final = 0.1
_PER_PATTERN_CHARACTER: Final = 0.25
_ADDRESS_BYTES: Final = Range(4, 16)
_FORMAT_PATTERN: Final = 128 * _PER_PATTERN_CHARACTER
_FORMAT_NAME: Final = Range(1, 64)


def charge(
    sizes: Sizes,
    overload: Overload,
    target: Operand | None,
    args: Sequence[Operand],
    costs: Sequence[Range],
) -> Charge:
    """The cost of one overload of a call, its arguments' costs included (not the target's)."""
    paid = ZERO
    for cost in costs:
        paid = paid.plus(cost)
    if overload.id in {"logical_and", "logical_or"}:
        return Charge(Range(costs[0].min, paid.max))
    if overload.id == "conditional":
        return _conditional(args, costs)
    for source in (_extension, _kubernetes, _standard):
        found = source(sizes, overload, target, args)
        if found is not None:
            return found._replace(cost=found.cost.plus(paid))
    return Charge(ONE.plus(paid))


# cel-go's extensions


def _literal_uint(operand: Operand, default: int) -> int:
    node = operand.node
    if isinstance(node, ast.Literal) and type(node.value) is int and node.value >= 0:
        return node.value
    return default


def _allocating(factor: float, size: Range) -> Charge:
    return Charge(size.scaled(factor).plus(ONE).plus(LIST_COST), size)


def _extension(sizes: Sizes, overload: Overload, target: Operand | None, args: Sequence[Operand]) -> Charge | None:
    name = overload.id
    if name == "list_slice" and target is not None:
        start, end = _literal_uint(args[0], 0), _literal_uint(args[1], target.size.max)
        return _allocating(1, fixed((end - start) % 2**64))
    if name == "lists_range":
        return _allocating(1, fixed(_literal_uint(args[0], UINT64_MAX)))
    if name == "list_reverse" and target is not None:
        return _allocating(1, target.size)
    if name in {"list_flatten", "list_flatten_int"} and target is not None:
        return _allocating(float(_literal_uint(args[0], UINT64_MAX)) if args else 1.0, target.size)
    if name == "list_distinct" and target is not None:
        return _allocating(2, target.size.times(target.size))
    if overload.function in {"sort", "@sortByAssociatedKeys"} and target is not None:
        keys = target if overload.function == "sort" else args[0]
        factor = 2.1 if overload.params[-1].params[0] in {t.STRING, t.BYTES} else 2.0
        return _allocating(factor, keys.size.times(keys.size))
    if overload.function in {"sets.contains", "sets.intersects", "sets.equivalent"}:
        factor = 2.0 if overload.function == "sets.equivalent" else 1.0
        return Charge(args[0].size.times(args[1].size).scaled(factor).plus(ONE))
    return None


# Kubernetes

# One unit, whatever the arguments.
_NOMINAL: Final = frozenset([
    "serviceAccount", "path", "group", "resource", "subresource", "namespace", "name", "allowed", "reason", "error",
    "errored", "masked", "prefixLength", "family", "isUnspecified", "isLoopback", "isLinkLocalMulticast",
    "isLinkLocalUnicast", "isGlobalUnicast", "sign", "asInteger", "isInteger", "asApproximateFloat",
    "isGreaterThan", "isLessThan", "compareTo", "add", "sub", "major", "minor", "patch", "getScheme", "getHostname",
    "getHost", "getPort", "getEscapedPath", "getQuery", "format.named"
])  # fmt: skip
_CHECK: Final = fixed(350_000)
_VALUES_MAX: Final = fixed(48)  # of all attributes of a device, list elements counted
_O1_EQUALITY: Final = frozenset({t.QUANTITY, t.SEMVER, t.IP, t.CIDR})


def _kubernetes(sizes: Sizes, overload: Overload, target: Operand | None, args: Sequence[Operand]) -> Charge | None:
    name = overload.function
    if name in _NOMINAL:
        return Charge(ONE)
    if name == "check":
        return Charge(_CHECK)
    if name == "includes":
        return Charge(_VALUES_MAX)
    if name == "url":
        return Charge(args[0].size.scaled(_PER_CHARACTER), args[0].size)
    if name == "_==_" and args[0].type == args[1].type:
        if args[0].type in _O1_EQUALITY or args[0].type.name.startswith("kubernetes.authorization."):
            return Charge(ONE)
        if args[0].type == t.FORMAT:
            return Charge(_FORMAT_NAME.scaled(_PER_CHARACTER))
        if args[0].type == t.URL:
            return Charge(Range(1, args[1].known_size.max if args[1].known_size else 1).scaled(_PER_CHARACTER))
    if target is None:
        return None
    function = _KUBERNETES_MEMBERS.get(name)
    return None if function is None else function(sizes, overload, target, args)


def _item_size(sizes: Sizes, operand: Operand) -> Range:
    return (sizes((*operand.path, "@items")) if operand.path else None) or UNKNOWN


def _over_list(sizes: Sizes, overload: Overload, target: Operand, args: Sequence[Operand]) -> Charge:
    """isSorted, sum, min, max, indexOf, lastIndexOf; the last two are known on strings as well."""
    if not target.type.params:
        return Charge(target.size.scaled(_PER_CHARACTER))
    element = target.type.params[0]
    each = ONE
    if element.kind in {"string", "bytes"}:
        each = each.plus(_item_size(sizes, target).scaled(_PER_CHARACTER))
    return Charge(target.size.times(each))


def _same_size(_: Sizes, overload: Overload, target: Operand, args: Sequence[Operand]) -> Charge:
    return Charge(target.size.scaled(_PER_CHARACTER), target.size)


def _replace(_: Sizes, overload: Overload, target: Operand, args: Sequence[Operand]) -> Charge | None:
    size, old, new = target.size, args[0].size, args[1].size
    count_max = retained_max = count_min = retained_min = 0
    if old.min == 0:
        count_max, retained_max = min(size.max + 1, UINT64_MAX), size.max
    elif new.max <= old.min:
        retained_max = size.max
    else:
        count_max = math.ceil(float(size.max) / float(old.min))
    if old.max == 0:
        count_min, retained_min = min(size.min + 1, UINT64_MAX), size.min
    elif old.max <= new.min:
        retained_min = size.min
    else:
        count_min = math.ceil(float(size.min) / float(old.max))
    result = Range(count_min, min(count_max, UINT64_MAX)).times(new).plus(Range(retained_min, retained_max))
    return Charge(size.scaled(2 * _PER_CHARACTER), result)


def _split(_: Sizes, overload: Overload, target: Operand, args: Sequence[Operand]) -> Charge:
    most = target.size.max
    if len(args) > 1 and isinstance(args[1].node, ast.Literal) and type(args[1].node.value) is int:
        most = args[1].node.value % 2**64
    return Charge(target.size.scaled(2 * _PER_CHARACTER), Range(0, most))


def _join(sizes: Sizes, overload: Overload, target: Operand, args: Sequence[Operand]) -> Charge:
    count = target.size
    size = ZERO
    if target.type.params:
        size = count.times(_item_size(sizes, target))
    if args:
        size = size.plus(args[0].size.times(Range(max(count.min - 1, 0), max(count.max - 1, 0))))
    return Charge(size.scaled(_PER_CHARACTER), size)


def _matching(text: Operand, pattern: Operand) -> Range:
    return text.size.plus(ONE).scaled(_PER_CHARACTER).times(pattern.size.scaled(_PER_PATTERN_CHARACTER))


def _find(_: Sizes, overload: Overload, target: Operand, args: Sequence[Operand]) -> Charge:
    return Charge(_matching(target, args[0]), Range(0, target.size.max))


def _contains_address(_: Sizes, overload: Overload, target: Operand, args: Sequence[Operand]) -> Charge:
    cost = _ADDRESS_BYTES.plus(_ADDRESS_BYTES).scaled(_PER_CHARACTER)
    if overload.function == "containsCIDR":
        cost = cost.plus(_ADDRESS_BYTES.scaled(_PER_CHARACTER)).plus(ONE)
    if overload.params[-1] == t.STRING:
        cost = cost.plus(args[0].size.scaled(_PER_CHARACTER))
    return Charge(cost)


def _validate(_: Sizes, overload: Overload, target: Operand, args: Sequence[Operand]) -> Charge:
    return Charge(args[0].size.scaled(_PER_CHARACTER).scaled(_FORMAT_PATTERN))


def _nominal(_: Sizes, overload: Overload, target: Operand, args: Sequence[Operand]) -> Charge:
    return Charge(ONE)


_KUBERNETES_MEMBERS: Final[dict[str, Callable[[Sizes, Overload, Operand, Sequence[Operand]], Charge | None]]] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _over_list),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _same_size),
    "replace": _replace,
    "split": _split,
    "join": _join,
    "find": _find,
    "findAll": _find,
    "containsIP": _contains_address,
    "containsCIDR": _contains_address,
    "validate": _validate,
    "ip": _nominal,
}

# cel-go's standard functions, by overload

Standard = Callable[[Operand | None, Sequence[Operand]], Charge | None]


def _format(target: Operand | None, args: Sequence[Operand]) -> Charge | None:
    return Charge(target.size.scaled(_PER_CHARACTER)) if target is not None else None


def _affix(target: Operand | None, args: Sequence[Operand]) -> Charge:
    return Charge(args[0].size.scaled(_PER_CHARACTER))


def _contains(target: Operand | None, args: Sequence[Operand]) -> Charge | None:
    if target is None:
        return None
    return Charge(target.size.scaled(_PER_CHARACTER).times(args[0].size.scaled(_PER_CHARACTER)))


def _comparison(target: Operand | None, args: Sequence[Operand]) -> Charge:
    smallest = min(args[0].size.max, args[1].size.max)
    return Charge(Range(1 if smallest > 0 else 0, smallest).scaled(_PER_CHARACTER))


def _to_bytes(target: Operand | None, args: Sequence[Operand]) -> Charge:
    size = args[0].size
    return Charge(size.scaled(_PER_CHARACTER), Range(size.min, size.max * 4 % 2**64))


def _to_string(target: Operand | None, args: Sequence[Operand]) -> Charge:
    size = args[0].size
    return Charge(size.scaled(_PER_CHARACTER), Range(size.min // 4, size.max))


def _quote(target: Operand | None, args: Sequence[Operand]) -> Charge:
    size = args[0].size
    return Charge(size.scaled(_PER_CHARACTER), Range(size.min + 2, (size.max * 2 + 2) % 2**64))


_STANDARD: Final[dict[str, Standard]] = {
    "string_format": _format,
    "string_to_bytes": _to_bytes,
    "bytes_to_string": _to_string,
    "strings_quote": _quote,
    "starts_with_string": _affix,
    "ends_with_string": _affix,
    "in_list": lambda _, args: Charge(args[1].size.scaled(1)),
    "matches_string": lambda target, args: Charge(_matching(target, args[0])) if target is not None else None,
    "contains_string": _contains,
    **dict.fromkeys(
        [
            f"{word}_{kind}"
            for word in ("less", "greater", "less_equals", "greater_equals")
            for kind in ("string", "bytes")
        ],
        _comparison,
    ),
    "equals": _comparison,
    "not_equals": _comparison,
}


def _standard(sizes: Sizes, overload: Overload, target: Operand | None, args: Sequence[Operand]) -> Charge | None:
    if overload.id in {"add_string", "add_bytes", "add_list"}:
        return _concatenation(overload, args)
    function = _STANDARD.get(overload.id)
    return None if function is None else function(target, args)


def _concatenation(overload: Overload, args: Sequence[Operand]) -> Charge:
    size = args[0].size.plus(args[1].size)
    cost = ONE if overload.id == "add_list" else size.scaled(_PER_CHARACTER)
    return Charge(cost, size, _united(args[0].members, args[1].members))


def _conditional(args: Sequence[Operand], costs: Sequence[Range]) -> Charge:
    """The costs of the condition and of the dearer branch."""
    size = args[1].size.union(args[2].size)
    return Charge(costs[0].plus(costs[1].union(costs[2])), size, _united(args[1].members, args[2].members))


def _united(left: Members | None, right: Members | None) -> Members | None:
    if left is None or right is None:
        return None
    return Members(left.kind, left.key.union(right.key), left.value.union(right.value))
