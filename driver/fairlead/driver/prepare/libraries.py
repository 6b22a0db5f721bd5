"""The NVIDIA driver's files on the host that a container needs: libraries, a few binaries, firmware.

Exists so that a container gets a working libcuda without a vendor's tool or hook at run time. A library is bound under
its own name and under the names that programs ask the loader for (libcuda.so.1), which stand for the symlinks and the
ldconfig run that a hook would make. Each is bound twice: where the host has it, which loaders of images like the host
search; and in /usr/local/nvidia/lib64, which images made for CUDA have in LD_LIBRARY_PATH, whatever their distribution.
That variable itself is left to the image: CDI would replace it, not add to it. Looks once, at start; a host without NVIDIA
files gives nothing. Leaves out graphics (EGL, Vulkan, X).
Source: the file list of nvidia-container-toolkit's nvcdi.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from fairlead.driver.common.driver_root import BINARY_DIRS, LIBRARY_DIRS, DriverRoot

_BINARIES = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
)
# Where nvidia/cuda images and those made from them look for the driver's libraries.
LIBRARY_DIR = "/usr/local/nvidia/lib64"
_SOCKETS = ("run/nvidia-persistenced/socket", "run/nvidia-fabricmanager/socket")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A bind mount; `host_path` as the container runtime sees the host."""

    host_path: str
    container_path: str
    read_only: bool = True


def find(root: Path, driver_version: str | None, *, host_root: Path | None = None) -> tuple[Mount, ...]:
    """What there is of that driver version, sorted by container path.

    The driver is installed under `root` as this process sees it, and under `host_root` as the container runtime does.
    """
    if not driver_version:
        return ()
    tree = _Tree(root=root, host_root=host_root or root)
    for directory in LIBRARY_DIRS:
        tree.libraries(directory, driver_version)
    if not tree.found:
        return ()
    for directory in BINARY_DIRS:
        for name in _BINARIES:
            if not any(path.endswith(f"/{name}") for path in tree.found):
                tree.add(f"{directory}/{name}", Path.is_file)
    for path in sorted((root / "lib/firmware/nvidia" / driver_version).glob("gsp*.bin")):
        tree.add(str(path.relative_to(root)), Path.is_file)
    for socket in _SOCKETS:
        tree.add(socket, Path.is_socket)
    return tuple(tree.found[key] for key in sorted(tree.found))


class _Tree:
    """The driver's files under a root, as mounts by their path in the container."""

    def __init__(self, *, root: Path, host_root: Path) -> None:
        self.found: dict[str, Mount] = {}
        self._root = DriverRoot(root)
        self._host_root = host_root

    def add(self, path: str, there: Callable[[Path], bool]) -> None:
        """Bind the file at `path` under the root to the same path in the container."""
        target = self._root.resolve(path)
        if target is not None and there(self._root.path / target):
            self._bind(target, f"/{path}")

    def libraries(self, directory: str, driver_version: str) -> None:
        """Every library of that version in a directory, under each name that it has there."""
        # On merged-usr hosts /lib64 is /usr/lib64: the same library once.
        if self._root.resolve(directory) != directory or not (self._root.path / directory).is_dir():
            return
        names = sorted(path.name for path in (self._root.path / directory).iterdir() if ".so" in path.name)
        targets = {name: self._library(f"{directory}/{name}", driver_version) for name in names}
        if targets.get("libcuda.so.1") and "libcuda.so" not in targets:
            targets["libcuda.so"] = targets["libcuda.so.1"]  # what programs ask for that were not built against CUDA
        for name, target in targets.items():
            if target is not None:
                self._bind(target, f"/{directory}/{name}")
                self._bind(target, f"{LIBRARY_DIR}/{name}")

    def _library(self, path: str, driver_version: str) -> str | None:
        target = self._root.resolve(path)
        ours = target is not None and target.endswith(f".so.{driver_version}") and (self._root.path / target).is_file()
        return target if ours else None

    def _bind(self, target: str, inside: str) -> None:
        self.found[inside] = Mount(host_path=str(self._host_root / target), container_path=inside)
