"""How much memory a forecast's process may take of its own, from what the container has left.

    headroom   the least of: each limit of the container's cgroup and of those above it that can be seen, less what is in use there without
               page cache that the kernel drops at once; and what the machine has available
    bound      half of the headroom; none, and so no forecast, where the headroom is below `HEADROOM_MIN_BYTES`

The other half is for what the controller takes meanwhile, and for what the process takes between two looks at it. Limits are
`memory.max` and `memory.high` of cgroup v2, and `memory.limit_in_bytes` of v1. A file that cannot be read counts as no limit; where nothing
can be read, as on systems without /proc, the headroom is unknown and the bound is `UNKNOWN_BYTES`. Sources: the kernel's
admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst, filesystems/proc.rst.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

HEADROOM_MIN_BYTES = 256 << 20
PART = 0.5  # of the headroom
UNKNOWN_BYTES = 128 << 20
CGROUPS = Path("/sys/fs/cgroup")
PROC = Path("/proc")


def bound_bytes(headroom: int | None) -> int | None:
    """What a forecast's process may take, of this headroom in bytes; None where no forecast is to be made."""
    if headroom is None:
        return UNKNOWN_BYTES
    return int(headroom * PART) if headroom >= HEADROOM_MIN_BYTES else None


class Memory:
    """`cgroups`: where the kernel shows cgroups, v2 at the top or v1's under `memory`. `proc`: its view of processes."""

    def __init__(self, cgroups: Path = CGROUPS, proc: Path = PROC) -> None:
        self._cgroups = cgroups
        self._proc = proc

    def headroom(self) -> int | None:
        """Bytes that may still be taken before a limit is reached or the machine has none left; None where that is unknown."""
        left = [_kilobytes(self._proc / "meminfo", "MemAvailable:")]
        for directory in self._own("", self._cgroups):
            limits = [_number(directory / name) for name in ("memory.max", "memory.high")]
            left += _left(limits, directory / "memory.current", directory, "inactive_file")
        for directory in self._own("memory", self._cgroups / "memory"):
            limits = [_number(directory / "memory.limit_in_bytes")]
            left += _left(limits, directory / "memory.usage_in_bytes", directory, "total_inactive_file")
        return min((max(0, each) for each in left if each is not None), default=None)

    def private(self, pid: int) -> int | None:
        """Bytes that only this process has: what it wrote, and what others wrote that it shared with them. None where that is unknown."""
        return _kilobytes(self._proc / str(pid) / "smaps_rollup", "Private_Dirty:")

    def _own(self, controller: str, top: Path) -> Iterator[Path]:
        """This process's cgroup and those above it; only the top one where a container sees its own as that."""
        place = ""
        for line in _lines(self._proc / "self" / "cgroup"):
            _, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if controller in controllers.split(","):
                place = path.strip("/")
        directory = top / place
        while directory != top:
            yield directory
            directory = directory.parent
        yield top


def _left(limits: list[int | None], usage: Path, directory: Path, droppable: str) -> list[int | None]:
    found = [each for each in limits if each is not None]
    used = _number(usage)
    if not found or used is None:
        return []
    stat = dict(line.split(" ", 1) for line in _lines(directory / "memory.stat") if " " in line)
    cache = stat.get(droppable, "0").strip()
    return [min(found) - used + (int(cache) if cache.isdigit() else 0)]


def _number(path: Path) -> int | None:
    """The file's one number; None for `max`, and for what cannot be read."""
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdigit() else None


def _kilobytes(path: Path, name: str) -> int | None:
    """In bytes, of the line with this name."""
    for line in _lines(path):
        parts = line.split()
        if len(parts) == 3 and parts[0] == name and parts[2] == "kB" and parts[1].isdigit():
            return int(parts[1]) * 1024
    return None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
