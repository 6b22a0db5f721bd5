"""The worst-case cost of a program, estimated without input, as the API server estimates it.

Exists because the API refuses selectors above a million units when they are written, and so must we. Costs and sizes are
ranges of uint64 that saturate. What a variable may hold at most is asked of a `Sizes` function, by path: field names,
`@keys`, `@values` and `@items` after the variable. The charges per function are in cost_functions.py.

Source: cel-go checker/cost.go; k8s.io/dynamic-resource-allocation/cel/compile.go (sizeEstimator).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from fairlead.cel import ast
from fairlead.cel.checker import Checked
from fairlead.cel.declare import Overload
from fairlead.cel.device import DEVICE_FIELDS
from fairlead.cel.types import Type

UINT64_MAX: Final = 2**64 - 1
Path = tuple[str, ...]


class Range(NamedTuple):
    """From `min` to `max`, both saturating at the largest uint64."""

    min: int
    max: int

    def plus(self, other: Range) -> Range:
        return Range(_saturate(self.min + other.min), _saturate(self.max + other.max))

    def times(self, other: Range) -> Range:
        return Range(_saturate(self.min * other.min), _saturate(self.max * other.max))

    def scaled(self, factor: float) -> Range:
        """In floating point and rounded up, as Go computes it."""
        return Range(_scale(self.min, factor), _scale(self.max, factor))

    def union(self, other: Range) -> Range:
        return Range(min(self.min, other.min), max(self.max, other.max))


def _saturate(value: int) -> int:
    return min(value, UINT64_MAX)


def _scale(value: int, factor: float) -> int:
    product = math.ceil(float(value) * factor)
    return UINT64_MAX if product >= 2**64 else product


def fixed(value: int) -> Range:
    return Range(value, value)


ZERO: Final = fixed(0)
ONE: Final = fixed(1)
UNKNOWN: Final = Range(0, UINT64_MAX)
LIST_COST: Final = fixed(10)
MAP_COST: Final = fixed(30)
STRUCT_COST: Final = fixed(40)


@dataclass(frozen=True, slots=True)
class Entries:
    """What is known of a container's members."""

    kind: str  # list or map
    key: Range
    value: Range


class Operand(NamedTuple):
    """An argument, as cost functions see it; `node` is None for "some element of a list"."""

    node: ast.Node | None
    path: Path
    type: Type
    size: Range | None


class Charge(NamedTuple):
    cost: Range
    size: Range | None = None


@dataclass(slots=True)
class _Local:
    path: Path
    size: Range | None
    entries: Entries | None


Sizes = Callable[[Path], Range | None]


def estimate(checked: Checked, sizes: Sizes) -> Range:
    """The cost range of the program."""
    return Estimator(checked, sizes).cost(checked.root)


