"""The parts of a device that an expression can depend on.

With it a selector is evaluated once per *distinct* tuple of the values that it reads, not once per device. The answer may be
too large, never too small: an access that is not a plain `device.attributes["d"].id` counts as a read of more.
Example: `device.attributes[device.driver].id == 1` reads the driver and all attributes.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.cel.check.checker import Checked
from fairlead.cel.syntax import ast


@dataclass(frozen=True, slots=True, order=True)
class Read:
    """`field` of a device; for attributes and capacity the domain and name, empty where all of them are read."""

    field: str
    domain: str = ""
    name: str = ""

    def __str__(self) -> str:
        if not self.domain:
            return f"device.{self.field}" if self.field else "device"
        whole = f'device.{self.field}["{self.domain}"]'
        return f"{whole}.{self.name}" if self.name else whole


_MAPS = frozenset({"attributes", "capacity"})
_FIELDS = ("driver", "attributes", "capacity", "allowMultipleAllocations")
EVERYTHING = frozenset(Read(field) for field in _FIELDS)


def device_reads(checked: Checked) -> frozenset[Read]:
    """The reads of the variable `device`."""
    finder = _Finder(checked)
    finder.visit(checked.root)
    reads = finder.found
    # A wider read covers the narrower ones.
    return frozenset(
        read
        for read in reads
        if not (read.name and Read(read.field, read.domain) in reads)
        and not (read.domain and Read(read.field) in reads)
    )


Path = tuple[str, ...]
Scope = dict[str, Path | None]  # local names: what a cel.bind stands for, None for loop variables


class _Finder:
    def __init__(self, checked: Checked) -> None:
        self.checked = checked
        self.found: set[Read] = set()

    def visit(self, root: ast.Node) -> None:
        stack: list[tuple[ast.Node, Scope]] = [(root, {})]
        seen: set[int] = set()
        while stack:
            node, scope = stack.pop()
            if node.id in seen:
                continue
            seen.add(node.id)
            path = self.path(node, scope)
            if path is not None:
                self.note(path)  # its keys are literals: nothing else to visit
            elif isinstance(node, ast.Comprehension):
                stack += self.scoped(node, scope)
            else:
                stack += [(child, scope) for child in node.children()]

    def scoped(self, node: ast.Comprehension, scope: Scope) -> list[tuple[ast.Node, Scope]]:
        """The parts of a fold, each with the names in its scope. A read through a bind counts where the name is used."""
        if node.macro == "bind":
            path = self.path(node.accu_init, scope)
            body = (node.result, {**scope, node.accu_var: path})
            return [body] if path is not None else [(node.accu_init, scope), body]
        inner = {**scope, node.accu_var: None, node.iter_var: None}
        if node.iter_var2 is not None:
            inner[node.iter_var2] = None
        parts = (node.condition, node.step, node.result)
        return [(node.iter_range, scope), (node.accu_init, scope), *((part, inner) for part in parts)]

    def note(self, path: Path) -> None:
        if not path:
            self.found |= EVERYTHING
        elif path[0] in _MAPS:
            self.found.add(Read(path[0], *path[1:3]))
        else:
            self.found.add(Read(path[0]))

    def path(self, node: ast.Node, scope: Scope) -> Path | None:
        """The constant steps from `device` to here; None if it starts elsewhere."""
        if isinstance(node, ast.Ident):
            if self.checked.references.get(node.id) == "device":
                return ()
            return scope.get(node.name)
        if isinstance(node, ast.Select):
            parent = self.path(node.operand, scope)
            return None if parent is None else (*parent, node.field)
        if isinstance(node, ast.Call) and node.function in {"_[_]", "_[?_]", "_?._"}:
            key = node.args[1]
            parent = self.path(node.args[0], scope)
            if parent is not None and isinstance(key, ast.Literal) and isinstance(key.value, str):
                return (*parent, key.value)
        return None
