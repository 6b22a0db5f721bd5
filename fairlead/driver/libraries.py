"""The NVIDIA driver's files on the host that a container needs: libraries, a few binaries, firmware.

Exists so that a container gets a working libcuda without a vendor's tool or hook at run time. A library is bound under
its own name and under the names that programs ask the loader for (libcuda.so.1), which stand for the symlinks and the
ldconfig run that a hook would make. Looks once, at start; a host without NVIDIA files gives nothing.
Leaves out: graphics (EGL, Vulkan, X) and images whose loader does not search the host's library directory.
Source: the file list of nvidia-container-toolkit's nvcdi.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

_LIBRARY_DIRS = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
)
_BINARY_DIRS = ("opt/bin", "usr/bin", "usr/sbin", "bin", "sbin")
_BINARIES = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
)
_SOCKETS = ("run/nvidia-persistenced/socket", "run/nvidia-fabricmanager/socket")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A bind mount; `host_path` as the container runtime sees the host."""

    host_path: str
    container_path: str
    read_only: bool = True


def find(root: Path, driver_version: str | None) -> tuple[Mount, ...]:
    """What there is under `root` (where the driver is installed) of that driver version, sorted by container path."""
    if not driver_version:
        return ()
    found: dict[str, Mount] = {}
    for directory in _LIBRARY_DIRS:
        _libraries(root, root / directory, driver_version, found)
    if not found:
        return ()
    for directory in _BINARY_DIRS:
        for name in _BINARIES:
            path = root / directory / name
            if path.is_file() and not any(mount.container_path.endswith(f"/{name}") for mount in found.values()):
                _add(found, root, path.resolve(), path)
    for path in sorted((root / "lib/firmware/nvidia" / driver_version).glob("gsp*.bin")):
        _add(found, root, path, path)
    for socket in _SOCKETS:
        path = root / socket
        if path.is_socket():
            _add(found, root, path, path)
    return tuple(found[key] for key in sorted(found))


def _libraries(root: Path, directory: Path, driver_version: str, found: dict[str, Mount]) -> None:
    # On merged-usr hosts /lib64 is /usr/lib64: the same library once.
    if not directory.is_dir() or (directory.is_symlink() or any(p.is_symlink() for p in _between(root, directory))):
        return
    for path in sorted(directory.iterdir()):
        target = path.resolve()
        if ".so" in path.name and target.name.endswith(f".so.{driver_version}") and target.is_file():
            _add(found, root, target, path)
    cuda = directory / "libcuda.so.1"
    if (host := cuda.resolve()).name.endswith(f".so.{driver_version}") and not (directory / "libcuda.so").exists():
        _add(found, root, host, directory / "libcuda.so")


def _between(root: Path, directory: Path) -> list[Path]:
    return [parent for parent in directory.parents if parent != root and root in parent.parents]


def _add(found: dict[str, Mount], root: Path, host: Path, inside: Path) -> None:
    container = "/" + str(inside.relative_to(root))
    found[container] = Mount(host_path=str(host), container_path=container)
