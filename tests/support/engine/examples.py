"""How many examples a property is tried on: few in `make test`, many times more in `make properties`, which CI runs, too."""

from __future__ import annotations

import os


def examples(usual: int) -> int:
    """`usual`, or as many times that as the environment's EXAMPLES says; at least 5."""
    return max(5, round(usual * float(os.environ.get("EXAMPLES", "1"))))
