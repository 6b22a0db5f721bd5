"""Directories in directories, as a container may leave them."""

from __future__ import annotations

import os
from pathlib import Path


def nest(path: Path, depth: int) -> None:
    """`depth` directories in one another, made as a container makes them: by relative names."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
