"""Prints what the image installs beside Fairlead: the extras of its three programs, and what builds the wheel."""

from __future__ import annotations

import tomllib
from pathlib import Path

PROGRAMS = ("driver", "webhook", "controller")
PROJECT = tomllib.loads((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text(encoding="utf-8"))


def requirements() -> list[str]:
    extras = PROJECT["project"]["optional-dependencies"]
    return sorted(
        {name for program in PROGRAMS for name in extras[program]} | set(PROJECT["dependency-groups"]["build"])
    )


if __name__ == "__main__":
    print("\n".join(requirements()))
