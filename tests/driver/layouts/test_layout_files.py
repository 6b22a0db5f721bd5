"""The file of MIG layouts, read strictly; and what a layout means on a node's GPUs."""

from __future__ import annotations

import contextlib
import textwrap
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.driver.backend import geometry, profiles
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.backend.types import Inventory
from fairlead.driver.layouts import config
from fairlead.driver.layouts.config import LayoutError, place

FILE = "/etc/mig/config.yaml"


def parse(text: str) -> config.Layouts:
    return config.parse(textwrap.dedent(text).encode(), path=FILE)


def of(text: str, inventory: Inventory, name: str = "x") -> tuple[config.Wanted, ...]:
    return config.resolve(config.choose(parse(text), name, path=FILE), inventory)


def one(entries: str) -> str:
    return f"version: v1\nmig-configs:\n  x:\n{textwrap.indent(textwrap.dedent(entries).strip(), '  ')}\n"


def inventory(profile: str) -> Inventory:
    return SimulatedBackend(profiles.load(profile), node="n1").inventory()


def test_a_file_of_the_gpu_operators_is_read() -> None:
    found = parse("""
        version: v1
        mig-configs:
          all-disabled:
            - devices: all
              mig-enabled: false
          all-enabled:
            - devices: all
              mig-enabled: true
              mig-devices: {}
          all-1g.10gb:
            - device-filter: ["0x233010DE", "0x20b210de"]
              devices: all
              mig-enabled: true
              mig-devices:
                "1g.10gb": 7
            - device-filter: "0x20B010DE"
              devices: [0, 2]
              mig-enabled: true
              mig-devices: {"1g.10gb": 4, "1g.10gb+me": 0}
        """)
    assert list(found) == ["all-disabled", "all-enabled", "all-1g.10gb"]
    assert not found["all-disabled"][0].enabled
    assert found["all-enabled"][0].enabled
    first, second = found["all-1g.10gb"]
    assert (first.filters, first.devices, first.counts) == (
        frozenset({"0x233010DE", "0x20B210DE"}),
        None,
        {"1g.10gb": 7},
    )
    assert (second.filters, second.devices, second.counts) == (
        frozenset({"0x20B010DE"}),
        frozenset({0, 2}),
        {"1g.10gb": 4},
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mig-configs: {}", "version: None is not 'v1'"),
        ("version: v2\nmig-configs: {}", "version: 'v2' is not 'v1'"),
        ("version: v1", "mig-configs: None has no layout"),
        ("version: v1\nmig-configs: {}\nmore: 1", "'more' is no field; write version and mig-configs"),
        ("version: v1\nmig-configs: {x: []}", "mig-configs.x: [] is no list of entries"),
        ("version: v1\nmig-configs: {x: [], x: []}", "the key 'x' stands twice in one mapping"),
        ("version: v1\nmig-configs: &a {x: *a}", "stands for nothing, or for what holds it"),
        ("version: [", "while parsing a flow"),
        ("- 1", "[1] has no layouts"),
        (one("- {mig-enabled: false}"), "mig-configs.x[0].devices: is missing"),
        (one("- {devices: all}"), "mig-configs.x[0].mig-enabled: is missing"),
        (one("- {devices: all, mig-enabled: 'yes'}"), "mig-configs.x[0].mig-enabled: 'yes' is neither true nor false"),
        (one("- {devices: all, mig-enabled: true}"), "mig-configs.x[0].mig-devices: is missing; write {}"),
        (
            one("- {devices: all, mig-enabled: false, mig-devices: {1g.10gb: 1}}"),
            "mig-configs.x[0].mig-devices: there are none with mig-enabled: false",
        ),
        (one("- {devices: some, mig-enabled: false}"), "mig-configs.x[0].devices: 'some' names no GPUs; write all"),
        (one("- {devices: [0, -1], mig-enabled: false}"), "mig-configs.x[0].devices: -1 is no index of a GPU"),
        (one("- {devices: [0, 0], mig-enabled: false}"), "mig-configs.x[0].devices: [0, 0] names a GPU twice"),
        (
            one("- {devices: all, mig-enabled: false}\n- {devices: all, mig-enabled: false, gpus: 1}"),
            "mig-configs.x[1]: 'gpus' is no field; write device-filter, devices",
        ),
        (
            one("- {device-filter: [H100], devices: all, mig-enabled: false}"),
            "mig-configs.x[0].device-filter: 'H100' is no PCI device ID",
        ),
        (
            one("- {devices: all, mig-enabled: true, mig-devices: {big: 1}}"),
            "mig-configs.x[0].mig-devices: 'big' is no MIG profile",
        ),
        (
            one("- {devices: all, mig-enabled: true, mig-devices: {1c.3g.40gb: 2}}"),
            "'1c.3g.40gb' is a compute instance that does not fill its GPU instance, and",
        ),
        (
            one("- {devices: all, mig-enabled: true, mig-devices: {1g.10gb: 1.5}}"),
            "mig-configs.x[0].mig-devices.1g.10gb: 1.5 is no number of MIG devices",
        ),
        (one("- {devices: all, mig-enabled: true, mig-devices: {1g.10gb: 0}}"), "all counts are 0; write {}"),
        ("a: " + "[" * 40 + "]" * 40, "is nested more than 16 levels deep"),
    ],
)
def test_what_is_wrong_is_named_by_file_layout_entry_and_field(text: str, message: str) -> None:
    with pytest.raises(LayoutError) as raised:
        config.parse(text.encode(), path=FILE)
    assert str(raised.value).startswith(f"{FILE}: ")
    assert message in str(raised.value)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_whatever_is_in_the_file_is_read_or_refused(content: bytes) -> None:
    with contextlib.suppress(LayoutError):
        config.parse(content, path=FILE)


