"""Which rail each GPU is on: from the PCIe switches of the machine, or as the operator says."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.driver.backend import links, profiles
from fairlead.driver.backend.nvml.sysfs import Kernel
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.backend.types import PciDevice, PciTree
from fairlead.driver.options import RAILS
from fairlead.driver.publish import slices
from fairlead.kube.resource import DeviceAttribute


def tree(**parents: str | None) -> PciTree:
    return PciTree(devices=tuple(PciDevice(bus_id=one, parent=switch, numa_node=0) for one, switch in parents.items()))


def test_each_gpu_is_on_the_rail_of_the_card_behind_its_switch() -> None:
    known = tree(**{"18:00.0": "s1", "19:00.0": "s1", "3a:00.0": "s2", "3b:00.0": "s2", "90:00.0": "s9"})
    assert links.rails_by_card(known, ["18:00.0", "3a:00.0"], ["19:00.0", "3b:00.0", "90:00.0"]) == {
        "18:00.0": 0,
        "3a:00.0": 1,
    }


def test_a_card_with_two_ports_is_one_rail() -> None:
    known = tree(**{"18:00.0": "s1", "19:00.0": "s1", "19:00.1": "s1", "3a:00.0": "s2", "3b:00.0": "s2"})
    found = links.rails_by_card(known, ["18:00.0", "3a:00.0"], ["19:00.0", "19:00.1", "3b:00.0"])
    assert found == {"18:00.0": 0, "3a:00.0": 1}


def test_several_behind_one_switch_are_paired_in_order() -> None:
    known = tree(**{f"{one}:00.0": "s" for one in ("10", "11", "12", "13", "20", "21")})
    gpus, cards = ["10:00.0", "11:00.0", "12:00.0", "13:00.0"], ["20:00.0", "21:00.0"]
    assert list(links.rails_by_card(known, gpus, cards).values()) == [0, 0, 1, 1]
    assert list(links.rails_by_card(known, gpus[:2], cards).values()) == [0, 1]
    assert set(links.rails_by_card(known, gpus, cards[:1]).values()) == {0}


def test_a_gpu_without_a_switch_or_a_card_has_none() -> None:
    known = tree(**{"18:00.0": None, "19:00.0": None, "3a:00.0": "s2"})
    assert links.rails_by_card(known, ["18:00.0", "3a:00.0"], ["19:00.0"]) == {}


def plug(root: Path, path: str, *, kind: str, rdma: bool = False) -> None:
    device = root / "devices" / path
    device.mkdir(parents=True)
    (device / "class").write_text(kind)
    if rdma:
        (device / "infiniband").mkdir()
    link = root / "bus/pci/devices" / device.name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(device)


def test_as_the_kernel_shows_them(tmp_path: Path) -> None:
    """Two switches with a GPU and an InfiniBand card each; a management card behind the first does no RDMA."""
    for number, (switch, gpu, card) in enumerate((("16", "18", "19"), ("36", "38", "39"))):
        above = f"pci0000:{number}5/0000:{number}5:01.0"
        plug(tmp_path, above, kind="0x060400")
        plug(tmp_path, f"{above}/0000:{switch}:00.0", kind="0x060400")
        for port, (below, kind) in enumerate(((gpu, "0x030200"), (card, "0x020700"))):
            plug(tmp_path, f"{above}/0000:{switch}:00.0/0000:{switch[0]}7:0{port}.0", kind="0x060400")
            at = f"{above}/0000:{switch}:00.0/0000:{switch[0]}7:0{port}.0/0000:{below}:00.0"
            plug(tmp_path, at, kind=kind, rdma=below == card)
    gpus = ["0000:18:00.0", "0000:38:00.0"]
    assert Kernel(sys=tmp_path).rails(gpus) == {"0000:18:00.0": 0, "0000:38:00.0": 1}
    for card in ("0000:19:00.0", "0000:39:00.0"):
        (tmp_path / "bus/pci/devices" / card / "infiniband").rmdir()
    assert Kernel(sys=tmp_path).rails(gpus) == {}


@pytest.mark.parametrize("name", ["hgx-h100", "dgx-a100"])
def test_the_operator_s_word_counts_before_the_machine_s(name: str) -> None:
    """Of a GPU whose rail the machine shows (hgx-h100), and of one of which it shows none."""
    found = SimulatedBackend(profiles.load(name), node="n").inventory()
    first, *others = found.gpus
    assert first.pci_bus_id is not None
    built = slices.build(found, slices.Facts(offer=slices.Offer(rails=((first.pci_bus_id, 7),))))
    rails_of = {device.name: device.attributes.get("rail") for device in built.devices}
    assert rails_of["gpu-0"] == DeviceAttribute(int_=7)
    for gpu in others:
        if f"gpu-{gpu.minor}" in rails_of:
            assert rails_of[f"gpu-{gpu.minor}"] == (None if gpu.rail is None else DeviceAttribute(int_=gpu.rail))


@pytest.mark.parametrize(
    "text", ["18:00.0=0", "0000:18:00.0", "0000:18:00.0=x", "0000:18:00.0=256", "0000:18:00.0=0,0000:18:00.0=1"]
)
def test_what_is_no_rail_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"such as 0000:18:00\.0=0|keep one"):
        links.parse_rails(text)


def test_the_flag_reads_what_it_shows() -> None:
    assert RAILS.write(RAILS.read("0000:3a:00.0=1, 0000:18:00.0=0")) == "0000:18:00.0=0,0000:3a:00.0=1"
