"""Devices of one GPU that overlap without counters: what an apiserver leaves of MIG on demand while DRAPartitionableDevices is off."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import pytest

from fairlead.api import drivers
from tests.support.engine.objects import GPU, MIG, Json, claim_spec, device_request, gang, gpu, mig_gpu
from tests.support.engine.world import World, devices_of


def without_counters(minor: int) -> list[Json]:
    devices, _ = mig_gpu(minor)
    return [{key: value for key, value in device.items() if key != "consumesCounters"} for device in devices]


def static(minor: int, *starts: int) -> list[Json]:
    """1g MIG devices that exist, each with the memory slice that it covers; their GPU is not published."""
    made = [one for one in without_counters(minor) if one["name"].endswith(tuple(f"1g-10gb-{at}" for at in starts))]
    for one, at in zip(made, starts, strict=True):
        one["capacity"] = {**one["capacity"], f"memorySlice{at}": {"value": "1"}}
    return made


def world_of(devices: Sequence[Json]) -> World:
    world = World()
    world.add_node("n", devices)
    return world


def whole(name: str, count: int = 1):
    return gang(name, 1, claim_spec(device_request(count, device_class=GPU)))


def part(name: str, profile: str = "1g.10gb"):
    text = f'device.attributes["gpu.fairlead.dev"].profile == "{profile}"'
    return gang(name, 1, claim_spec(device_request(device_class=MIG, cel=text)))


def admitted(world: World, *gangs) -> list[str]:
    plan = world.decide(*gangs)
    world.carry_out(plan, gangs)
    return sorted(admission.name for admission in plan.admissions)


def test_a_gpu_given_whole_has_no_part_left():
    world = world_of([device for minor in range(2) for device in without_counters(minor)])
    assert admitted(world, whole("train", 2)) == ["train"]
    assert admitted(world, part("one"), part("two")) == []


def test_a_part_takes_its_gpu_with_it():
    world = world_of([device for minor in range(2) for device in without_counters(minor)])
    assert admitted(world, part("one")) == ["one"]
    assert admitted(world, whole("both", 2)) == []
    assert admitted(world, whole("other")) == ["other"]


@pytest.mark.parametrize("order", list(permutations(("train", "one", "two"))), ids="-".join)
def test_in_one_decision_a_gpu_serves_one_claim_in_every_order_of_requests(order: Sequence[str]):
    world = world_of(without_counters(0))
    made = {"train": whole("train"), "one": part("one"), "two": part("two", "3g.40gb")}
    plan = world.decide(*(made[name] for name in order))
    assert len(plan.admissions) == 1
    assert len(devices_of(plan, plan.admissions[0].name)) == 1


def test_gpus_of_other_nodes_and_numbers_are_not_touched():
    world = world_of([*without_counters(0), gpu(1)])
    assert admitted(world, part("one")) == ["one"]
    assert admitted(world, whole("train")) == ["train"]


def test_partitions_that_exist_beside_each_other_are_all_given():
    world = world_of(static(0, 0, 1, 2))
    assert admitted(world, part("one"), part("two"), part("three")) == ["one", "three", "two"]


def test_of_two_partitions_that_cover_one_memory_slice_one_is_given():
    twice = static(0, 0)
    again = {**twice[0], "name": "gpu-0-mig-1g-10gb-again"}
    world = world_of([*twice, again])
    assert len(admitted(world, part("one"), part("two"))) == 1


def test_a_whole_gpu_without_counters_beside_parts_that_have_them_overlaps_too():
    devices, counters = mig_gpu(0)
    devices[0] = {key: value for key, value in devices[0].items() if key != "consumesCounters"}
    world = World()
    world.add_node("n", devices, counters=[counters])
    assert len(admitted(world, whole("train"), part("one"), part("two"))) == 1


def test_with_counters_nothing_is_added():
    devices, counters = mig_gpu(0)
    world = World()
    world.add_node("n", devices, counters=[counters])
    assert all(not pool.added for pool in world.inventory.pools())
    assert len(admitted(world, part("one"), part("two"), part("three"))) == 3


def test_partitions_of_another_driver_are_known_by_its_own_names():
    """gpu.amd.com names the parent by its PCI address, under the name that the GPU has for itself."""
    address = {"pciAddr": {"string": "0000:01:00.0"}}
    card = {"name": "card0", "attributes": {"type": {"string": "amdgpu"}, **address}}
    parts = [
        {
            "name": f"part{number}",
            "attributes": {"type": {"string": "amdgpu-partition"}, "parentPciAddr": address["pciAddr"]},
        }
        for number in range(2)
    ]
    world = World(drivers.AMD)
    world.add_node("n", [card, *parts])
    (pool,) = world.inventory.pools()
    assert set(pool.added) == {"card0", "part0", "part1"}
