"""A figure of a benchmark, and CPU seconds of a piece of work."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def figure(name: str, value: float, unit: str, bar: float | None = None, **more: Any) -> dict[str, Any]:
    """`more`: what else is written with it, such as `scaled` (see `calibration.judged`)."""
    return {"figure": name, "value": float(f"{value:.5g}"), "unit": unit, "bar": bar, **more}


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """CPU seconds of this process, all its threads; and what it returned."""
    began = time.process_time()
    found = work()
    return time.process_time() - began, found
