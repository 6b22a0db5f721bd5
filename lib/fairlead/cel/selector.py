"""Device selectors: compiled once per text, evaluated once per device.

A selector has three verdicts, for a device on which the evaluation fails is neither a match nor silently none.
`compile_selector` accepts what may be stored in the API; `admit_selector` refuses besides what the API server refuses in new
objects: a worst-case cost above COST_MAX, and functions behind feature gates.

Invariants: the same text gives the same Selector (within the cache); a Selector never changes.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

from fairlead.cel import types as t
from fairlead.cel.device import DeviceView
from fairlead.cel.device_cost import estimate_selector
from fairlead.cel.errors import CompileError, EvaluationError, Issue
from fairlead.cel.kubernetes import DEVICE, NEW_DEVICE
from fairlead.cel.program import Program, compile  # noqa: A004
from fairlead.cel.reads import Read, device_reads
from fairlead.cel.values import type_name

LENGTH_MAX: Final = 10 * 1024
COST_MAX: Final = 1_000_000


class Outcome(enum.Enum):
    MATCH = "match"
    NO_MATCH = "no-match"
    ERROR = "runtime-error"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` says why it is an ERROR; it is None otherwise."""

    outcome: Outcome
    reason: str | None = None

    def __bool__(self) -> bool:
        return self.outcome is Outcome.MATCH


_MATCHING: Final = Verdict(Outcome.MATCH)
_NOT_MATCHING: Final = Verdict(Outcome.NO_MATCH)


class Selector:
    """A compiled selector; made by `compile_selector`."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.text = program.text
        self._step = program.compiled.step
        self._slots = program.compiled.slots
        self._device = program.compiled.variables.get("device")

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"

    def matches(self, device: DeviceView) -> bool:
        """Raises EvaluationError."""
        if device.fault is not None:
            device.check()
        return self.evaluate(device)

    def evaluate(self, device: DeviceView) -> bool:
        """As `matches`, without raising the device's own fault. Raises EvaluationError."""
        frame: list[Any] = [None] * self._slots
        frame[0] = COST_MAX
        if self._device is not None:
            frame[self._device] = device
        try:
            value = self._step(frame)
        except RecursionError:
            raise EvaluationError("expression recursion limit exceeded") from None
        if value is True or value is False:
            return bool(value)
        raise EvaluationError(f"CEL result of type {type_name(value)} could not be converted to bool")

    def verdict(self, device: DeviceView) -> Verdict:
        """As `matches`, with an error as the third verdict."""
        try:
            return _MATCHING if self.matches(device) else _NOT_MATCHING
        except EvaluationError as error:
            return Verdict(Outcome.ERROR, error.message)

    @cached_property
    def reads(self) -> frozenset[Read]:
        """The parts of a device that the verdict can depend on."""
        return device_reads(self.program.checked)

    @cached_property
    def estimated_cost(self) -> int:
        """The worst case, as the API server estimates it."""
        return estimate_selector(self.program.checked)

    @property
    def type(self) -> t.Type:
        return self.program.type


@lru_cache(maxsize=4096)
def compile_selector(text: str) -> Selector:
    """The selector of that text. Raises CompileError."""
    size = len(text.encode(errors="surrogatepass"))
    if size > LENGTH_MAX:
        raise CompileError(text[:200], (Issue(f"too long: {size} bytes, may not be more than {LENGTH_MAX}", 0),))
    return Selector(compile(text, DEVICE, result=(t.BOOL, t.ANY), exact=True))


def admit_selector(text: str) -> Selector:
    """As compile_selector, and refuses what the API refuses in new objects. Raises CompileError.

    That is a worst-case cost above COST_MAX, and functions behind feature gates that are off by default.
    """
    selector = compile_selector(text)
    compile(text, NEW_DEVICE)
    cost = selector.estimated_cost
    if cost > COST_MAX:
        message = f"too complex, exceeds cost limit: estimated cost {cost} is above {COST_MAX}"
        raise CompileError(text, (Issue(message, 0, "avoid nested loops, and functions of strings of unknown size"),))
    return selector
