"""Prints what the image installs beside Fairlead: the extras of its four programs, and what builds the wheel.

`image_requirements.py EXTRA…` prints what these extras name.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

PROGRAMS = ("driver", "webhook", "controller", "ui")
PROJECT = tomllib.loads((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text(encoding="utf-8"))


def requirements() -> list[str]:
    extras = PROJECT["project"]["optional-dependencies"]
    return sorted(
        {name for program in PROGRAMS for name in extras[program]} | set(PROJECT["dependency-groups"]["build"])
    )


def of_extras(extras: list[str]) -> list[str]:
    return sorted({name for extra in extras for name in PROJECT["project"]["optional-dependencies"][extra]})


if __name__ == "__main__":
    print("\n".join(of_extras(sys.argv[1:]) if sys.argv[1:] else requirements()))
