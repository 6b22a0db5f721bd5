"""The report: a line for each check, and what the machine is."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Awaitable, Callable, Iterator

from tests.hardware.stage import SkippedError, Stage

Check = Callable[[Stage], Awaitable[str]]
"""Says what it saw; raises SkippedError, or AssertionError where what it saw is wrong."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    name: str
    result: str  # ok, failed, skipped
    detail: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.result:8}{self.name:28}{self.seconds:6.1f} s  {self.detail}"


async def checked(name: str, check: Check, stage: Stage) -> Line:
    """The check's line. What it raises is its failure; the next check runs all the same."""
    begun_s = time.monotonic()
    try:
        result, detail = "ok", await check(stage)
    except SkippedError as skipped:
        result, detail = "skipped", str(skipped)
    except Exception as error:
        result, detail = "failed", f"{type(error).__name__}: {error}"
    if result == "failed":
        await stage.clear()
    return Line(name=name, result=result, detail=detail, seconds=time.monotonic() - begun_s)


def summary(lines: list[Line]) -> Iterator[str]:
    counts = {result: sum(line.result == result for line in lines) for result in ("ok", "failed", "skipped")}
    yield ", ".join(f"{count} {result}" for result, count in counts.items())
