"""One claim for devices of two drivers: a GPU and a network interface under one PCIe root (docs/beside.md)."""

from typing import Any

import pytest

from fairlead.api import names
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.reasons import Code
from tests.support.engine.objects import claim_spec, device_request, gang, gpu, slice_of
from tests.support.engine.world import World

Json = dict[str, Any]
NIC = "dra.net"
ROOT = "resource.kubernetes.io/pcieRoot"
ONE_ROOT = [{"matchAttribute": ROOT}]
BOTH = (device_request(1), device_request(1, device_class=NIC, cel=f'device.attributes["{NIC}"].rdma'))


def nic(number: int, root: str, *, rdma: bool = True) -> Json:
    attributes: Json = {"ifName": {"string": f"eth{number}"}, "rdma": {"bool": rdma}, ROOT: {"string": root}}
    return {"name": f"net-{number}", "attributes": attributes}


def under(device: Json, root: str) -> Json:
    return {**device, "attributes": {**device["attributes"], ROOT: {"string": root}}}


def world(*nics: Json) -> World:
    """A node with two GPUs on each of two PCIe roots."""
    made = World()
    made.add_node("node", [under(gpu(number), f"pci{number // 2}") for number in range(4)])
    made.add_class(NIC, {"selectors": [{"cel": {"expression": f'device.driver == "{NIC}"'}}]})
    made.add_slices(slice_of("node", nics, driver=NIC))
    return made


def given(plan: Plan) -> list[tuple[str, ...]]:
    """Of each claim the devices."""
    assert plan.admissions, plan.waiting[0].reason
    return [tuple(each.device for each in claim.allocation.devices.results) for claim in plan.admissions[0].claims]


def test_the_gpu_comes_from_the_root_of_the_nic():
    plan = world(nic(0, "pci1")).decide(gang("job", 1, claim_spec(*BOTH, constraints=ONE_ROOT)))
    assert given(plan) == [("gpu-2", "net-0")]
    drivers = [each.driver for each in plan.admissions[0].claims[0].allocation.devices.results]
    assert drivers == [names.DRIVER, NIC]


def test_each_member_of_a_gang_gets_a_pair_of_its_own():
    made = world(nic(0, "pci0"), nic(1, "pci1"), nic(2, "pci1"), nic(3, "pci1", rdma=False))
    pairs = given(made.decide(gang("job", 3, claim_spec(*BOTH, constraints=ONE_ROOT))))
    assert sorted(nic_ for _, nic_ in pairs) == ["net-0", "net-1", "net-2"]
    roots = {"net-0": {"gpu-0", "gpu-1"}, "net-1": {"gpu-2", "gpu-3"}, "net-2": {"gpu-2", "gpu-3"}}
    assert all(gpu_ in roots[nic_] for gpu_, nic_ in pairs)


NO_NIC = "request r1 wants 1 of DeviceClass dra.net on one node, the best node has 0 free"


@pytest.mark.parametrize(
    ("nics", "size", "said"),
    [
        ([], 1, NO_NIC),
        ([nic(0, "pci0", rdma=False)], 1, NO_NIC),
        ([nic(0, "pci7")], 1, "of each class enough are free, but not together where the pods need them"),
        ([nic(0, "pci0"), nic(1, "pci1")], 4, "of DeviceClass dra.net 4 wanted, 2 free on 1 node, 2 missing"),
    ],
    ids=["none", "no rdma", "far", "too few"],
)
def test_where_no_nic_does_the_gang_never_fits_and_names_what_lacks(nics, size, said):
    plan = world(*nics).decide(gang("job", size, claim_spec(*BOTH, constraints=ONE_ROOT)))
    assert not plan.admissions
    reason = plan.waiting[0].reason
    assert reason.code is Code.NEVER_FITS
    assert said in reason.message
    assert [each.of for each in reason.requests] == ["DeviceClass gpu.fairlead.dev", "DeviceClass dra.net"]


