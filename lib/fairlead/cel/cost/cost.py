"""The worst-case cost of a program, estimated without input, as the API server estimates it.

The API refuses selectors whose estimate is above a million units when they are written; this computes the same estimate.
The walk over the tree is here, the charges per function are in cost_functions.py. A `Sizes` function says how large the
variables may be: `device_cost.py` for devices, the schema of a CRD for its rules.

Example: `x.all(v, v > 1)`, where x holds up to 32 ints: 1 unit to read x, 1 to read the result, and for each of 0 to 32
items 5 for the condition and the step; in all 2 to 162.

Source: cel-go checker/cost.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fairlead.cel.check.checker import Checked
from fairlead.cel.cost.cost_functions import charge
from fairlead.cel.cost.ranges import (
    LIST_COST,
    MAP_COST,
    ONE,
    STRUCT_COST,
    UINT64_MAX,
    UNKNOWN,
    ZERO,
    Members,
    Operand,
    Path,
    Range,
    Sizes,
    fixed,
)
from fairlead.cel.declare import Overload
from fairlead.cel.syntax import ast
from fairlead.cel.types import Type


@dataclass(slots=True)
class _Local:
    path: Path
    size: Range | None
    members: Members | None


def estimate(checked: Checked, sizes: Sizes) -> Range:
    """The cost range of the program."""
    return Estimator(checked, sizes).visit(checked.root)


class Estimator(ast.Visitor[Range]):
    def __init__(self, checked: Checked, sizes: Sizes) -> None:
        super().__init__()
        self.checked = checked
        self.sizes = sizes
        self.paths: dict[int, Path] = {}
        self.computed: dict[int, Range] = {}
        self.containers: dict[int, Members] = {}
        self.locals: dict[str, list[_Local]] = {}

    # Sizes

    def local(self, name: str) -> _Local | None:
        stack = self.locals.get(name)
        return stack[-1] if stack else None

    def push(self, name: str, local: _Local) -> None:
        self.locals.setdefault(name, []).append(local)

    def path(self, node: ast.Node) -> Path:
        if isinstance(node, ast.Ident) and (local := self.local(node.name)) is not None:
            return local.path
        return self.paths.get(node.id, ())

    def size(self, node: ast.Node) -> Range | None:
        known = self.computed.get(node.id) or _literal_size(node)
        if known is not None:
            return known
        path = self.path(node)
        if path and (most := self.sizes(path)) is not None:
            self.computed[node.id] = most
            return most
        if _is_scalar(self.checked.type_of(node)):
            return ONE
        local = self.local(node.name) if isinstance(node, ast.Ident) else None
        return local.size if local else None

    def size_or_unknown(self, node: ast.Node) -> Range:
        return self.size(node) or UNKNOWN

    def members(self, node: ast.Node) -> Members | None:
        known = self.containers.get(node.id)
        if known is None and isinstance(node, ast.Ident) and (local := self.local(node.name)) is not None:
            return local.members
        return known

    def set_size(self, node: ast.Node, size: Range | None) -> None:
        if size is not None:
            self.computed[node.id] = size

    def set_members(self, node: ast.Node, members: Members | None) -> None:
        if members is not None:
            self.containers[node.id] = members

    def operand(self, node: ast.Node) -> Operand:
        return Operand(node, self.path(node), self.checked.type_of(node), self.size(node), self.members(node))

    # Nodes

    def literal(self, node: ast.Literal) -> Range:
        return ZERO

    def ident(self, node: ast.Ident) -> Range:
        local = self.local(node.name)
        self.paths[node.id] = local.path if local else (node.name,)
        return ONE

    def struct(self, node: ast.Struct) -> Range:
        return STRUCT_COST

    def comprehension(self, node: ast.Comprehension) -> Range:
        return self.bind(node) if node.macro == "bind" else self.fold(node)

    def select(self, node: ast.Select) -> Range:
        if node.id in self.checked.references:
            self.paths[node.id] = (str(self.checked.references[node.id]),)
            return ONE
        cost = self.visit(node.operand)
        if node.test_only:
            return cost
        if self.checked.type_of(node.operand).kind in {"map", "object", "param"}:
            cost = cost.plus(ONE)
        self.paths[node.id] = (*self.path(node.operand), node.field)
        return cost

    def call(self, node: ast.Call) -> Range:
        if node.function == "dyn" and node.target is None:
            cost = self.visit(node.args[0]).plus(ONE)
            self.set_size(node, self.size(node.args[0]))
            self.set_members(node, self.members(node.args[0]))
            return cost
        costs = [self.visit(arg) for arg in node.args]
        overloads = self.checked.overloads.get(node.id, ())
        if not overloads:
            return ZERO
        total, target = ZERO, None
        if node.target is not None and node.id not in self.checked.namespaced:
            total = self.visit(node.target)
            target = self.operand(node.target)
        args = [self.operand(arg) for arg in node.args]
        cost, size = Range(UINT64_MAX, 0), None
        for overload in overloads:
            charged = charge(self.sizes, overload, target, args, costs)
            cost = cost.union(charged.cost)
            self.set_members(node, charged.members)
            if charged.size is not None:
                size = charged.size if size is None else size.union(charged.size)
            if overload.id in {"index_list", "index_map"} and node.args:
                size = self.index(node, overload)
            size = size if size is not None else self.size(node)
        self.set_size(node, size)
        return total.plus(cost)

    def index(self, node: ast.Call, overload: Overload) -> Range | None:
        """Records where the member comes from; its size, where that is known."""
        step = "@items" if overload.id == "index_list" else "@values"
        self.paths[node.id] = (*self.path(node.args[0]), step)
        members = self.members(node.args[0])
        return members.value if members else None

    def list_literal(self, node: ast.ListNode) -> Range:
        total = LIST_COST
        item = Range(UINT64_MAX if node.elements else 0, 0)
        for element in node.elements:
            total = total.plus(self.visit(element))
            item = item.union(self.size_or_unknown(element))
        self.containers[node.id] = Members("list", ONE, item)
        return total

    def map_literal(self, node: ast.MapNode) -> Range:
        total = MAP_COST
        key = value = Range(UINT64_MAX if node.entries else 0, 0)
        for entry in node.entries:
            total = total.plus(self.visit(entry.key)).plus(self.visit(entry.value))
            key = key.union(self.size_or_unknown(entry.key))
            value = value.union(self.size_or_unknown(entry.value))
        self.containers[node.id] = Members("map", key, value)
        return total

    # Folds

    def bind(self, node: ast.Comprehension) -> Range:
        total = self.visit(node.iter_range).plus(self.visit(node.accu_init))
        self.push_accumulator(node)
        total = total.plus(self.visit(node.result))
        self.set_size(node, self.size(node.result))
        self.set_members(node, self.members(node.result))
        self.locals[node.accu_var].pop()
        return total

    def fold(self, node: ast.Comprehension) -> Range:
        total = self.visit(node.iter_range).plus(self.visit(node.accu_init))
        self.push_accumulator(node)
        names = self.push_variables(node)
        turn = self.visit(node.condition).plus(self.visit(node.step))
        for name in names:
            self.locals[name].pop()
        total = total.plus(self.visit(node.result))
        self.locals[node.accu_var].pop()
        count = self.size_or_unknown(node.iter_range)
        if isinstance(node.accu_init, ast.Literal):
            self.set_size(node, self.size(node.accu_init))
        else:
            self.set_size(node, count)
            self.set_members(node, self.members(node.step))
        return total.plus(count.times(turn))

    def push_accumulator(self, node: ast.Comprehension) -> None:
        start = node.accu_init
        self.push(node.accu_var, _Local(self.path(start), self.size(start), self.members(start)))

    def push_variables(self, node: ast.Comprehension) -> list[str]:
        members = self.members(node.iter_range)
        kind = members.kind if members else self.checked.type_of(node.iter_range).kind
        path = self.path(node.iter_range)
        key_size, value_size = (members.key, members.value) if members else (None, None)
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
