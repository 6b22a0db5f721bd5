"""A container's memory limit as a cgroup, where this machine lets one be made."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlead.kube.quantity import Quantity

_V1, _V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class MemoryLimit:
    group: Path
    bytes: int
    peak_file: str

    @classmethod
    def of(cls, container: Mapping[str, Any], name: str) -> MemoryLimit | None:
        """None without a limit, or where no cgroup can be made."""
        limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
        if limit is None:
            return None
        size = int(Quantity.parse(str(limit)))
        for parent, limit_file, peak_file in (
            (_V1, "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
            (_V2, "memory.max", "memory.peak"),
        ):
            group = parent / f"fairlead-{os.getpid()}-{name}"
            try:
                group.mkdir()
                (group / limit_file).write_text(str(size))
            except OSError:
                with contextlib.suppress(OSError):
                    group.rmdir()
                continue
            return cls(group, size, peak_file)
        return None

    def script(self) -> list[str]:
        """Moves the shell, and so the program that it becomes, into the group."""
        return [f"echo $$ > {self.group}/cgroup.procs"]

    @property
    def peak_bytes(self) -> int:
        return int((self.group / self.peak_file).read_text())

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self.group.rmdir()