class Estimator:
    def __init__(self, checked: Checked, sizes: Sizes) -> None:
        self.checked = checked
        self.sizes = sizes
        self.paths: dict[int, Path] = {}
        self.computed: dict[int, Range] = {}
        self.entries: dict[int, Entries] = {}
        self.locals: dict[str, list[_Local]] = {}
        self.done: dict[int, Range] = {}

    def cost(self, node: ast.Node) -> Range:
        known = self.done.get(node.id)
        if known is None:
            known = self.done[node.id] = self._cost(node)
        return known

    def _cost(self, node: ast.Node) -> Range:
        if isinstance(node, ast.Literal):
            return ZERO
        if isinstance(node, ast.Ident):
            local = self.local(node.name)
            self.paths[node.id] = local.path if local else (node.name,)
            return ONE
        if isinstance(node, ast.Select):
            return self.select(node)
        if isinstance(node, ast.Call):
            return self.call(node)
        if isinstance(node, ast.ListNode):
            return self.list_literal(node)
        if isinstance(node, ast.MapNode):
            return self.map_literal(node)
        if isinstance(node, ast.Comprehension):
            return self.bind(node) if node.macro == "bind" else self.fold(node)
        return STRUCT_COST

    # Sizes

    def local(self, name: str) -> _Local | None:
        stack = self.locals.get(name)
        return stack[-1] if stack else None

    def path(self, node: ast.Node) -> Path:
        if isinstance(node, ast.Ident) and (local := self.local(node.name)) is not None:
            return local.path
        return self.paths.get(node.id, ())

    def size(self, node: ast.Node) -> Range | None:
        known = self.computed.get(node.id) or _literal_size(node)
        if known is not None:
            return known
        path = self.path(node)
        if path and (told := self.sizes(path)) is not None:
            self.computed[node.id] = told
            return told
        if _is_scalar(self.checked.type_of(node)):
            return ONE
        local = self.local(node.name) if isinstance(node, ast.Ident) else None
        return local.size if local else None

    def size_or_unknown(self, node: ast.Node) -> Range:
        return self.size(node) or UNKNOWN

    def members(self, node: ast.Node) -> Entries | None:
        known = self.entries.get(node.id)
        if known is None and isinstance(node, ast.Ident) and (local := self.local(node.name)) is not None:
            return local.entries
        return known

    def set_size(self, node: ast.Node, size: Range | None) -> None:
        if size is not None:
            self.computed[node.id] = size

    def set_members(self, node: ast.Node, entries: Entries | None) -> None:
        if entries is not None:
            self.entries[node.id] = entries

    def operand(self, node: ast.Node) -> Operand:
        return Operand(node, self.path(node), self.checked.type_of(node), self.size(node))

    # Nodes

    def select(self, node: ast.Select) -> Range:
        if node.id in self.checked.references:
            self.paths[node.id] = (str(self.checked.references[node.id]),)
            return ONE
        cost = self.cost(node.operand)
        if node.test_only:
            return cost
        if self.checked.type_of(node.operand).kind in {"map", "object", "param"}:
            cost = cost.plus(ONE)
        self.paths[node.id] = (*self.path(node.operand), node.field)
        return cost

    def call(self, node: ast.Call) -> Range:
        from fairlead.cel.cost_functions import charge

        if node.function == "dyn" and node.target is None:
            cost = self.cost(node.args[0]).plus(ONE)
            self.set_size(node, self.size(node.args[0]))
            self.set_members(node, self.members(node.args[0]))
            return cost
        costs = [self.cost(arg) for arg in node.args]
        overloads = self.checked.overloads.get(node.id, ())
        if not overloads:
            return ZERO
        total, target = ZERO, None
        if node.target is not None and node.id not in self.checked.namespaced:
            total = self.cost(node.target)
            target = self.operand(node.target)
        args = [self.operand(arg) for arg in node.args]
        cost, size = Range(UINT64_MAX, 0), None
        for overload in overloads:
            charged = charge(self, node, overload, target, args, costs)
            cost = cost.union(charged.cost)
            if charged.size is not None:
                size = charged.size if size is None else size.union(charged.size)
            size = self.track_index(node, overload, size)
        self.set_size(node, size)
        return total.plus(cost)

    def track_index(self, node: ast.Call, overload: Overload, size: Range | None) -> Range | None:
        if overload.id in {"index_list", "index_map"} and node.args:
            entries = self.members(node.args[0])
            size = entries.value if entries else None
            step = "@items" if overload.id == "index_list" else "@values"
            self.paths[node.id] = (*self.path(node.args[0]), step)
        return size if size is not None else self.size(node)

    def list_literal(self, node: ast.ListNode) -> Range:
        total = LIST_COST
        item = Range(UINT64_MAX if node.elements else 0, 0)
        for element in node.elements:
            total = total.plus(self.cost(element))
            item = item.union(self.size_or_unknown(element))
        self.entries[node.id] = Entries("list", ONE, item)
        return total

    def map_literal(self, node: ast.MapNode) -> Range:
        total = MAP_COST
        key = value = Range(UINT64_MAX if node.entries else 0, 0)
        for entry in node.entries:
            total = total.plus(self.cost(entry.key)).plus(self.cost(entry.value))
            key = key.union(self.size_or_unknown(entry.key))
            value = value.union(self.size_or_unknown(entry.value))
        self.entries[node.id] = Entries("map", key, value)
        return total

    # Folds

    def push(self, name: str, local: _Local) -> None:
        self.locals.setdefault(name, []).append(local)

    def bind(self, node: ast.Comprehension) -> Range:
        total = self.cost(node.iter_range).plus(self.cost(node.accu_init))
        self.push(
            node.accu_var, _Local(self.path(node.accu_init), self.size(node.accu_init), self.members(node.accu_init))
        )
        total = total.plus(self.cost(node.result))
        self.set_size(node, self.size(node.result))
        self.set_members(node, self.members(node.result))
        self.locals[node.accu_var].pop()
        return total

    def fold(self, node: ast.Comprehension) -> Range:
        total = self.cost(node.iter_range).plus(self.cost(node.accu_init))
        self.push(
            node.accu_var, _Local(self.path(node.accu_init), self.size(node.accu_init), self.members(node.accu_init))
        )
        names = self.push_variables(node)
        turn = self.cost(node.condition).plus(self.cost(node.step))
        for name in names:
            self.locals[name].pop()
        total = total.plus(self.cost(node.result))
        self.locals[node.accu_var].pop()
        count = self.size_or_unknown(node.iter_range)
        if isinstance(node.accu_init, ast.Literal):
            self.set_size(node, self.size(node.accu_init))
        else:
            self.set_size(node, count)
            self.set_members(node, self.members(node.step))
        return total.plus(count.times(turn))

    def push_variables(self, node: ast.Comprehension) -> list[str]:
        entries = self.members(node.iter_range)
        kind = entries.kind if entries else self.checked.type_of(node.iter_range).kind
        path = self.path(node.iter_range)
        key_size, value_size = (entries.key, entries.value) if entries else (None, None)
        keys = _Local((*path, "@indices" if kind == "list" else "@keys"), key_size, None)
        values = _Local((*path, "@items" if kind == "list" else "@values"), value_size, None)
        if node.iter_var2 is None:
            self.push(node.iter_var, values if kind == "list" else keys)
            return [node.iter_var]
        self.push(node.iter_var, keys)
        self.push(node.iter_var2, values)
        return [node.iter_var, node.iter_var2]


