"""Where a real node's directory is on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath


def here(path: str | PurePosixPath, host_paths: Mapping[str, Path]) -> Path:
    """The path below the longest of `host_paths` that holds it; as it stands where none does."""
    wanted = PurePosixPath(path)
    for directory in sorted(host_paths, key=len, reverse=True):
        if wanted.is_relative_to(directory):
            return host_paths[directory] / wanted.relative_to(directory)
    return Path(wanted)
