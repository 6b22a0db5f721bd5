"""Device selectors: compiled once per text, evaluated once per device.

A selector has three verdicts, for a device on which the evaluation fails is neither a match nor silently none.
`compile_selector` accepts what may be stored in the API; `admit_selector` refuses besides what the API server refuses in new
objects: a worst-case cost above COST_MAX, and functions behind feature gates.

Invariants: a Selector never changes. What is compiled is bounded per text (TOKENS_MAX) and, with `allowance`, per caller; what stays is
bounded in bytes (`programs`).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from fairlead.cel import types as t
from fairlead.cel.allowance import current
from fairlead.cel.device import DeviceView
from fairlead.cel.devices.device_cost import estimate_selector
from fairlead.cel.devices.reads import Read, device_reads
from fairlead.cel.environment import Environment
from fairlead.cel.errors import CompileError, EvaluationError, Issue
from fairlead.cel.kubernetes import DEVICE, NEW_DEVICE
from fairlead.cel.program import Program, compile  # noqa: A004
from fairlead.cel.program_cache import ProgramCache, TextMemo
from fairlead.cel.syntax.lexer import SyntaxIssue, tokenize
from fairlead.cel.values import type_name

LENGTH_MAX: Final = 10 * 1024
COST_MAX: Final = 1_000_000
TOKENS_MAX: Final = 1_500
"""Of one expression. The API bounds bytes, and 10 KiB can hold 10,000 tokens, which take half a second to compile."""
OBJECT_TOKENS_MAX: Final = TOKENS_MAX
OBJECT_BYTES_MAX: Final = 64 * 1024
"""Of all distinct selectors of one claim, template or class: 50 of a usual size (30 tokens). Compiling them takes less than 50 ms."""
STEPS_MAX: Final = 5_000
"""Of one evaluation: a loop over all 32 attributes of a device, within another one. It takes up to 5 ms."""
PROGRAMS_BYTES_MAX: Final = 48 * 2**20
BYTES_PER_TOKEN: Final = 640
"""Of a program with its tree, types, closures and reads; measured at 100 to 600, by tracemalloc."""
_PROGRAM_BYTES: Final = 2048
_FUEL: Final = 500
_FUEL_PER_TOKEN: Final = 5  # usual expressions take 1 or 2
_SPLIT: Final = (
    "write shorter or fewer selectors, share them between requests, or put what they have in common into a DeviceClass"
)
_RESULTS: Final = (t.BOOL, t.ANY)
_GATED: Final = "includes"  # the one function that DEVICE has and NEW_DEVICE lacks


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

    def __init__(self, program: Program, *, tokens: int = 0) -> None:
        self.program = program
        self.tokens = tokens
        self.may_match: dict[str, bool] = {}
        """By driver, whether any of its devices may match (managed.py)."""
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
        """Whether it matches, without raising the device's own fault. Raises EvaluationError."""
        frame: list[Any] = [None] * self._slots
        frame[0] = STEPS_MAX
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
        """Whether it matches, with an error as the third verdict. Raises AllowanceError."""
        current().spend_steps(1 + self.tokens // 8)
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


programs: Final[ProgramCache[Selector | CompileError]] = ProgramCache(PROGRAMS_BYTES_MAX)
"""Every selector of this process, and every text that is none."""


_tokens: Final[TextMemo[int]] = TextMemo(50_000)


def compile_selector(text: str) -> Selector:
    """The selector of that text. Raises CompileError, and AllowanceError where `allowance` bounds the caller."""
    found = programs.get(text)
    if found is None:
        found = _compiled(text)
    if isinstance(found, CompileError):
        raise found.again()
    return found


def stored_selector(text: str, environment: Environment = DEVICE) -> Selector:
    """As compile_selector for whatever the API server stores: no bound of ours, no cache. Raises CompileError.

    `environment` is DEVICE, or what a release admits in new selectors.
    """
    _require_length(text)
    return Selector(compile(text, environment, result=_RESULTS, exact=True))


def _compiled(text: str) -> Selector | CompileError:
    """The selector, or why there is none; cached. Raises AllowanceError."""
    allowed = current()
    found: Selector | CompileError
    try:
        _require_length(text)
        try:
            tokens = _weight(text)
        except SyntaxIssue as error:
            raise CompileError(text, (error.issue,)) from None
        allowed.spend_tokens(tokens)
        fuel = _FUEL + _FUEL_PER_TOKEN * tokens
        found = Selector(
            compile(text, DEVICE, result=_RESULTS, exact=True, tokens_max=TOKENS_MAX, fuel=fuel), tokens=tokens
        )
        size_bytes = _PROGRAM_BYTES + BYTES_PER_TOKEN * tokens + 2 * len(text)
    except CompileError as error:
        found = error
        size_bytes = _PROGRAM_BYTES + 4 * (len(error.expression) + len(str(error)))
    programs.put(text, found, size_bytes, allowed.owner)
    return found


def _require_length(text: str) -> None:
    size = len(text.encode(errors="surrogatepass"))
    if size > LENGTH_MAX:
        raise CompileError(text[:200], (Issue(f"too long: {size} bytes, may not be more than {LENGTH_MAX}", 0),))


def load_fault(texts: Iterable[str]) -> str | None:
    """Why the selectors of one object are too much together; None where they are not. Compiles nothing."""
    tokens = size_bytes = 0
    for text in dict.fromkeys(texts):
        size_bytes += len(text.encode(errors="surrogatepass"))
        if size_bytes > OBJECT_BYTES_MAX:
            return f"the distinct selectors have more than {OBJECT_BYTES_MAX} bytes together; {_SPLIT}"
        tokens += tokens_of(text)
        if tokens > OBJECT_TOKENS_MAX:
            return f"the distinct selectors have more than {OBJECT_TOKENS_MAX} tokens together; {_SPLIT}"
    return None


def tokens_of(text: str) -> int:
    """The tokens of an expression; counting ends beyond TOKENS_MAX. One that cannot be read has 1."""
    known = _tokens.get(text)
    return _tokens.put(_counted(text), text) if known is None else known


def _counted(text: str) -> int:
    try:
        return _weight(text[:LENGTH_MAX])
    except SyntaxIssue as error:
        return TOKENS_MAX + 1 if error.issue.message.startswith("too large") else 1


def _weight(text: str) -> int:
    """Tokens, and what patterns cost besides: RE2 takes 7 µs a byte, and half a millisecond for a Unicode class. Raises SyntaxIssue."""
    tokens = len(tokenize(text, most=TOKENS_MAX)) - 1
    if "matches" in text or "find" in text:
        tokens += len(text) // 8 + 12 * text.count("\\")
        if tokens > TOKENS_MAX:
            raise SyntaxIssue(
                Issue(f"too large: its patterns count as {tokens} tokens, at most {TOKENS_MAX} are allowed", 0)
            )
    return tokens


def admit_selector(text: str, *, gated: bool = False) -> Selector:
    """As compile_selector, and refuses what the API refuses in new objects. Raises CompileError.

    That is a worst-case cost above COST_MAX and, unless `gated`, functions behind feature gates that are off by default.
    """
    selector = compile_selector(text)
    if not gated and _GATED in text:
        compile(text, NEW_DEVICE, tokens_max=TOKENS_MAX)
    cost = selector.estimated_cost
    if cost > COST_MAX:
        message = f"too complex, exceeds cost limit: estimated cost {cost} is above {COST_MAX}"
        raise CompileError(text, (Issue(message, 0, "avoid nested loops, and functions of strings of unknown size"),))
    return selector
