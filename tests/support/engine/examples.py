"""How many examples a property is tried on in `make test`; the others in `make slow` and `make properties`."""

from __future__ import annotations

import os


def examples(usual: int, *, least: int = 5) -> int:
    """`usual`, or as many times that as the environment's EXAMPLES says; `least` at least."""
    return max(least, round(usual * float(os.environ.get("EXAMPLES", "1"))))
