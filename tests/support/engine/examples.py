"""How many examples a property, and how many cases of a matrix, are tried in `make test`; the others in `make slow` and `make properties`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest


def examples(usual: int, *, least: int = 5) -> int:
    """`usual`, or as many times that as the environment's EXAMPLES says; `least` at least."""
    return max(least, round(usual * float(os.environ.get("EXAMPLES", "1"))))


def every(number: int, cases: Iterable[Any]) -> list[Any]:
    """One in `number` of these cases, the first among them, in `make test`; the others in `make slow` only."""
    made = [case if isinstance(case, type(pytest.param())) else pytest.param(case) for case in cases]
    return [
        case if at % number == 0 else pytest.param(*case.values, id=case.id, marks=(*case.marks, pytest.mark.slow))
        for at, case in enumerate(made)
    ]
