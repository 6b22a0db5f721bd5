"""The files that tell a claim's containers what its devices are: metadata for programs (KEP-5304), a topology for NCCL.

A program reads its devices' attributes without the API: one file per claim and request, mounted read-only at the path
that Kubernetes defines. A file is a stream of JSON objects with the same content in each version of the schema, newest
first; a reader takes the first version that it supports. When disabled, nothing is written or mounted, but files are still
removed.
Source: k8s.io/dynamic-resource-allocation/api/metadata; the Kubernetes task page "Access DRA device metadata".

NCCL reads the topology of the claim's GPUs from NCCL_TOPO_FILE:

    <system version="1">
      <cpu numaid="0" affinity="0000ffff" arch="x86_64">
        <pci busid="0000:16:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
          <pci busid="0000:18:00.0" class="0x030200" …><gpu sm="90"/></pci>
          <pci busid="0000:19:00.0" class="0x020700" …/>

It takes what the file says, and finds out itself what it leaves out. So what depends on the process is left out: a GPU's
`dev` and `rank`, and `<nic>`/`<net>`, which NCCL hangs below the card's `<pci>`. NVLinks are written where two GPUs of the claim
are joined directly and by no other; over switches NCCL asks NVML for the far ends, which a wrong list would keep it from.
Source: NCCL, src/graph/xml.cc and topo.cc (2.2x): tags, attributes, which of them win over /sys.
"""

from __future__ import annotations

import dataclasses
import errno
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from fairlead.api import names
from fairlead.driver.backend.types import Gpu, Mount, PciDevice, PciTree
from fairlead.driver.common import files, trees
from fairlead.driver.prepare.records import ClaimRecord, DeviceRecord, valid_uid
from fairlead.kube.resource import Device

VERSIONS: Final = ("metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1")
CONTAINER_DIR: Final = "/var/run/kubernetes.io/dra-device-attributes"
FILE: Final = f"{names.DRIVER}-metadata.json"


class Metadata:
    """The files under one directory; `published` gives the devices in the slices, by name."""

    def __init__(self, directory: Path, *, enabled: bool, published: Callable[[], Mapping[str, Device]]) -> None:
        self._directory = directory
        self._enabled = enabled
        self._published = published

    def write(self, record: ClaimRecord) -> None:
        """Raises OSError."""
        if not self._enabled:
            return
        published = self._published()
        for request, devices in _by_request(record).items():
            files.write_in_place(self._path(record.uid, request), stream(record, devices, published))

    def write_topology(self, uid: str, content: bytes) -> None:
        """NCCL's topology file of a claim that asked for one. Raises OSError."""
        files.write_in_place(self._topology(uid), content)

    def topology_mount(self, uid: str) -> Mount:
        return Mount(host_path=str(self._topology(uid)), container_path=CONTAINER_FILE)

    def _topology(self, uid: str) -> Path:
        return self._directory / uid / "nccl-topology.xml"

    def remove(self, uid: str) -> bool:
        """Raises OSError; False when there was none."""
        path = self._directory / uid
        if not path.exists():
            return False
        if not trees.remove_tree(path):
            raise OSError(errno.ETIMEDOUT, "not removed in time", str(path))
        return True

    def uids(self) -> list[str]:
        """UIDs of the claims that have files, sorted."""
        return sorted(path.name for path in self._directory.glob("*") if valid_uid(path.name) and path.is_dir())

    def mounts(self, record: ClaimRecord, device: DeviceRecord) -> list[Mount]:
        """For a container with this device: the file of the device's request."""
        path = self._path(record.uid, device.request_name)
        if not self._enabled or not path.exists():
            return []
        return [Mount(host_path=str(path), container_path=container_path(record, device.request_name))]

    def _path(self, uid: str, request: str) -> Path:
        return self._directory / uid / f"{request}.json"


def container_path(record: ClaimRecord, request: str) -> str:
    """By the claim's name, or by the pod's name for it where it was created from a template."""
    where = f"resourceclaimtemplates/{record.pod_claim}" if record.pod_claim else f"resourceclaims/{record.name}"
    return f"{CONTAINER_DIR}/{where}/{request}/{FILE}"


def stream(record: ClaimRecord, devices: list[DeviceRecord], published: Mapping[str, Device]) -> bytes:
    """The file's content: one object in each version of the schema."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for device in devices:
        by_name.setdefault(device.request, []).append(_device(device, published.get(device.device)))
    content: dict[str, Any] = {
        "metadata": {"name": record.name, "namespace": record.namespace, "uid": record.uid, "generation": 1},
        **({"podClaimName": record.pod_claim} if record.pod_claim else {}),
        "requests": [{"name": name, "devices": found} for name, found in by_name.items()],
    }
    objects = ({"apiVersion": version, "kind": "DeviceMetadata", **content} for version in VERSIONS)
    return b"".join(msgspec.json.format(msgspec.json.encode(each)) + b"\n" for each in objects)


def _device(device: DeviceRecord, published: Device | None) -> dict[str, Any]:
    attributes = msgspec.to_builtins(published.attributes) if published is not None else {}
    if device.mig is not None and device.mig.uuid:
        # A MIG device that is created on demand has no UUID in the slices.
        attributes["uuid"] = {"string": device.mig.uuid}
    made: dict[str, Any] = {"driver": names.DRIVER, "pool": device.pool, "name": device.device}
    if attributes:
        made["attributes"] = dict(sorted(attributes.items()))
    return made


def _by_request(record: ClaimRecord) -> dict[str, list[DeviceRecord]]:
    found: dict[str, list[DeviceRecord]] = {}
    for device in record.devices:
        found.setdefault(device.request_name, []).append(device)
    return found


# -- the topology file for NCCL ----------------------------------------------------------------------------------------

TOPOLOGY_VERSION: Final = "1"
CONTAINER_FILE: Final = "/var/run/fairlead/nccl-topology.xml"
_GPU_CLASS: Final = "0x030200"


def topology(gpus: Sequence[Gpu], tree: PciTree, *, machine: str) -> bytes:
    """The file for these GPUs and all network cards; GPUs without a bus ID are left out. `machine` as uname has it.

    A GPU that the tree lacks stands below its NUMA node; one whose NUMA node is not known, below node -1, as NCCL writes it.
    Where the kernel does not know the node of a GPU or of the switches above it, it is the one that the GPU reports.
    """
    system = ET.Element("system", version=TOPOLOGY_VERSION)
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
