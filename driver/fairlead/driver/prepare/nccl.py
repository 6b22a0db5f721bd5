"""The topology of a claim's GPUs as NCCL reads it from NCCL_TOPO_FILE. Pure.

    <system version="1">
      <cpu numaid="0" affinity="0000ffff" arch="x86_64">
        <pci busid="0000:16:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
          <pci busid="0000:18:00.0" class="0x030200" …><gpu sm="90"/></pci>
          <pci busid="0000:19:00.0" class="0x020700" …/>

NCCL takes what the file says, and finds out itself what it leaves out. So what depends on the process is left out: a GPU's
`dev` and `rank`, and `<nic>`/`<net>`, which NCCL hangs below the card's `<pci>`. NVLinks are written where two GPUs of the claim
are joined directly and by no other; over switches NCCL asks NVML for the far ends, which a wrong list would keep it from.
Source: NCCL, src/graph/xml.cc and topo.cc (2.2x): tags, attributes, which of them win over /sys.
"""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import Final

from fairlead.driver.backend.types import Gpu, PciDevice, PciTree

VERSION: Final = "1"
CONTAINER_FILE: Final = "/var/run/fairlead/nccl-topology.xml"
_GPU_CLASS: Final = "0x030200"


def topology(gpus: Sequence[Gpu], tree: PciTree, *, machine: str) -> bytes:
    """The file for these GPUs and all network cards; GPUs without a bus ID are left out. `machine` as uname has it.

    A GPU that the tree lacks stands below its NUMA node; one whose NUMA node is not known, below node -1, as NCCL writes it.
    Where the kernel does not know the node of a GPU or of the switches above it, it is the one that the GPU reports.
    """
    system = ET.Element("system", version=VERSION)
    by_bus = {gpu.pci_bus_id: gpu for gpu in gpus if gpu.pci_bus_id is not None}
    known = {device.bus_id: device for device in tree.devices}
    for bus_id, gpu in by_bus.items():
        known.setdefault(bus_id, PciDevice(bus_id=bus_id, kind=_GPU_CLASS))
        at: str | None = bus_id
        while at in known and at is not None and known[at].numa_node is None:
            known[at] = dataclasses.replace(known[at], numa_node=gpu.numa_node)
            at = known[at].parent
    made: dict[str, ET.Element] = {}
    cpus: dict[int, ET.Element] = {}
    for node in sorted({_node(device) for device in known.values() if device.parent not in known}):
        cpus[node] = ET.SubElement(system, "cpu", numaid=str(node))
        if node in tree.cpus:
            cpus[node].set("affinity", tree.cpus[node])
        if arch := {"x86_64": "x86_64", "aarch64": "arm64", "ppc64le": "ppc64"}.get(machine):
            cpus[node].set("arch", arch)
    for bus_id in sorted(known, key=lambda each: (_depth(each, known), each)):
        device = known[bus_id]
        above = made[device.parent] if device.parent in made and device.parent is not None else cpus[_node(device)]
        made[bus_id] = ET.SubElement(above, "pci", _attributes(device))
        if bus_id in by_bus:
            _add_gpu(made[bus_id], by_bus[bus_id], by_bus)
    ET.indent(system)
    return ET.tostring(system) + b"\n"


def _attributes(device: PciDevice) -> dict[str, str]:
    fields = {
        "busid": device.bus_id,
        "class": device.kind,
        "vendor": device.vendor,
        "device": device.device,
        "link_speed": device.link_speed,
        "link_width": device.link_width,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _add_gpu(pci: ET.Element, gpu: Gpu, by_bus: dict[str, Gpu]) -> None:
    element = ET.SubElement(pci, "gpu")
    if gpu.cuda_compute_capability:
        element.set("sm", gpu.cuda_compute_capability.replace(".", ""))
    if gpu.nvlink is None or gpu.nvlink.switched or len(gpu.nvlink.peers) != 1:
        return
    for bus_id, peer in sorted(by_bus.items()):
        if peer.minor in gpu.nvlink.peers:
            ET.SubElement(element, "nvlink", target=bus_id, count=str(gpu.nvlink.links), tclass=_GPU_CLASS)


def _node(device: PciDevice) -> int:
    return -1 if device.numa_node is None else device.numa_node


def _depth(bus_id: str, known: dict[str, PciDevice]) -> int:
    depth, parent = 0, known[bus_id].parent
    while parent in known and parent is not None:
        depth, parent = depth + 1, known[parent].parent
    return depth
