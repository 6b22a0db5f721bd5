"""The files of NVIDIA's driver that a container needs: libraries, a few binaries, firmware, sockets.

They give a container a working libcuda without a vendor's tool or hook. A library is mounted under its own name and
under the names that the loader is asked for (libcuda.so.1), in place of the symlinks and the ldconfig run of a hook.
Each is mounted twice: at its path on the host, which the loaders of images like the host search; and in
/usr/local/nvidia/lib64, which CUDA images of any distribution have in LD_LIBRARY_PATH. That variable stays the image's:
CDI would replace it. Searched once, at start; a host without NVIDIA's files yields nothing. Graphics (EGL, Vulkan, X)
are left out.
Source: the file list of nvidia-container-toolkit's nvcdi.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fairlead.driver.backend.types import Mount
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
# In LD_LIBRARY_PATH of nvidia/cuda images and those built from them.
LIBRARY_DIR = "/usr/local/nvidia/lib64"
_SOCKETS = ("run/nvidia-persistenced/socket", "run/nvidia-fabricmanager/socket")


def find(root: Path, driver_version: str | None, *, host_root: Path | None = None) -> tuple[Mount, ...]:
    """The mounts for that driver version, sorted by container path.

    The driver is installed under `root` as this process sees it, and under `host_root` as the container runtime sees
    it.
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
    """Collects the driver's files under a root, as mounts by container path."""

    def __init__(self, *, root: Path, host_root: Path) -> None:
        self.found: dict[str, Mount] = {}
        self._root = DriverRoot(root)
        self._host_root = host_root

    def add(self, path: str, exists: Callable[[Path], bool]) -> None:
        """Mount the file at `path` under the root at the same path in the container."""
        target = self._root.resolve(path)
        if target is not None and exists(self._root.path / target):
            self._mount(target, f"/{path}")

    def libraries(self, directory: str, driver_version: str) -> None:
        """Every library of that version in a directory, under each of its names."""
        # On merged-usr hosts /lib64 is a link to /usr/lib64, which is searched anyway.
        if self._root.resolve(directory) != directory or not (self._root.path / directory).is_dir():
            return
        names = sorted(path.name for path in (self._root.path / directory).iterdir() if ".so" in path.name)
        targets = {name: self._library(f"{directory}/{name}", driver_version) for name in names}
        if targets.get("libcuda.so.1") and "libcuda.so" not in targets:
            targets["libcuda.so"] = targets["libcuda.so.1"]  # programs that load CUDA at run time ask for it
        for name, target in targets.items():
            if target is not None:
                self._mount(target, f"/{directory}/{name}")
                self._mount(target, f"{LIBRARY_DIR}/{name}")

    def _library(self, path: str, driver_version: str) -> str | None:
        target = self._root.resolve(path)
        ours = target is not None and target.endswith(f".so.{driver_version}") and (self._root.path / target).is_file()
        return target if ours else None

    def _mount(self, target: str, container_path: str) -> None:
        self.found[container_path] = Mount(host_path=str(self._host_root / target), container_path=container_path)
