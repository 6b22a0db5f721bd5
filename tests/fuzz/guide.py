"""Which inputs reach lines of the parser that none before did: they are kept, and changed further.

Lines are traced by the interpreter (`sys.settrace`), which makes a run ten times as slow: so only some inputs are traced. Which
ones, depends on their number alone, so that a seed gives the same series again.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

ALL_UNTIL = 200
EVERY = 24


class Guide:
    def __init__(self, traced: tuple[str, ...]) -> None:
        self._traced = traced
        self._wanted: dict[CodeType, bool] = {}
        self._lines: set[tuple[CodeType, int]] = set()

    def __len__(self) -> int:
        return len(self._lines)

    def looks_at(self, number: int) -> bool:
        """Whether the input of this number is traced."""
        return bool(self._traced) and (number < ALL_UNTIL or number % EVERY == 0)

    @contextlib.contextmanager
    def tracing(self) -> Iterator[Callable[[], bool]]:
        """Yields a function that says, afterwards, whether lines were new."""
        before, former = len(self._lines), sys.gettrace()
        sys.settrace(self._enter)
        try:
            yield lambda: len(self._lines) > before
        finally:
            sys.settrace(former)

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        wanted = self._wanted.get(code)
        if wanted is None:
            wanted = self._wanted[code] = any(part in code.co_filename for part in self._traced)
        if not wanted:
            return None
        self._lines.add((code, frame.f_lineno))
        return self._step

    def _step(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
        if event == "line":
            self._lines.add((frame.f_code, frame.f_lineno))
        return self._step
