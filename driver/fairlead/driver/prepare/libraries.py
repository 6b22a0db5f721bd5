"""The files of NVIDIA's driver that a container needs: libraries, a few binaries, firmware, sockets.

They give a container a working libcuda without a vendor's tool or hook. A library is mounted once: at its path on the host,
which the loaders of images like the host search, under the name that programs ask for (libcuda.so.1), in place of the
ldconfig run of a hook. Images of other distributions find it in /usr/local/nvidia/lib64, which CUDA images have in
LD_LIBRARY_PATH: one more mount, a directory of links to the others, with all of a library's names. That variable stays the
image's: CDI would replace it. Each file belongs to a capability, and containers get those of the capabilities that their
claim asks for. Searched once, at start; a host without NVIDIA's files yields nothing.
Source: the file list of nvidia-container-toolkit's nvcdi; the capabilities of libnvidia-container.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final

from fairlead.api.capabilities import CAPABILITIES, Capability
from fairlead.driver.backend.types import Mount
from fairlead.driver.common.driver_root import BINARY_DIRS, LIBRARY_DIRS, DriverRoot

_BINARIES: Final[dict[str, Capability]] = {
    "nvidia-smi": "utility",
    "nvidia-debugdump": "utility",
    "nvidia-persistenced": "utility",
    "nvidia-cuda-mps-control": "compute",
    "nvidia-cuda-mps-server": "compute",
    "nvidia-imex": "compute",
    "nvidia-imex-ctl": "compute",
}
# In LD_LIBRARY_PATH of nvidia/cuda images and those built from them.
LIBRARY_DIR = "/usr/local/nvidia/lib64"
_SOCKETS = ("run/nvidia-persistenced/socket", "run/nvidia-fabricmanager/socket")
# A library of none of these is one of compute: what a later driver brings is there.
_LIBRARIES: Final[tuple[tuple[Capability, re.Pattern[str]], ...]] = (
    ("utility", re.compile(r"lib(nvidia-ml|nvidia-cfg|nvidia-nscq)\.")),
    ("video", re.compile(r"lib(nvcuvid|nvidia-encode|nvidia-opticalflow|vdpau_nvidia)\.")),
    (
        "graphics",
        re.compile(
            r"lib(EGL_|GLES|GLX_|nvoptix|nvidia-(api|cbl|egl|fbc|gl|gtk|ifr|ngx|present|raytracing|rtcore|tls|vksc"
            r"|vulkan|wayland))"
        ),
    ),
)
_SONAME = re.compile(r"\.so\.\d+")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DriverFiles:
    """`mounts` by container path, each with its capability; None: it comes with any. `links` has the names in LIBRARY_DIR,
    each with the path of a mount; `links_dir` is where they are, as the container runtime sees the host.
    """

    mounts: tuple[tuple[Mount, Capability | None], ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    links_dir: Path | None = None

    def of(self, capabilities: Iterable[str]) -> tuple[Mount, ...]:
        """What a container with these capabilities gets, sorted by container path. Graphics and video rest on compute."""
        wanted = {None, *capabilities}
        if wanted & {"graphics", "video"}:
            wanted.add("compute")
        found = [mount for mount, capability in self.mounts if capability in wanted]
        if found and self.links_dir is not None:
            found.append(Mount(host_path=str(self.links_dir), container_path=LIBRARY_DIR))
        return tuple(sorted(found, key=lambda mount: mount.container_path))

    def linked(self, directory: Path) -> DriverFiles:
        """The same with its links written into `directory`, which the host has at the same path. Raises OSError.

        Links that are right stay: containers of an earlier start have the directory.
        """
        if not self.links:
            return self
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        wanted = dict(self.links)
        for path in directory.iterdir():
            if wanted.get(path.name) == _target(path):
                del wanted[path.name]
            else:
                path.unlink()
        for name, target in wanted.items():
            (directory / name).symlink_to(target)
        return dataclasses.replace(self, links_dir=directory)


NO_FILES: Final = DriverFiles()


def _target(path: Path) -> str | None:
    with contextlib.suppress(OSError):
        return str(path.readlink())
    return None


def find(root: Path, driver_version: str | None, *, host_root: Path | None = None) -> DriverFiles:
    """The files of that driver version.

    The driver is installed under `root` as this process sees it, and under `host_root` as the container runtime sees
    it.
    """
    if not driver_version:
        return NO_FILES
    tree = _Tree(root=root, host_root=host_root or root)
    for directory in LIBRARY_DIRS:
        tree.libraries(directory, driver_version)
    if not tree.found:
        return NO_FILES
    for directory in BINARY_DIRS:
        for name, capability in _BINARIES.items():
            if not any(path.endswith(f"/{name}") for path in tree.found):
                tree.add(f"{directory}/{name}", Path.is_file, capability)
    for path in sorted((root / "lib/firmware/nvidia" / driver_version).glob("gsp*.bin")):
        tree.add(str(path.relative_to(root)), Path.is_file, None)
    for socket in _SOCKETS:
        tree.add(socket, Path.is_socket, None)
    return DriverFiles(
        mounts=tuple(tree.found[key] for key in sorted(tree.found)), links=tuple(sorted(tree.links.items()))
    )


class _Tree:
    """Collects the driver's files under a root, as mounts by container path."""

    def __init__(self, *, root: Path, host_root: Path) -> None:
        self.found: dict[str, tuple[Mount, Capability | None]] = {}
        self.links: dict[str, str] = {}
        self._root = DriverRoot(root)
        self._host_root = host_root

    def add(self, path: str, exists: Callable[[Path], bool], capability: Capability | None) -> None:
        """Mount the file at `path` under the root at the same path in the container."""
        target = self._root.resolve(path)
        if target is not None and exists(self._root.path / target):
            self._mount(target, f"/{path}", capability)

    def libraries(self, directory: str, driver_version: str) -> None:
        """Every library of that version in a directory, once, and links from all of its names."""
        # On merged-usr hosts /lib64 is a link to /usr/lib64, which is searched anyway.
        if self._root.resolve(directory) != directory or not (self._root.path / directory).is_dir():
            return
        names = sorted(path.name for path in (self._root.path / directory).iterdir() if ".so" in path.name)
        by_target: dict[str, list[str]] = {}
        for name in names:
            if (target := self._library(f"{directory}/{name}", driver_version)) is not None:
                by_target.setdefault(target, []).append(name)
        for target, found in by_target.items():
            name = _asked_for(found)
            self._mount(target, f"/{directory}/{name}", _capability(name))
            if name == "libcuda.so.1":  # programs that load CUDA at run time ask for it without the number
                found.append("libcuda.so")
                self._mount(target, f"/{directory}/libcuda.so", "compute")
            for each in found:
                self.links.setdefault(each, f"/{directory}/{name}")

    def _library(self, path: str, driver_version: str) -> str | None:
        target = self._root.resolve(path)
        ours = target is not None and target.endswith(f".so.{driver_version}") and (self._root.path / target).is_file()
        return target if ours else None

    def _mount(self, target: str, container_path: str, capability: Capability | None) -> None:
        mount = Mount(host_path=str(self._host_root / target), container_path=container_path)
        self.found[container_path] = mount, capability


def _asked_for(names: Collection[str]) -> str:
    """The name in a library's SONAME: with one number (libcuda.so.1), else with the driver's version."""
    return min(names, key=lambda name: (not _SONAME.fullmatch(name[name.index(".so") :]), -len(name), name))


def _capability(name: str) -> Capability:
    found = next((capability for capability, pattern in _LIBRARIES if pattern.match(name)), "compute")
    assert found in CAPABILITIES
    return found
