"""Assignability of types with type parameters: whether list(int) fits list(T), and what T is bound to then.

Bindings are copied before a trial and kept only if the trial succeeds. Every comparison
takes fuel, so types that grow in each other end in TooComplexError instead of running on.
Source: cel-go checker/types.go, mapping.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fairlead.cel.types import DYN, Type

FUEL: Final = 100_000
FUEL_PER_NODE: Final = 200


class TooComplexError(Exception):
    """Types that refer to one another so much that comparing them takes more than the fuel."""


class Bindings(dict[str, Type]):
    """Types by parameter name; all copies share one supply of fuel."""

    __slots__ = ("fuel",)

    def __init__(self, bound: Bindings | None = None, *, nodes: int = 0, fuel: int | None = None) -> None:
        super().__init__(bound or {})
        if bound is not None:
            self.fuel: list[int] = bound.fuel
        else:
            self.fuel = [FUEL + FUEL_PER_NODE * nodes if fuel is None else fuel]

    def burn(self) -> None:
        self.fuel[0] -= 1
        if self.fuel[0] < 0:
            raise TooComplexError


def assignable(bindings: Bindings, left: Sequence[Type], right: Sequence[Type]) -> Bindings | None:
    """The extended bindings under which every left type fits its right one; None if there is none."""
    trial = Bindings(bindings)
    if len(left) == len(right) and all(_fits(trial, a, b) for a, b in zip(left, right, strict=True)):
        return trial
    return None


def _fits(bindings: Bindings, left: Type, right: Type) -> bool:
    bindings.burn()
    if left is right or left == right:
        return True
    if right.kind == "param":
        valid, bound = _substitutes(bindings, left, right)
        if valid:
            return True
        if bound:
            return False
    if left.kind == "param":
        return _substitutes(bindings, right, left)[0]
    if left.is_dyn or right.is_dyn or "error" in {left.kind, right.kind}:
        return True
    if left.kind == "null" or right.kind == "null":
        other = right if left.kind == "null" else left
        return other.kind in {"opaque", "object", "null", "timestamp", "duration"}
    if left.kind != right.kind:
        return False
    if left.kind == "type":
        return True
    return left.name == right.name and len(left.params) == len(right.params) and all(
        _fits(bindings, a, b) for a, b in zip(left.params, right.params, strict=True)
    )  # fmt: skip


def _substitutes(bindings: Bindings, given: Type, parameter: Type) -> tuple[bool, bool]:
    """(whether `given` may stand for the parameter, whether the parameter was bound before)."""
    bound = bindings.get(parameter.name)
    if bound is not None:
        if given == bound:
            return True, True
        if _fits(bindings, given, bound):
            bindings[parameter.name] = most_general(given, bound)
            return True, True
        return False, True
    if not _occurs(bindings, parameter, given):
        bindings[parameter.name] = given
        return True, False
    return False, False


def _occurs(bindings: Bindings, parameter: Type, within: Type) -> bool:
    bindings.burn()
    if parameter == within:
        return True
    if within.kind == "param":
        bound = bindings.get(within.name)
        return bound is not None and _occurs(bindings, parameter, bound)
    return any(_occurs(bindings, parameter, inner) for inner in within.params)


def most_general(left: Type, right: Type) -> Type:
    """The less specific of two types that fit each other."""
    return left if _less_specific(left, right) else right


def _less_specific(left: Type, right: Type) -> bool:
    if left.is_dyn or left.kind == "param":
        return True
    if right.kind == "null" and left.kind != "null":
        return True
    if right.is_dyn or right.kind == "param" or left.kind != right.kind:
        return False
    if left.kind == "type":
        return True
    return (
        left.name == right.name
        and len(left.params) == len(right.params)
        and all(_less_specific(a, b) for a, b in zip(left.params, right.params, strict=True))
    )


def substitute(bindings: Bindings, type_: Type, *, free_to_dyn: bool) -> Type:
    """The type with its parameters replaced by what they are bound to; free ones by dyn if `free_to_dyn`."""
    bindings.burn()
    if type_.kind == "param":
        bound = bindings.get(type_.name)
        if bound is not None:
            return substitute(bindings, bound, free_to_dyn=free_to_dyn)
        return DYN if free_to_dyn else type_
    if not type_.params:
        return type_
    params = tuple(substitute(bindings, inner, free_to_dyn=free_to_dyn) for inner in type_.params)
    return type_ if params == type_.params else Type(type_.kind, type_.name, params)
