"""What only the kernel reports about a GPU: NUMA node, PCIe root, kernel driver, capability devices.

Reads /sys, /proc and /dev under mount points that the caller chooses. Answers None where the kernel reports nothing.
Source: kernel ABI `sysfs-bus-pci`; NVIDIA's /proc/driver/nvidia.
"""

from __future__ import annotations

import re
from pathlib import Path

_PCI_ROOT = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}")


class Kernel:
    """`sys`, `proc` and `dev` are the mount points."""

    def __init__(self, *, sys: Path = Path("/sys"), proc: Path = Path("/proc"), dev: Path = Path("/dev")) -> None:
        self._sys = sys
        self._proc = proc
        self._dev = dev

    def numa_node(self, bus_id: str) -> int | None:
        """None also for the -1 of a machine without NUMA."""
        text = _read(self._sys / "bus/pci/devices" / bus_id / "numa_node")
        return int(text) if text is not None and text.isdigit() else None

    def pcie_root(self, bus_id: str) -> str | None:
        """The root complex above the device, such as `pci0000:64`: the first part of its path under /sys/devices."""
        link = self._sys / "bus/pci/devices" / bus_id
        try:
            path = link.resolve(strict=True).relative_to((self._sys / "devices").resolve())
        except (OSError, ValueError):
            return None
        return path.parts[0] if path.parts and _PCI_ROOT.fullmatch(path.parts[0]) else None

    def driver(self, bus_id: str) -> str | None:
        """The kernel driver that the device is bound to, such as `nvidia` or `vfio-pci`; None where there is none."""
        try:
            return (self._sys / "bus/pci/devices" / bus_id / "driver").readlink().name
        except OSError:
            return None

    def minor(self, bus_id: str) -> int | None:
        """The GPU's device minor, for where NVML does not report it."""
        text = _read(self._proc / "driver/nvidia/gpus" / bus_id / "information") or ""
        match = re.search(r"^Device Minor:\s*(\d+)", text, re.MULTILINE)
        return int(match[1]) if match else None

    def caps_major(self) -> int | None:
        """The major number of nvidia-caps devices."""
        match = re.search(r"^\s*(\d+) nvidia-caps$", _read(self._proc / "devices") or "", re.MULTILINE)
        return int(match[1]) if match else None

    def capability(self, minor: int, gi_id: int, ci_id: int | None = None) -> tuple[int, int] | None:
        """(minor, mode) of the device that grants access to a GPU instance, or to a compute instance of it."""
        path = self._proc / f"driver/nvidia/capabilities/gpu{minor}/mig/gi{gi_id}"
        if ci_id is not None:
            path /= f"ci{ci_id}"
        text = _read(path / "access") or ""
        device = re.search(r"^DeviceFileMinor:\s*(\d+)", text, re.MULTILINE)
        mode = re.search(r"^DeviceFileMode:\s*(\d+)", text, re.MULTILINE)
        return (int(device[1]), int(mode[1]) if mode else 0o444) if device else None

    def process_name(self, pid: int) -> str:
        """What the kernel calls the process; empty where it cannot be read, as in a PID namespace of one's own."""
        return (_read(self._proc / str(pid) / "comm") or "")[:64]

    def has_device(self, path: str) -> bool:
        """Whether /dev/… is there."""
        return (self._dev / path.removeprefix("/dev/")).exists()


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
