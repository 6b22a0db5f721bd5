"""From a checked tree to closures: one Python function per node, made once, called in every evaluation.

A walk over the tree in every evaluation would cost ten times the bar for a selector (5 µs). A closure takes the frame
(frame.py) and returns a value or raises EvaluationError. Where the checker found the types, an operator is called directly;
where the type is `dyn`, the overload is found by the values' classes and remembered. Budget is taken by each turn of a loop,
and by functions whose result may be larger than their input, before they run; nothing else can take long.
Calls are in calls.py, loops in loops.py, `&&` and other calls with an evaluation order of their own in forms.py.
Example: `device.driver == "x"` is one closure that compares one attribute with a constant.

Source of the order of evaluation and of which errors are absorbed: cel-go interpreter/interpretable.go.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from fairlead.cel.check.checker import Checked
from fairlead.cel.declare import Overload
from fairlead.cel.environment import Environment
from fairlead.cel.errors import CompileError, EvaluationError, Issue
from fairlead.cel.library.regex import compiled
from fairlead.cel.run import access
from fairlead.cel.run.calls import direct, dispatched, guarded
from fairlead.cel.run.forms import SPECIAL
from fairlead.cel.run.frame import Compilation, Frame, Step, failing
from fairlead.cel.run.loops import make_loop
from fairlead.cel.syntax import ast
from fairlead.cel.types import Type
from fairlead.cel.values import Optional, TypeValue, map_key, no_overload

# Folded when their argument is a literal; a failure is then a CompileError, as with cel-go's OptOptimize.
_CONVERSIONS: Final = frozenset(
    {"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"}
)
# Folded as well, but a failure is left to each evaluation.
_FOLDED: Final = frozenset({"quantity", "semver", "ip", "cidr", "url", "-_"})
_PATTERNS: Final = frozenset({"matches", "find", "findAll"})
# A value of such a static type always has the Python class that the overload takes.
_SURE: Final = frozenset([
    "bool", "int", "uint", "double", "string", "bytes", "list", "map", "timestamp", "duration", "opaque", "type"
])  # fmt: skip


@dataclass(slots=True)
class Compiled:
    step: Step
    slots: int
    variables: dict[str, int] = field(default_factory=dict)


def compile_tree(checked: Checked, environment: Environment, text: str) -> Compiled:
    """The program of the tree. Raises CompileError when a literal can never be converted."""
    compiler = Compiler(checked, environment, text)
    step = compiler.visit(checked.root)
    return Compiled(step, compiler.slots, compiler.variables)


class Compiler(Compilation):
    """The step of every kind of node."""

    # Names and literals

    def literal(self, node: ast.Literal) -> Step:
        return self.constant(node, node.value)

    def reference(self, node: ast.Node) -> Step | None:
        """The step of a node that the checker found to name a variable of the environment, or a type."""
        reference = self.checked.references.get(node.id)
        if isinstance(reference, Type):
            return self.constant(node, TypeValue(reference.name))
        return None if reference is None else operator.itemgetter(self.variable(reference))

    def ident(self, node: ast.Ident) -> Step:
        reference = self.reference(node)
        if reference is not None:
            return reference
        slot = self.local(node.name)
        if slot is None:
            return failing(f"no such attribute(s): {node.name}")
        return self.lazy.get(slot) or operator.itemgetter(slot)

    def struct(self, node: ast.Struct) -> Step:
        return failing(f"unknown message type: {node.name}")

    def comprehension(self, node: ast.Comprehension) -> Step:
        return make_loop(self, node)

    def select(self, node: ast.Select) -> Step:
        reference = self.reference(node)
        if reference is not None:
            return reference
        operand, name = self.visit(node.operand), node.field
        type_ = self.checked.type_of(node.operand)
        if node.test_only:
            return lambda frame: access.has_field(operand(frame), name)
        if type_.kind == "object":
            return self.object_field(type_, operand, name)
        if type_.kind != "map":
            return lambda frame: access.select(operand(frame), name)

        attribute = self.attribute_of_object(node)
        if attribute is not None:
            return attribute

        def select_key(frame: Frame) -> Any:
            try:
                return operand(frame)[name]
            except KeyError:
                raise access.no_such_key(name) from None
            except TypeError:
                return access.select(operand(frame), name)

        return select_key

    def object_field(self, type_: Type, operand: Step, name: str) -> Step:
        python_name = self.environment.attributes.get((type_.name, name))
        if python_name is None:
            return lambda frame: access.object_field(operand(frame), name)
        get = operator.attrgetter(python_name)
        return lambda frame: get(operand(frame))

    def attribute_of_object(self, node: ast.Select) -> Step | None:
        """`device.attributes["d"].name`, which selectors mostly consist of, in one step instead of four."""
        index = node.operand
        if not (isinstance(index, ast.Call) and index.function == "_[_]" and isinstance(index.args[1], ast.Literal)):
            return None
        field, key, name = index.args[0], index.args[1].value, node.field
        if not (isinstance(field, ast.Select) and isinstance(field.operand, ast.Ident) and isinstance(key, str)):
            return None
        python_name = self.environment.attributes.get((self.checked.type_of(field.operand).name, field.field))
        variable = self.checked.references.get(field.operand.id)
        if python_name is None or not isinstance(variable, str):
            return None
        slot, get = self.variable(variable), operator.attrgetter(python_name)

        def select(frame: Frame) -> Any:
            try:
                return get(frame[slot])[key][name]
            except KeyError:
                raise access.no_such_key(name) from None

        return select

    # Calls

    def call(self, node: ast.Call) -> Step:
        special = SPECIAL.get(node.function)
        if special is not None and node.id not in self.checked.namespaced:
            made = special(self, node)
            if made is not None:
                return made
        nodes = node.args if node.target is None or node.id in self.checked.namespaced else (node.target, *node.args)
        steps = [self.visit(arg) for arg in nodes]
        overloads = self.checked.overloads.get(node.id, ())
        if not overloads:
            return failing(f"unbound function: {node.function}")
        if node.function in _PATTERNS and isinstance(nodes[1], ast.Literal):
            self.check_pattern(nodes[1])
        folded = self.folded(node, nodes, overloads)
        if folded is not None:
            return folded
        charges = {overload.id: self.charge_of(overload) for overload in overloads}
        only = overloads[0] if len(overloads) == 1 else None
        if only is not None and self.environment.checked:
            sure = [self.checked.type_of(arg).kind in _SURE for arg in nodes]
            if all(sure) or not _guards(only):
                return direct(only.call, steps, charges[only.id])
            if len(steps) <= 2 and all(sure[1:]) and charges[only.id] is None:
                return guarded(only, steps)
        return dispatched(node.function, overloads, steps, charges)

    def check_pattern(self, node: ast.Literal) -> None:
        try:
            compiled(str(node.value))
        except EvaluationError as error:
            raise CompileError(self.text, (Issue(f"invalid matches argument: {error.message}", node.pos),)) from None

    def folded(self, node: ast.Call, nodes: tuple[ast.Node, ...], overloads: tuple[Overload, ...]) -> Step | None:
        strict = node.function in _CONVERSIONS and len(nodes) == 1
        if not strict and node.function not in _FOLDED:
            return None
        if not all(map(self.is_constant, nodes)):
            return None
        values = [self.constants[arg.id] for arg in nodes]
        classes = tuple(map(type, values))
        for overload in overloads:
            if overload.accepts(classes):
                try:
                    return self.constant(node, overload.call(*values))
                except EvaluationError as error:
                    if strict and self.environment.fold_constants:
                        raise CompileError(self.text, (Issue(error.message, node.pos),)) from None
        return None

    def charge_of(self, overload: Overload) -> Callable[..., int] | None:
        if overload.charge is not None:
            return overload.charge
        return access.traversal if self.loops and any(p.kind in {"string", "bytes"} for p in overload.params) else None

    # Literals

    def list_literal(self, node: ast.ListNode) -> Step:
        steps = [self.visit(element) for element in node.elements]
        if not node.optional:
            if all(map(self.is_constant, node.elements)):
                return self.constant(node, [self.constants[element.id] for element in node.elements])
            return lambda frame: [step(frame) for step in steps]
        optional = [index in node.optional for index in range(len(steps))]

        def build(frame: Frame) -> list[object]:
            values: list[object] = []
            for step, may_miss in zip(steps, optional, strict=True):
                value = step(frame)
                if may_miss:
                    if type(value) is not Optional:
                        no_overload("optional element", value)
                    if not value.present:
                        continue
                    value = value.content
                values.append(value)
            return values

        return build

    def map_literal(self, node: ast.MapNode) -> Step:
        entries = [(self.visit(entry.key), self.visit(entry.value), entry.optional) for entry in node.entries]

        def build(frame: Frame) -> dict[object, object]:
            made: dict[object, object] = {}
            for key_step, value_step, optional in entries:
                key, value = map_key(key_step(frame)), value_step(frame)
                if optional:
                    if type(value) is not Optional:
                        no_overload("optional entry", value)
                    if not value.present:
                        continue
                    value = value.content
                if key in made:
                    raise EvaluationError(f"Failed with repeated key {key!r}")
                made[key] = value
            return made

        return build


def _guards(overload: Overload) -> bool:
    return any(parameter.kind not in {"dyn", "any", "param"} for parameter in overload.params)
