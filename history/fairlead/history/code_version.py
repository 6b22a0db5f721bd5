"""Which code decided: Fairlead's version, and a digest of the sources that a decision runs through.

Two builds of one version with the same digest decide alike. Source files are read where they stand (a wheel and the image have them).
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable

from fairlead.api.version import VERSION

PACKAGES = ("fairlead.api", "fairlead.kube", "fairlead.cel", "fairlead.engine")


@cache
def code_version() -> str:
    """Such as `0.1.0+1f2e3d4c5b6a`."""
    total = sha256()
    for package in PACKAGES:
        for name, text in sorted(_sources(resources.files(package), package)):
            total.update(f"{name}\0{len(text)}\0".encode())
            total.update(text)
    return f"{VERSION}+{total.hexdigest()[:12]}"


def _sources(folder: Traversable, path: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for entry in folder.iterdir():
        name = f"{path}/{entry.name}"
        if entry.is_dir():
            if entry.name != "__pycache__":
                found += _sources(entry, name)
        elif entry.name.endswith(".py"):
            found.append((name, entry.read_bytes()))
    return found
