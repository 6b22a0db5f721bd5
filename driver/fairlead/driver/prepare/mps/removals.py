"""Directories that containers wrote, put aside and then removed: at once where that is quick, else in several attempts.

A claim's directory is renamed first, which no content can delay; from then on the claim is done with it. What its
containers left is removed in attempts of limited time, which `cleaner` repeats until nothing is left: a tree of any size
or a file that cannot be removed holds up no claim, no start, and not the GPU.
"""

from __future__ import annotations

import logging
import re
import secrets
from pathlib import Path

from fairlead.driver.common import files, mounts, trees

log = logging.getLogger(__name__)

FIRST_ATTEMPT_S = 0.5
_ASIDE = re.compile(r"\.(?P<uid>.+)\.[0-9a-f]{8}\.removing")


class Removals:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def discard(self, path: Path) -> None:
        """Put `path`, named after a claim's UID, aside, and remove it if that is quick. Raises OSError; then it is where it was."""
        aside = self._directory / f".{path.name}.{secrets.token_hex(4)}.removing"
        path.rename(aside)
        try:
            self.attempt(aside.name, timeout_s=FIRST_ATTEMPT_S)
        except OSError as error:
            log.warning("claim %s: %s; it is tried again", path.name, files.describe(error))

    def pending(self) -> dict[str, str]:
        """What is left, by name, with the UID of its claim. Raises OSError."""
        try:
            names = sorted(path.name for path in self._directory.iterdir())
        except FileNotFoundError:
            return {}
        return {name: match["uid"] for name in names if (match := _ASIDE.fullmatch(name))}

    def attempt(self, name: str, *, timeout_s: float = trees.TIMEOUT_S) -> bool:
        """Go on removing; whether nothing is left. Raises OSError for what cannot be removed, after the rest was."""
        path = self._directory / name
        mounts.unmount_below(path)
        return trees.remove_tree(path, timeout_s=timeout_s)
