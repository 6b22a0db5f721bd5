"""Virtual time and seeded chance in place of the machine's, for every module that is imported afterwards.

`install()` replaces the functions of `time`, `random` and `os.urandom`. Fairlead takes clocks as arguments whose defaults are
those functions, so it has to be imported after. Each process may have a wall clock that is wrong by `skew_s`.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import secrets
import sys
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.chaos.loop import Process

EPOCH_S = 1_790_000_000.0  # unix seconds at which every run begins

PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)
"""Whose code runs now; None: the campaign's own."""


class Clock:
    """Seconds since the start of the run; only the event loop advances it."""

    now = 0.0


CLOCK = Clock()
CHANCE = random.Random(0)
machine_s: Callable[[], float] = time.perf_counter
"""The machine's clock, to report how long runs take."""


def monotonic() -> float:
    return CLOCK.now


def wall() -> float:
    process = PROCESS.get()
    return EPOCH_S + CLOCK.now + (process.skew_s if process is not None else 0.0)


def now() -> dt.datetime:
    return dt.datetime.fromtimestamp(wall(), dt.UTC)


def seed(value: int | str) -> None:
    CHANCE.seed(value)
    random.seed(value)


class _Seeded(random.Random):
    """As random.Random; without a seed it takes one from CHANCE instead of from the machine."""

    def __init__(self, x: Any = None) -> None:
        super().__init__(CHANCE.getrandbits(64) if x is None else x)


def install() -> None:
    """Raises RuntimeError where Fairlead has been imported already, or hashes of strings differ from process to process."""
    early = next((name for name in sys.modules if name.startswith("fairlead.")), None)
    if early is not None:
        raise RuntimeError(f"{early} was imported before virtual time was installed")
    if os.environ.get("PYTHONHASHSEED") != "0":
        raise RuntimeError("PYTHONHASHSEED is not 0: the order of sets would differ from run to run")
    time.monotonic = time.perf_counter = monotonic
    time.time = wall
    time.monotonic_ns = time.perf_counter_ns = lambda: int(monotonic() * 1e9)
    time.time_ns = lambda: int(wall() * 1e9)
    random.Random = _Seeded  # type: ignore[misc]
    os.urandom = random._urandom = CHANCE.randbytes  # type: ignore[attr-defined]
    secrets.token_bytes = lambda nbytes=None: CHANCE.randbytes(32 if nbytes is None else nbytes)
    secrets.token_hex = lambda nbytes=None: secrets.token_bytes(nbytes).hex()
