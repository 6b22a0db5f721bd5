"""How many examples a property is tried on: some in `make test`, many times more in `make properties`."""

from __future__ import annotations

import os


def examples(usual: int) -> int:
    """`usual`, or as many times that as the environment's EXAMPLES says."""
    return usual * int(os.environ.get("EXAMPLES", "1"))
