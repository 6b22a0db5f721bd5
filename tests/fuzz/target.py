"""What is fuzzed: a parser as a function of bytes, valid inputs to start from, and how inputs are changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from random import Random

Mutate = Callable[[Random, bytes, bytes], bytes]
"""An input made of one that is known; the third is another known one, to take parts from."""


def says_why(error: Exception) -> None:
    """A refusal has words."""
    assert str(error)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """`run` raises one of `allowed` for an input that its parser refuses; whatever else it raises is a fault.

    `traced`: parts of the paths of the files in which a new line makes an input worth keeping.
    """

    name: str
    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    mutate: Mutate
    allowed: tuple[type[BaseException], ...] = ()
    traced: tuple[str, ...] = ()
    close: Callable[[], None] = lambda: None
    """Called when it is not needed any more."""
    bytes_max: int = 4 * 1024
    growth_mib: float = 8.0
    """How much more memory the process may have at the end than at `run.SETTLED` of the run."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """A fault, with the shortest input that is known to show it."""

    target: str
    kind: str
    """exception, hang, growth or crash."""
    text: str
    trace: str = ""
    input: bytes = b""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run of a target was like."""

    target: str
    seed: int
    inputs: int
    elapsed_s: float
    slowest_ms: float
    growth_mib: float
    lines: int
    """Reached in `traced`."""
    findings: tuple[Finding, ...] = ()
