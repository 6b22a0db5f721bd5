"""Finds the manifests and examples of this Fairlead: inside an installed wheel, else in the checkout."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
CHECKOUT = PACKAGE.parents[2]  # sandbox/fairlead/sandbox


def find(folder: str) -> Path:
    """The directory `manifests` or `examples` (or a path below one). Raises FileNotFoundError naming where it looked."""
    candidates = (PACKAGE / "_files" / folder, CHECKOUT / folder)
    for candidate in candidates:
        if candidate.exists():
            return candidate
    raise FileNotFoundError(
        f"{folder}: neither {candidates[0]} nor {candidates[1]} exists; run from a checkout or a wheel"
    )
