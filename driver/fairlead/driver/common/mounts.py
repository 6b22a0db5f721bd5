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
_OCTAL = re.compile(rb"\\([0-7]{3})")


def mount_tmpfs(target: Path, *, size_bytes: int, inodes: int, mode: int) -> None:
    """Mount a tmpfs that holds at most this much. Links in it are not followed, by containers or the host's programs.

    Raises OSError; PermissionError without the privilege.
    """
    options = f"size={size_bytes},nr_inodes={inodes},mode={mode:o}".encode()
    flags = _NOSUID | _NODEV | _NOEXEC | _NOSYMFOLLOW
    _check(_libc().mount(b"tmpfs", os.fsencode(target), b"tmpfs", flags, options), target)


def unmount_below(path: Path, *, table: Path = Path("/proc/self/mountinfo")) -> int:
    """Detach every mount at `path` or below it, the innermost first; how many. Raises OSError.

    A container that still has one keeps it until it ends.
    """
    found = mounts_below(path, table=table)
    for mount in found:
        _check(_libc().umount2(os.fsencode(mount), _DETACH | _UMOUNT_NOFOLLOW), mount)
    return len(found)


def mounts_below(path: Path, *, table: Path = Path("/proc/self/mountinfo")) -> list[Path]:
    """Where something is mounted, at `path` or below it, the innermost first. Raises OSError.

    Source: proc(5), mountinfo: the fifth field is the mount point, with blanks and the like as octal numbers.
    """
    own = os.fsencode(path.parent.resolve() / path.name)
    points = [_OCTAL.sub(lambda code: bytes([int(code[1], 8)]), line.split()[4]) for line in _lines(table)]
    found = [point for point in points if point == own or point.startswith(own + b"/")]
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


def _lines(table: Path) -> list[bytes]:
    return table.read_bytes().splitlines()


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(status: int, path: Path) -> None:
    if status:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fspath(path))
