"""What only the kernel reports about a GPU: NUMA node, PCIe root, kernel driver, capability devices.

Reads /sys, /proc and /dev under mount points that the caller chooses. Answers None where the kernel reports nothing.
Source: kernel ABI `sysfs-bus-pci`; NVIDIA's /proc/driver/nvidia.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from fairlead.driver.backend import links
from fairlead.driver.backend.types import PciDevice, PciTree

_BUS_ID = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
_PCI_ROOT = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}")


class Kernel:
    """`sys`, `proc` and `dev` are the mount points."""

    def __init__(self, *, sys: Path = Path("/sys"), proc: Path = Path("/proc"), dev: Path = Path("/dev")) -> None:
        self._sys = sys
        self._proc = proc
        self._dev = dev

    def numa_node(self, bus_id: str) -> int | None:
        """Where the kernel says -1, as in many virtual machines: the only node of the machine, or None where it has several."""
        text = _read(self._sys / "bus/pci/devices" / bus_id / "numa_node")
        if text is None or text.isdigit():
            return None if text is None else int(text)
        nodes = self._numa_nodes()
        return nodes[0] if len(nodes) == 1 else None

    def _numa_nodes(self) -> list[int]:
        paths = (self._sys / "devices/system/node").glob("node[0-9]*")
        return sorted(int(path.name[4:]) for path in paths if path.name[4:].isdigit())

    def pcie_root(self, bus_id: str) -> str | None:
        """The root complex above the device, such as `pci0000:64`: the first part of its path under /sys/devices."""
        link = self._sys / "bus/pci/devices" / bus_id
        try:
            path = link.resolve(strict=True).relative_to((self._sys / "devices").resolve())
        except (OSError, ValueError):
            return None
        return path.parts[0] if path.parts and _PCI_ROOT.fullmatch(path.parts[0]) else None

    def pci_tree(self, bus_ids: Collection[str]) -> PciTree:
        """These GPUs, the network cards, and the switches above; CPUs of the NUMA nodes.

        Of a switch the upstream port stands for all of it, as NCCL names it: each second bridge above a device.
        """
        found: dict[str, PciDevice] = {}
        for bus_id in sorted({*bus_ids, *self._network_cards()}):
            path = self._pci_path(bus_id)
            while path and path[-1] not in found:
                parent = path[-3] if len(path) > 2 else None
                found[path[-1]] = self._pci_device(path[-1], parent)
                path = path[:-2]
        maps = {node: _read(self._sys / f"devices/system/node/node{node}/cpumap") for node in self._numa_nodes()}
        return PciTree(
            devices=tuple(found[bus_id] for bus_id in sorted(found)),
            cpus={node: text for node, text in maps.items() if text},
        )

    def rails(self, bus_ids: Collection[str]) -> dict[str, int]:
        """By bus ID of a GPU, the rail that its network card is on; without GPUs for which none is known."""
        pci = self._sys / "bus/pci/devices"
        cards = [each for each in self._network_cards() if (pci / each / "infiniband").is_dir()]
        return links.rails_by_card(self.pci_tree(bus_ids), bus_ids, cards) if cards else {}

    def _network_cards(self) -> list[str]:
        devices = sorted((self._sys / "bus/pci/devices").glob("*"))
        return [each.name for each in devices if (_read(each / "class") or "").startswith(("0x0200", "0x0207"))]

    def _pci_path(self, bus_id: str) -> list[str]:
        """The bus IDs from below the root complex to the device; empty where the kernel does not know it."""
        try:
            path = (self._sys / "bus/pci/devices" / bus_id).resolve(strict=True)
        except OSError:
            return []
        return [part for part in path.parts if _BUS_ID.fullmatch(part)]

    def _pci_device(self, bus_id: str, parent: str | None) -> PciDevice:
        directory = (self._sys / "bus/pci/devices" / bus_id).resolve()
        return PciDevice(
            bus_id=bus_id,
            parent=parent,
            numa_node=self.numa_node(bus_id),
            kind=_read(directory / "class"),
            vendor=_read(directory / "vendor"),
            device=_read(directory / "device"),
            link_speed=_least(directory, "max_link_speed"),
            link_width=_least(directory, "max_link_width"),
        )

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


def _least(directory: Path, name: str) -> str | None:
    """The device's figure or that of the port above it, whichever is less."""
    known = [text for text in (_read(directory / name), _read(directory.parent / name)) if text and text[0].isdigit()]
    return min(known, key=lambda text: float(text.split()[0]), default=None)
