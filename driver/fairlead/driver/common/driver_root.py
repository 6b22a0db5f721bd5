"""NVIDIA's driver as it is installed under a root: the host's own, or one that a container brought along.

Finds programs and libraries, and says how a program runs with the libraries that it was built for. A root with a C
library of its own becomes the program's root; one that holds only the driver (as on Container-Optimized OS) is searched
by PATH and LD_LIBRARY_PATH. Symlinks resolve as if the root were `/`.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

from fairlead.driver.common import launch

LIBRARY_DIRS = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
)
BINARY_DIRS = ("opt/bin", "usr/bin", "usr/sbin", "bin", "sbin")
_SYMLINKS_MAX = 40


@dataclasses.dataclass(frozen=True, slots=True)
class DriverRoot:
    path: Path

    def resolve(self, path: str) -> str | None:
        """The target of `path` after all symlinks, both relative to the root; None when they form a circle."""
        done: list[str] = []
        left = [part for part in reversed(path.split("/")) if part]
        for _ in range(_SYMLINKS_MAX):
            while left:
                part = left.pop()
                if part == "..":
                    done = done[:-1]
                    continue
                here = self.path.joinpath(*done, part)
                if not here.is_symlink():
                    done.append(part)
                    continue
                link = str(here.readlink())
                if link.startswith("/"):
                    done = []
                left += [each for each in reversed(link.split("/")) if each not in {"", "."}]
                break
            else:
                return "/".join(done)
        return None

    def find_program(self, name: str) -> str | None:
        """The path of a program, relative to the root."""
        for directory in BINARY_DIRS:
            target = self.resolve(f"{directory}/{name}")
            if target is not None and (self.path / target).is_file():
                return target
        return None

    @property
    def has_libc(self) -> bool:
        """Whether programs can run with this as their root."""
        targets = (self.resolve(f"{directory}/libc.so.6") for directory in LIBRARY_DIRS)
        return any(target is not None and (self.path / target).is_file() for target in targets)

    @property
    def needs_chroot(self) -> bool:
        """Whether programs run with this as their root, and it is not the root of this process."""
        return self.path != Path("/") and self.has_libc

    def program_path(self, path: str) -> str:
        """A path under the root, as a program that runs by `launcher` sees it."""
        return f"/{path}" if self.needs_chroot else str(self.path / path)

    def launcher(self, *options: str) -> tuple[str, ...]:
        """The words before a command that let it run under this root; `options` are those of launch.py."""
        root = ("--root", str(self.path)) if self.needs_chroot else ()
        if not root and not options:
            return ()
        return (sys.executable, "-I", "-S", launch.__file__, *root, *options, "--")

    def environment(self) -> dict[str, str]:
        """The environment of a program that runs by `launcher`."""
        found = {"PATH": os.pathsep.join(self.program_path(directory) for directory in BINARY_DIRS)}
        if not self.needs_chroot and self.path != Path("/"):
            found["LD_LIBRARY_PATH"] = os.pathsep.join(str(self.path / directory) for directory in LIBRARY_DIRS)
        return found
