"""Calling functions: how a call with steps for its arguments becomes one step.

Most of an evaluation is calls, so each case has its own shortest closure: the argument types are known (`direct`), one
overload and a value of unknown type (`guarded`), several overloads (`dispatched`). Each takes from the budget, before the
call, what the overload's `charge` says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairlead.cel.declare import Overload, accepts_class
from fairlead.cel.run.frame import Frame, Step, spend
from fairlead.cel.types import Type
from fairlead.cel.values import no_overload

Charge = Callable[..., int]


def direct(function: Callable[..., object], steps: Sequence[Step], charge: Charge | None) -> Step:
    """The arguments are of the right types."""
    if charge is not None:
        return _charged(function, charge, steps)
    if len(steps) == 1:
        (only,) = steps
        return lambda frame: function(only(frame))
    if len(steps) == 2:
        first, second = steps
        return lambda frame: function(first(frame), second(frame))
    return lambda frame: function(*[step(frame) for step in steps])


def _charged(function: Callable[..., object], charge: Charge, steps: Sequence[Step]) -> Step:
    def call(frame: Frame) -> object:
        args = [step(frame) for step in steps]
        spend(frame, charge(*args))
        return function(*args)

    return call


class _Fit(dict[type, bool]):
    """Whether values of a class are of the parameter's type."""

    def __init__(self, parameter: Type) -> None:
        self.parameter = parameter

    def __missing__(self, given: type) -> bool:
        self[given] = fits = accepts_class(self.parameter, given)
        return fits


def guarded(overload: Overload, steps: Sequence[Step]) -> Step:
    """The only overload, of one or two arguments, of which only the first may be of another type."""
    name, function, fit = overload.function, overload.call, _Fit(overload.params[0])
    first, second = steps[0], steps[-1]
    if len(steps) == 1:

        def one(frame: Frame) -> Any:
            value = first(frame)
            return function(value) if fit[type(value)] else no_overload(name, value)

        return one

    def two(frame: Frame) -> Any:
        value, other = first(frame), second(frame)
        return function(value, other) if fit[type(value)] else no_overload(name, value, other)

    return two


def dispatched(
    name: str, overloads: Sequence[Overload], steps: Sequence[Step], charges: Mapping[str, Charge | None]
) -> Step:
    """The overload is chosen by the classes of the values; choices are remembered, there are few."""
    chosen: dict[tuple[type, ...], tuple[Callable[..., object], Charge | None]] = {}

    def dispatch(frame: Frame) -> Any:
        args = [step(frame) for step in steps]
        classes = tuple(map(type, args))
        found = chosen.get(classes)
        if found is None:
            for overload in overloads:
                if overload.accepts(classes):
                    found = (overload.call, charges[overload.id])
                    break
            else:
                no_overload(name, *args)
            if len(chosen) < 256:
                chosen[classes] = found
        function, charge = found
        if charge is not None:
            spend(frame, charge(*args))
        return function(*args)

    return dispatch
