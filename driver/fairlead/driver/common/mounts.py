"""tmpfs mounts of limited size, for directories that containers write. Linux only; needs CAP_SYS_ADMIN.

A mount of its own, not one in the CDI spec: that would give each container another tmpfs, and here containers and a
daemon of the node share one. Its pages count against the memory limit of the container that writes them.
In a pod, the mount reaches the host, and with it the containers, only where the volume has `mountPropagation:
Bidirectional`.
"""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path

_NOSUID, _NODEV, _NOEXEC, _NOSYMFOLLOW = 2, 4, 8, 256  # <sys/mount.h>; NOSYMFOLLOW: Linux 5.10, ignored before
_DETACH, _UMOUNT_NOFOLLOW = 2, 8
# The kernel's number for the first process namespace (PROC_PID_INIT_INO).
_HOST_PIDS = "pid:[4026531836]"
_OCTAL = re.compile(rb"\\([0-7]{3})")


def mount_tmpfs(target: Path, *, size_bytes: int, inodes: int, mode: int) -> None:
    """Mount a tmpfs that holds at most this much. Links in it are not followed, by containers or the host's programs.

    Raises OSError; PermissionError without the privilege.
    """
    options = f"size={size_bytes},nr_inodes={inodes},mode={mode:o}".encode()
    flags = _NOSUID | _NODEV | _NOEXEC | _NOSYMFOLLOW
    _check(_libc().mount(b"tmpfs", os.fsencode(target), b"tmpfs", flags, options), target)


def unmount_below(path: Path) -> int:
    """Detach every mount at `path` or below it, the innermost first; how many. Raises OSError.

    A container that still has one keeps it until it ends.
    """
    found = mounts_below(path)
    for mount in found:
        _check(_libc().umount2(os.fsencode(mount), _DETACH | _UMOUNT_NOFOLLOW), mount)
    return len(found)


def mounts_below(path: Path) -> list[Path]:
    """Where something is mounted, at `path` or below it, the innermost first. Raises OSError.

    Source: proc(5), mountinfo.
    """
    own = os.fsencode(path.parent.resolve() / path.name)
    found = [point for point, _, _ in origins() if is_below(point, own)]
    return [Path(os.fsdecode(point)) for point in reversed(found)]


def reaches_host(target: Path, *, proc: Path = Path("/proc")) -> bool:
    """Whether the host's first process sees the mount, too, by its device: the path may differ there. True where that cannot
    be found out.
    """
    try:
        if (proc / "1/ns/mnt").readlink() == (proc / "self/ns/mnt").readlink():
            return True
        device = target.stat().st_dev
        own = f"{os.major(device)}:{os.minor(device)}".encode()
        return any(line.split()[2] == own for line in _lines(proc / "1/mountinfo"))
    except OSError:
        return True


def sees_host_processes(proc: Path = Path("/proc")) -> bool:
    """Whether process IDs here are the host's. Raises OSError."""
    return str((proc / "self/ns/pid").readlink()) == _HOST_PIDS


def origins(table: Path = Path("/proc/self/mountinfo")) -> list[tuple[bytes, bytes, bytes]]:
    """Of each mount, in their order: the mount point, and the device and the path on it that is mounted. Raises OSError."""
    found = []
    for line in _lines(table):
        device, path, point = line.split()[2:5]
        found.append((_plain(point), device, _plain(path)))
    return found


def origin(path: Path, known: list[tuple[bytes, bytes, bytes]]) -> tuple[bytes, bytes] | None:
    """The device, and the path on it, of what is at `path`, a path without links, going by the mounts that are `known`."""
    wanted = os.fsencode(path)
    within = [each for each in known if is_below(wanted, each[0])]
    if not within:
        return None
    point, device, root = max(within, key=lambda each: len(each[0]))
    return device, root.rstrip(b"/") + wanted[len(point.rstrip(b"/")) :]


def is_below(path: bytes, directory: bytes) -> bool:
    """Whether it is the directory, or in it."""
    return path == directory or path.startswith(directory.rstrip(b"/") + b"/")


def _plain(field: bytes) -> bytes:
    """A field of mountinfo, which has blanks and the like as octal numbers."""
    return _OCTAL.sub(lambda code: bytes([int(code[1], 8)]), field)


def _lines(table: Path) -> list[bytes]:
    return table.read_bytes().splitlines()


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(status: int, path: Path) -> None:
    if status:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fspath(path))
