"""Shell scripts that make a root file system of overlays and bind mounts, and whether this machine allows them.

Everything is mounted in a mount namespace of its own and goes away with the last process in it.
"""

from __future__ import annotations

import functools
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

TOOLS = ("unshare", "setpriv", "mount", "chroot", "env")


@functools.cache
def refusal() -> str:
    """Why containers cannot be run here; empty where they can."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)}: not in PATH (util-linux and coreutils have them)"
    with tempfile.TemporaryDirectory(prefix="fl-") as folder:
        places = [Path(folder, name) for name in ("lower", "upper", "work", "root")]
        for each in places:
            each.mkdir()
        root = Root(layers=(places[0],), path=places[3], upper=places[1], work=places[2])
        tried = subprocess.run(
            unshared(root.script() + "\nls /proc > /dev/null", new=("--mount", "--pid", "--net")),
            capture_output=True,
            text=True,
            check=False,
        )
    return f"the kernel or this user's rights forbid it: {tried.stderr.strip()}" if tried.returncode else ""


def unshared(script: str, *, new: Sequence[str]) -> list[str]:
    """A command that runs the script in new namespaces (flags of unshare(1)); it dies with whoever started it."""
    return [
        *("setpriv", "--pdeathsig", "KILL", "unshare", *new, "--fork", "--kill-child=KILL"),
        *("/bin/sh", "-e", "-c", script),
    ]


@dataclass(frozen=True, kw_only=True)
class Root:
    """Layers, lowest first, at `path`: read-only, or with changes in `upper` (and `work`, on the same file system)."""

    layers: tuple[Path, ...]
    path: Path
    upper: Path | None = None
    work: Path | None = None

    def script(self) -> str:
        lower = ":".join(str(layer) for layer in reversed(self.layers))
        if self.upper is not None:
            return f"mount -t overlay image -o lowerdir={lower},upperdir={self.upper},workdir={self.work} {self.path}"
        assert len(self.layers) > 1, "an overlay without changes needs two layers"
        return f"mount -t overlay image -o ro,lowerdir={lower} {self.path}"


def bind(source: Path | str, target: Path | str, *, read_only: bool = False, recursive: bool = False) -> str:
    made = f"mount --{'r' if recursive else ''}bind {shlex.quote(str(source))} {shlex.quote(str(target))}"
    return made + (f"\nmount -o remount,bind,ro {shlex.quote(str(target))}" if read_only else "")


def in_root(root: Path, environment: Iterable[tuple[str, str]], command: Sequence[str]) -> str:
    """The line that runs a command with the root and exactly this environment."""
    variables = [f"{name}={value}" for name, value in environment]
    return "exec " + shlex.join(["chroot", str(root), "/usr/bin/env", "-i", *variables, *command])
