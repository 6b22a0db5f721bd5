"""The kernel's side of a fake NVML: the node's /sys, /proc and /dev as files under a test's root."""

from __future__ import annotations

from pathlib import Path

from fairlead.driver.backend.types import Gpu

CAPS_MAJOR = 237


class FakeKernel:
    """Without `root` there are no files, and nothing is written. `virtual`: of a PCI device the kernel knows no NUMA node, and says -1."""

    def __init__(self, root: Path | None, *, numa_nodes: int = 2, virtual: bool = False) -> None:
        self._root = root
        self._virtual = virtual
        if root is not None:
            _put(root / "proc/devices", f"Character devices:\n195 nvidia\n{CAPS_MAJOR} nvidia-caps\n")
            for node in range(numa_nodes):
                _put(root / f"sys/devices/system/node/node{node}/cpumap", f"{0xFFFF << (16 * node):08x}\n")
            for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"):
                _put(root / "dev" / name, "")

    def add_gpu(self, gpu: Gpu) -> None:
        if self._root is None or gpu.pci_bus_id is None:
            return
        above = self._root / "sys/devices" / (gpu.pcie_root or "pci0000:00") / "0000:00:01.0"
        if gpu.rail is not None:  # behind a switch with an InfiniBand card
            domain = gpu.pci_bus_id.partition(":")[0]
            switch = above / f"{domain}:0d:00.0"
            _put(self._plug(switch / f"{domain}:0e:01.0" / f"{domain}:0f:00.0") / "class", "0x020700\n")
            (switch / f"{domain}:0e:01.0" / f"{domain}:0f:00.0" / "infiniband").mkdir()
            above = switch / f"{domain}:0e:00.0"
        device = self._plug(above / gpu.pci_bus_id)
        _put(device / "numa_node", f"{-1 if gpu.numa_node is None or self._virtual else gpu.numa_node}\n")
        _put(
            self._root / "proc/driver/nvidia/gpus" / gpu.pci_bus_id / "information",
            f"Model: \t\t {gpu.product_name}\nDevice Minor: \t {gpu.minor}\n",
        )

    def _plug(self, device: Path) -> Path:
        assert self._root is not None
        device.mkdir(parents=True)
        link = self._root / "sys/bus/pci/devices" / device.name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(device)
        return device

    def bind(self, gpu: Gpu, driver: str) -> None:
        """Bind the GPU to another kernel driver."""
        assert self._root is not None
        assert gpu.pci_bus_id is not None
        target = self._root / "sys/bus/pci/drivers" / driver
        target.mkdir(parents=True, exist_ok=True)
        (self._root / "sys/bus/pci/devices" / gpu.pci_bus_id / "driver").symlink_to(target)

    def grant(self, minor: int, gi_id: int, ci_id: int | None) -> None:
        """Add the capability of a GPU instance, or of a compute instance in it."""
        if (path := self._access(minor, gi_id, ci_id)) is not None:
            number = 3 + minor * 135 + gi_id * 9 + (0 if ci_id is None else 1 + ci_id)
            _put(path, f"DeviceFileMinor: {number}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")

    def revoke(self, minor: int, gi_id: int, ci_id: int | None) -> None:
        if (path := self._access(minor, gi_id, ci_id)) is not None:
            path.unlink(missing_ok=True)

    def _access(self, minor: int, gi_id: int, ci_id: int | None) -> Path | None:
        if self._root is None:
            return None
        path = self._root / f"proc/driver/nvidia/capabilities/gpu{minor}/mig/gi{gi_id}"
        return (path if ci_id is None else path / f"ci{ci_id}") / "access"


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