def test_a_layout_that_is_not_in_the_file_is_refused_with_those_that_are() -> None:
    with pytest.raises(LayoutError, match=r"has no layout 'y'; set the label nvidia.com/mig.config to one of x"):
        of(one("- {devices: all, mig-enabled: false}"), inventory("hgx-h100"), "y")


def test_indices_count_gpus_by_pci_address_and_others_stay_as_they_are() -> None:
    found = of(one("- {devices: [6, 1], mig-enabled: true, mig-devices: {7g.80gb: 1}}"), inventory("hgx-h100"))
    assert [(wanted.minor, wanted.cut.enabled, wanted.cut.placements) for wanted in found] == [
        (1, True, ((0, 0),)),
        (6, True, ((0, 0),)),
    ]


def test_indices_are_not_counted_while_a_gpu_is_missing() -> None:
    """Else they would name other GPUs, whose claims would wait to be drained for nothing."""
    backend = SimulatedBackend(profiles.load("hgx-h100"), node="n1")
    backend.faults.lost.add(2)
    text = one("- {devices: [0, 3], mig-enabled: true, mig-devices: {7g.80gb: 1}}")
    with pytest.raises(LayoutError, match=r"x\[0\].devices: gpu-2 does not answer, so indices would name other GPUs"):
        of(text, backend.inventory())
    assert len(of(one("- {devices: all, mig-enabled: false}"), backend.inventory())) == 7


def test_a_filter_chooses_gpus_by_their_pci_device_id() -> None:
    text = one("""
        - {device-filter: ["0x20B210DE"], devices: all, mig-enabled: true, mig-devices: {1g.10gb: 7}}
        - {device-filter: ["0x233010DE"], devices: all, mig-enabled: true, mig-devices: {2g.20gb: 3}}
        """)
    assert {tuple(wanted.counts) for wanted in of(text, inventory("hgx-h100"))} == {("2g.20gb",)}
    assert {tuple(wanted.counts) for wanted in of(text, inventory("dgx-a100"))} == {("1g.10gb",)}
    assert of(text, inventory("l40s")) == ()


@pytest.mark.parametrize(
    ("profile", "entries", "message"),
    [
        ("l40s", "- {devices: all, mig-enabled: true, mig-devices: {}}", r"gpu-0 \(NVIDIA L40S\) has no MIG"),
        ("hgx-h100", "- {devices: [8], mig-enabled: false}", r"x\[0\].devices: 8: this node has 8 GPUs, so 0 to 7"),
        (
            "hgx-h100",
            "- {devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}",
            r"x\[0\].mig-devices: '1g.5gb' is no profile of gpu-0 \(NVIDIA H100 80GB HBM3\), which has 1g.10gb",
        ),
        (
            "hgx-h100",
            "- {devices: all, mig-enabled: true, mig-devices: {3g.40gb: 2, 1g.10gb: 2}}",
            r"x\[0\].mig-devices: \{3g.40gb: 2, 1g.10gb: 2\} does not fit on gpu-0",
        ),
        (
            "hgx-h100",
            "- {devices: all, mig-enabled: false}\n- {devices: [3], mig-enabled: true, mig-devices: {}}",
            r"x\[1\]: gpu-3 \(index 3\) is in .*x\[0\], too",
        ),
    ],
)
def test_what_this_node_cannot_have_is_refused(profile: str, entries: str, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        of(one(entries), inventory(profile))


def test_a_gpu_is_as_wanted_wherever_its_mig_devices_lie() -> None:
    backend = SimulatedBackend(profiles.load("hgx-h100"), node="n1")
    uuid = backend.inventory().gpus[0].uuid
    text = one("- {devices: [0], mig-enabled: true, mig-devices: {1g.10gb: 2}}")
    [wanted] = of(text, backend.inventory())
    assert not config.is_so(wanted, backend.inventory().gpus[0], on_demand=False)
    backend.create_mig(uuid, 19, 5)
    backend.create_mig(uuid, 19, 6)
    assert config.is_so(wanted, backend.inventory().gpus[0], on_demand=False)
    assert not config.is_so(wanted, backend.inventory().gpus[0], on_demand=True)


@given(st.data())
def test_what_fits_in_any_order_is_placed_and_nothing_overlaps(data: st.DataObject) -> None:
    tables = profiles.mig_tables()
    table = tables[data.draw(st.sampled_from(sorted(tables)))]
    placed: list[geometry.Placed] = []
    for profile in data.draw(st.lists(st.sampled_from(table), max_size=8)):
        start = next((s for s in profile.starts if geometry.fits(table, placed, (profile, s))), None)
        if start is not None:
            placed.append((profile, start))
    counts = Counter(profile.name for profile, _ in placed)
    found = place(table, counts)
    assert found is not None
    assert Counter(profile.name for profile, _ in found) == counts
    for index, each in enumerate(found):
        assert geometry.fits(table, found[:index], each)
