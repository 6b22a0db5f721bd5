"""The frame of an evaluation, and what a compilation records about it while it walks the tree.

A step is the closure that a node becomes: it takes the frame and returns a value or raises EvaluationError. A frame is a
list: slot 0 holds the budget that is left, the other slots hold variables of the environment and of loops.
`Compilation` is the part of the compiler that the makers of single nodes need (calls.py, forms.py, loops.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlead.cel.check.checker import Checked
from fairlead.cel.environment import Environment
from fairlead.cel.errors import BudgetError, EvaluationError
from fairlead.cel.syntax import ast

Frame = list[Any]
Step = Callable[[Frame], Any]


def spend(frame: Frame, amount: int) -> None:
    """Takes from the budget. Raises BudgetError when it is used up."""
    frame[0] -= amount
    if frame[0] < 0:
        raise BudgetError


def failing(message: str) -> Step:
    """A step that always fails: for names and functions that do not exist, which only unchecked programs contain."""

    def fail(_: Frame) -> Any:
        raise EvaluationError(message)

    return fail


class Compilation(ast.Visitor[Step]):
    """Slots, local names and constants of one program; `visit` gives the step of a node."""

    def __init__(self, checked: Checked, environment: Environment, text: str) -> None:
        super().__init__()
        self.checked = checked
        self.environment = environment
        self.text = text
        self.slots = 1
        self.variables: dict[str, int] = {}  # of the environment, by name
        self.locals: list[tuple[str, int]] = []  # of loops and binds, the innermost last
        self.lazy: dict[int, Step] = {}  # how to read the slot of a cel.bind
        self.loops = 0  # that enclose the node being compiled
        self.constants: dict[int, object] = {}  # values known at compile time, by node id

    def slot(self) -> int:
        """A slot that nothing else uses."""
        self.slots += 1
        return self.slots - 1

    def variable(self, name: str) -> int:
        """The slot of a variable of the environment."""
        if name not in self.variables:
            self.variables[name] = self.slot()
        return self.variables[name]

    def local(self, name: str) -> int | None:
        """The slot of the innermost local variable of that name."""
        for known, slot in reversed(self.locals):
            if known == name:
                return slot
        return None

    def constant(self, node: ast.Node, value: object) -> Step:
        self.constants[node.id] = value
        return lambda _: value

    def is_constant(self, node: ast.Node) -> bool:
        return node.id in self.constants