def _literal_size(node: ast.Node) -> Range | None:
    if isinstance(node, ast.Literal):
        return fixed(len(node.value) if isinstance(node.value, (str, bytes)) else 1)
    if isinstance(node, ast.ListNode):
        return fixed(len(node.elements))
    if isinstance(node, ast.MapNode):
        return fixed(len(node.entries))
    return None


_SCALARS: Final = frozenset({"bool", "double", "duration", "int", "timestamp", "uint"})


def _is_scalar(type_: Type) -> bool:
    if type_.name == "optional_type":
        return _is_scalar(type_.params[0])
    return type_.kind in _SCALARS


# Devices: what the API lets their parts grow to.

_ATTRIBUTES_MAX: Final = Range(0, 32)
_DOMAIN_MAX: Final = Range(0, 63)
_NAME_MAX: Final = Range(0, 32)
_VALUE_MAX: Final = Range(0, 64)


def device_sizes(path: Path) -> Range | None:
    """The size of what the path leads to from `device`."""
    if path[0] != "device":
        return None
    if len(path) == 1:
        return ZERO
    field, rest = path[1], path[2:]
    if field not in DEVICE_FIELDS:
        return None
    if field == "driver":
        return _DOMAIN_MAX if not rest else None
    if field not in {"attributes", "capacity"}:
        return None
    if not rest:
        return _ATTRIBUTES_MAX
    if rest[0] != "@values":
        return _DOMAIN_MAX if rest == ("@keys",) else None
    if len(rest) == 1:
        return _ATTRIBUTES_MAX
    if rest[1] == "@keys":
        return _NAME_MAX if len(rest) == 2 else None
    return _VALUE_MAX if len(rest) == 2 and field == "attributes" else None


def estimate_selector(checked: Checked) -> int:
    """The worst case of a device selector."""
    return estimate(checked, device_sizes).max
