"""What the selectors of an untrusted user may cost: tokens to compile and steps to evaluate, for a block of code.

Compiling takes up to 0.05 ms a token and evaluating up to 1 µs a step, and both hold the thread. One expression and one object are bounded by
their size (`selector.TOKENS_MAX`, `load_fault`); `allowance` bounds what one review or one namespace causes. A program that is cached costs
nothing to compile.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Final

from fairlead.cel.errors import AllowanceError


@dataclass(slots=True)
class Allowance:
    """`owner` is the namespace that programs count for in the cache; `tokens` and `steps` are what is left (None: any number)."""

    owner: str = ""
    tokens: int | None = None
    steps: int | None = None
    compiled: int = 0
    """Tokens compiled in the block."""

    def spend_tokens(self, count: int) -> None:
        """Raises AllowanceError where fewer are left."""
        if self.tokens is not None:
            if count > self.tokens:
                raise AllowanceError(
                    f"selectors: compiling one of {count} tokens exceeds what may be compiled now ({max(self.tokens, 0)} tokens are left); "
                    "try again in some seconds, or use fewer distinct selectors"
                )
            self.tokens -= count
        self.compiled += count

    def spend_steps(self, count: int) -> None:
        """Raises AllowanceError where fewer are left."""
        if self.steps is not None:
            self.steps -= count
            if self.steps < 0:
                raise AllowanceError(
                    "selectors: evaluating them on the cluster's kinds of devices takes too long; loop over less, or compare attributes directly"
                )


_UNLIMITED: Final = Allowance()
_current: ContextVar[Allowance] = ContextVar("allowance", default=_UNLIMITED)


class allowance:  # noqa: N801 - `with cel.allowance(…)`; one made of a generator takes longer than many reviews' selectors
    """Within the block selectors cost at most so much, and no more than the block around it allows; programs count for the owner."""

    __slots__ = ("_allowed", "_outer", "_token")

    def __init__(self, owner: str = "", *, tokens: int | None = None, steps: int | None = None) -> None:
        self._outer = outer = current()
        self._allowed = Allowance(owner, _least(tokens, outer.tokens), _least(steps, outer.steps))

    def __enter__(self) -> Allowance:
        self._token: Token[Allowance] = _current.set(self._allowed)
        return self._allowed

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)
        outer, compiled = self._outer, self._allowed.compiled
        if outer is not _UNLIMITED:
            outer.compiled += compiled
            outer.tokens = None if outer.tokens is None else outer.tokens - compiled


def _least(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def current() -> Allowance:
    """The innermost block's; without one, an allowance without a limit."""
    return _current.get()
