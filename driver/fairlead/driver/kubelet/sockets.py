"""The paths of the driver's unix sockets and files, and how stale sockets are removed.

kubelet finds a plugin by a file's name, a unix path has at most 107 bytes, and a killed process leaves its sockets
behind. With a pod UID the sockets' names are unique to the pod, so that the next version of the driver can start while
this one still serves (rolling update, kubelet 1.33 and later).
Source: k8s.io/dynamic-resource-allocation/kubeletplugin uses the same names.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import fcntl
import hashlib
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

PATH_BYTES_MAX = 107


class SocketError(Exception):
    """The sockets cannot be made at their paths, or another process of this driver runs already."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PluginPaths:
    """Absolute paths. `data` is the driver's own directory under kubelet's plugins."""

    data: Path
    dra: Path
    registration: Path


def plugin_paths(*, driver: str, plugins_dir: Path, registry_dir: Path, pod_uid: str | None) -> PluginPaths:
    """Raises SocketError when a path cannot be made short enough."""
    data = plugins_dir.absolute() / driver
    registry = registry_dir.absolute()
    if pod_uid is None:
        dra, registration = "dra.sock", f"{driver}-reg.sock"
    else:
        dra, registration = f"dra-{pod_uid}.sock", f"{driver}-{pod_uid}-reg.sock"
        if _length(registry / registration) > PATH_BYTES_MAX:
            registration = f"{driver}-{_hash(pod_uid, 8)}-reg.sock"
        if _length(registry / registration) > PATH_BYTES_MAX:
            both = _hash(driver + "\0" + pod_uid, 16)
            registration = f"dra-{both}-reg.sock"
        if _length(data / dra) > PATH_BYTES_MAX:
            dra = f"dra-{_hash(pod_uid, 8)}.sock"
    for path in (data / dra, registry / registration):
        if _length(path) > PATH_BYTES_MAX:
            raise SocketError(
                f"socket {path}: {_length(path)} bytes, and a unix socket's path has at most {PATH_BYTES_MAX}; "
                "choose a shorter --plugins-dir or --registry-dir"
            )
    return PluginPaths(data=data, dra=data / dra, registration=registry / registration)


def _length(path: Path) -> int:
    return len(os.fsencode(path))


def _hash(text: str, length: int) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return digest.replace("_", "x").replace("-", "y")[:length]


def remove_stale(path: Path) -> None:
    """Remove a socket that no process serves. Raises SocketError when one does, or the file is no socket."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SocketError(f"{path}: in the way of a socket, and is none; move it away")
    if _served(path):
        raise SocketError(f"{path}: another process serves this socket; stop it first")
    path.unlink(missing_ok=True)


def remove_all_stale(directory: Path, pattern: str) -> None:
    """Remove the sockets of killed pods, which kubelet would dial again and again."""
    for path in sorted(directory.glob(pattern)):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(path.lstat().st_mode) and not _served(path):
                path.unlink()


def _served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
        return True


@contextlib.contextmanager
def hold_lifetime_lock(path: Path, *, shared: bool) -> Iterator[None]:
    """While the context lasts, no other process of this driver runs, or with `shared` only ones that share, too.

    The kernel releases the lock when the process ends, however it ends. Raises SocketError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SocketError(
                f"{path}: held by another process of this driver on this node; stop it, or give both their pod's UID "
                "(--pod-uid) to let them take over from each other"
            ) from None
        yield
    finally:
        os.close(descriptor)