def test_the_driver_is_named_where_the_class_is_called_otherwise():
    made = world(nic(0, "pci0"))
    made.add_class("fast-nic", {"selectors": [{"cel": {"expression": f'device.driver == "{NIC}"'}}]})
    asked = claim_spec(device_request(), device_request(device_class="fast-nic"))
    reason = made.decide(gang("job", 2, asked)).waiting[0].reason
    assert "of DeviceClass fast-nic (driver dra.net) 2 wanted, 1 free on 1 node, 1 missing" in reason.message


def test_a_nic_in_use_is_what_a_gang_waits_for():
    made = world(nic(0, "pci0"), nic(1, "pci1"))
    first = gang("first", 1, claim_spec(*BOTH))
    made.carry_out(made.decide(first), [first])
    reason = made.decide(gang("job", 2, claim_spec(*BOTH))).waiting[0].reason
    assert reason.code is Code.NO_DEVICES
    assert "of DeviceClass dra.net 2 wanted, 1 free on 1 node, 1 missing" in reason.message


def test_a_device_that_several_claims_share_is_not_counted_by_pods():
    """Two groups of CPUs hold six pods; what eight pods lack is GPUs."""
    made = world()
    made.add_class("dra.cpu", {"selectors": [{"cel": {"expression": 'device.driver == "dra.cpu"'}}]})
    capacity = {"capacity": {"dra.cpu/cpu": {"value": "96"}}, "allowMultipleAllocations": True}
    made.add_slices(slice_of("node", [{"name": f"numa{n}", **capacity} for n in range(2)], driver="dra.cpu"))
    cpus = device_request(device_class="dra.cpu", capacity={"requests": {"dra.cpu/cpu": "16"}})
    assert len(given(made.decide(gang("fits", 4, claim_spec(device_request(), cpus))))) == 4
    reason = made.decide(gang("job", 8, claim_spec(device_request(), cpus))).waiting[0].reason
    assert "of DeviceClass gpu.fairlead.dev 8 wanted, 4 free on 1 node, 4 missing" in reason.message


def test_a_nic_that_another_claim_has_is_not_given_again():
    made = world(nic(0, "pci1"), nic(1, "pci0"))
    first, second, third = (gang(name, 1, claim_spec(*BOTH, constraints=ONE_ROOT)) for name in ("a", "b", "c"))
    plan = made.decide(first)
    made.carry_out(plan, [first])
    again = made.decide(second)
    assert {pair[1] for pair in (*given(plan), *given(again))} == {"net-0", "net-1"}
    made.carry_out(again, [second])
    assert not made.decide(third).admissions


def test_a_gang_whose_gpus_and_interfaces_are_on_common_rails():
    """Each pod has two pairs, GPU and interface on one root; rails are said by each driver in its own words."""
    made = World()
    for name, rails in {"a": (0, 1, 2), "b": (1, 2), "c": (0, 2)}.items():
        gpus, nics = [], []
        for rail in rails:
            device = under(gpu(rail), f"pci{rail}")
            gpus.append({**device, "attributes": {**device["attributes"], "rail": {"int": rail}}})
            interface = nic(rail, f"pci{rail}")
            nics.append({**interface, "attributes": {**interface["attributes"], "alias": {"string": f"rail-{rail}"}}})
        made.add_node(name, gpus)
        made.add_slices(slice_of(name, nics, driver=NIC))
    made.add_class(NIC, {"selectors": [{"cel": {"expression": f'device.driver == "{NIC}"'}}]})
    align = f"{names.DRIVER}/rail of r0, {NIC}/alias of r1"
    two = claim_spec(device_request(2), device_request(2, device_class=NIC))
    asked = gang("pairs", 2, two, align=align)
    assert given(made.decide(asked)) in [[(f"gpu-{n}", "gpu-2", f"net-{n}", "net-2")] * 2 for n in (0, 1)]
    one = claim_spec(device_request(1), device_request(1, device_class=NIC), constraints=ONE_ROOT)
    assert given(made.decide(gang("three", 3, one, align=align))) == [("gpu-2", "net-2")] * 3
