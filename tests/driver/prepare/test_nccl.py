"""The topology file for NCCL: PCI tree and NUMA nodes of the claim's GPUs and of the network cards, mounted when asked for."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from fairlead.driver.backend.nvml.sysfs import Kernel
from fairlead.driver.backend.types import Gpu, NvLink, PciTree
from fairlead.driver.prepare import metadata
from tests.support.driver.claims import claim, gpu_config
from tests.support.driver.node import Node

SWITCHED = NvLink(version=4, links=18, peers=(1,), switched=True)


def gpu(minor: int, bus_id: str | None, *, nvlink: NvLink | None = None, numa_node: int | None = 0) -> Gpu:
    return Gpu(
        minor=minor,
        uuid=f"GPU-{minor}",
        pci_bus_id=bus_id,
        cuda_compute_capability="9.0",
        nvlink=nvlink,
        numa_node=numa_node,
    )


def read(content: bytes) -> ET.Element:
    root = ET.fromstring(content)
    assert (root.tag, root.get("version")) == ("system", "1")
    # What NCCL's parser takes: these tags, each below those.
    below = {"system": {"cpu"}, "cpu": {"pci"}, "pci": {"pci", "gpu"}, "gpu": {"nvlink"}, "nvlink": set()}
    for element in root.iter():
        assert {each.tag for each in element} <= below[element.tag]
    assert all(set(each.keys()) >= {"numaid"} for each in root.iter("cpu"))
    assert all(set(each.keys()) >= {"busid"} for each in root.iter("pci"))
    assert all(not {"dev", "rank"} & set(each.keys()) for each in root.iter("gpu"))
    return root


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def plug(root: Path, path: str, *, kind: str, speed: str = "32.0 GT/s PCIe", width: int = 16, numa: int = 0) -> None:
    """A PCI device below others, as a path of bus IDs under a root complex."""
    device = root / "devices" / path
    for name, text in {"class": kind, "vendor": "0x10de", "device": "0x2330"}.items():
        write(device / name, text)
    write(device / "max_link_speed", speed)
    write(device / "max_link_width", str(width))
    write(device / "numa_node", str(numa))
    link = root / "bus/pci/devices" / device.name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(device)


@pytest.fixture
def sys_path(tmp_path: Path) -> Path:
    """A GPU and a network card on one switch, and a second GPU at a port of its own on the other socket."""
    bridge = "0x060400"
    plug(tmp_path, "pci0000:15/0000:15:01.0", kind=bridge)
    plug(tmp_path, "pci0000:15/0000:15:01.0/0000:16:00.0", kind=bridge)
    plug(tmp_path, "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0", kind=bridge)
    plug(tmp_path, "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0", kind=bridge, speed="16.0 GT/s PCIe", width=8)
    plug(tmp_path, "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0", kind="0x030200")
    plug(tmp_path, "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:19:00.0", kind="0x020700")
    plug(tmp_path, "pci0000:80/0000:80:01.0", kind=bridge, numa=1)
    plug(tmp_path, "pci0000:80/0000:80:01.0/0000:81:00.0", kind="0x030200", numa=1)
    write(tmp_path / "devices/system/node/node0/cpumap", "00000000,0000ffff")
    write(tmp_path / "devices/system/node/node1/cpumap", "00000000,ffff0000")
    return tmp_path


def test_gpus_and_network_cards_stand_below_their_switch_and_their_socket(sys_path: Path) -> None:
    tree = Kernel(sys=sys_path).pci_tree(["0000:18:00.0", "0000:81:00.0"])
    root = read(
        metadata.topology([gpu(0, "0000:18:00.0"), gpu(1, "0000:81:00.0", numa_node=1)], tree, machine="x86_64")
    )
    first, second = root.findall("cpu")
    assert (first.get("numaid"), first.get("affinity"), first.get("arch")) == ("0", "00000000,0000ffff", "x86_64")
    [switch] = first
    assert (switch.get("busid"), switch.get("class")) == ("0000:16:00.0", "0x060400")
    assert [(each.get("busid"), each.get("link_speed"), each.get("link_width")) for each in switch] == [
        ("0000:18:00.0", "32.0 GT/s PCIe", "16"),
        ("0000:19:00.0", "16.0 GT/s PCIe", "8"),  # the port's, which is slower than the card
    ]
    assert [each.tag for each in switch[0]] == ["gpu"]
    assert switch[0][0].get("sm") == "90"
    assert len(switch[1]) == 0  # NCCL adds <nic> from its own plugin
    [alone] = second
    assert (second.get("numaid"), alone.get("busid")) == ("1", "0000:81:00.0")


def test_links_are_written_between_two_that_a_bridge_joins_and_left_to_nccl_over_switches() -> None:
    pair = [
        gpu(0, "0000:18:00.0", nvlink=NvLink(version=3, links=12, peers=(1,))),
        gpu(1, "0000:19:00.0", nvlink=NvLink(version=3, links=12, peers=(0,))),
    ]
    links = list(read(metadata.topology(pair, PciTree(), machine="x86_64")).iter("nvlink"))
    assert [dict(each.items()) for each in links] == [
        {"target": "0000:19:00.0", "count": "12", "tclass": "0x030200"},
        {"target": "0000:18:00.0", "count": "12", "tclass": "0x030200"},
    ]
    assert (
        list(read(metadata.topology(pair[:1], PciTree(), machine="x86_64")).iter("nvlink")) == []
    )  # the peer is another's
    switched = [gpu(0, "0000:18:00.0", nvlink=SWITCHED), gpu(1, "0000:19:00.0", nvlink=SWITCHED)]
    assert list(read(metadata.topology(switched, PciTree(), machine="x86_64")).iter("nvlink")) == []


def test_what_the_machine_hides_is_left_out() -> None:
    content = metadata.topology([gpu(0, "0001:00:00.0", numa_node=None), gpu(1, None)], PciTree(), machine="riscv64")
    root = read(content)
    [cpu] = root
    assert dict(cpu.items()) == {"numaid": "-1"}
    assert [dict(each.items()) for each in root.iter("pci")] == [{"busid": "0001:00:00.0", "class": "0x030200"}]


def cdi_file(node: Node, uid: str) -> Path:
    return node.path / f"cdi/k8s.gpu.fairlead.dev-claim_{uid}.json"


def spec_of(node: Node, uid: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cdi_file(node, uid).read_bytes())
    return found


def test_a_claim_that_asks_for_it_gets_the_file_and_the_variable_until_it_ends(node: Node) -> None:
    driver = node.start()
    driver.prepare(claim("u1", "gpu-0", "gpu-1", config=[gpu_config(ncclTopology=True)]))
    driver.prepare(claim("u2", "gpu-2"))
    path = node.path / "metadata/u1/nccl-topology.xml"
    assert len(list(read(path.read_bytes()).iter("gpu"))) == 2
    for device in spec_of(node, "u1")["devices"]:
        edits = device["containerEdits"]
        assert f"NCCL_TOPO_FILE={metadata.CONTAINER_FILE}" in edits["env"]
        [mount] = [each for each in edits["mounts"] if each["containerPath"] == metadata.CONTAINER_FILE]
        assert (mount["hostPath"], "ro" in mount["options"]) == (str(path), True)
    assert "NCCL_TOPO_FILE" not in str(spec_of(node, "u2"))
    again = node.start()  # the record says it, so a CDI file that was lost is written with it
    again.recover()
    cdi_file(node, "u1").unlink()
    again.prepare(claim("u1", "gpu-0", "gpu-1", config=[gpu_config(ncclTopology=True)]))
    assert "NCCL_TOPO_FILE" in str(spec_of(node, "u1"))
    again.unprepare("u1")
    assert not path.exists()


def test_a_gpu_and_switches_of_which_the_kernel_knows_no_node_stand_below_that_of_the_gpu(tmp_path: Path) -> None:
    root = tmp_path / "sys"
    plug(root, "pci0000:00/0000:00:01.0", kind="0x060400", numa=-1)
    plug(root, "pci0000:00/0000:00:01.0/0000:01:00.0", kind="0x060400", numa=-1)
    plug(root, "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0", kind="0x030200", numa=-1)
    for node in range(2):
        write(root / f"devices/system/node/node{node}/cpumap", f"0000000{node + 1}")
    tree = Kernel(sys=root).pci_tree(["0000:02:00.0"])
    [cpu] = read(metadata.topology([gpu(0, "0000:02:00.0", numa_node=1)], tree, machine="x86_64"))
    assert (cpu.get("numaid"), cpu.get("affinity")) == ("1", "00000002")
