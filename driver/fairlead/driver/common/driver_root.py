"""NVIDIA's driver as it is installed under a root: the host's own, or one that a container brought along.

Exists so that its programs and libraries are looked for in one way, and that a program runs with the libraries that it was
built for: under a root that has a C library of its own, the root is changed; one that holds only the driver (as on
Container-Optimized OS) is a place to search. Symlinks are read as if the root were `/`.
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

    def target(self, path: str) -> str | None:
        """Where `path` leads to, both relative to the root; None where it leads in circles."""
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

    def program(self, name: str) -> str | None:
        """The path of a program, relative to the root."""
        for directory in BINARY_DIRS:
            target = self.target(f"{directory}/{name}")
            if target is not None and (self.path / target).is_file():
                return target
        return None

    @property
    def whole(self) -> bool:
        """Whether programs can run with this as their root: it has a C library."""
        targets = (self.target(f"{directory}/libc.so.6") for directory in LIBRARY_DIRS)
        return any(target is not None and (self.path / target).is_file() for target in targets)

    @property
    def changed(self) -> bool:
        """Whether programs run with this as their root, and it is another one."""
        return self.path != Path("/") and self.whole

    def seen(self, path: str) -> str:
        """A path under the root, as the program sees it that runs with `options`."""
        return f"/{path}" if self.changed else str(self.path / path)

    def launcher(self, *options: str) -> tuple[str, ...]:
        """What comes before a command, for it to run as the root asks; `options` are launch.py's."""
        root = ("--root", str(self.path)) if self.changed else ()
        if not root and not options:
            return ()
        return (sys.executable, "-I", "-S", launch.__file__, *root, *options, "--")

    def environment(self) -> dict[str, str]:
        """For a program that runs so."""
        found = {"PATH": os.pathsep.join(self.seen(directory) for directory in BINARY_DIRS)}
        if not self.changed and self.path != Path("/"):
            found["LD_LIBRARY_PATH"] = os.pathsep.join(str(self.path / directory) for directory in LIBRARY_DIRS)
        return found
