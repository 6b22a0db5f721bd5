"""Decisions over slices in the form that each driver publishes: placement, shares, sizes, and what an unknown driver gets."""

from __future__ import annotations

from fractions import Fraction

import pytest

from fairlead.api import legacy, names
from fairlead.api.drivers import AMD, EXAMPLE, INTEL, NVIDIA
from fairlead.engine.inventory.models import mig_share
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from tests.support import published
from tests.support.engine.objects import claim_spec, device_request, gang
from tests.support.engine.world import World


def world(driver, devices, counters=()):
    made = World(driver)
    made.add_class(driver, published.device_class(driver))
    made.add_node("n", devices, counters=counters)
    return made


def given(made, count, *, cel="", name="job"):
    """Admit a pod with so many devices; returns their names, sorted."""
    request = gang(name, 1, claim_spec(device_request(count, device_class=made.driver, cel=cel)))
    plan = made.decide(request)
    assert plan.admissions, plan.waiting
    made.carry_out(plan, [request])
    assert not made.faults()
    (claim,) = plan.admissions[0].claims
    return sorted(result.device for result in claim.allocation.devices.results)


def total(made, measure, **more):
    made.flavors = (
        FlavorSpec(name="gpu", device_selector=f'device.driver == "{made.driver}"', measure=measure, **more),
    )
    made.queues = (QueueSpec(name="a", quotas=(FlavorQuota(flavor="gpu", deserved=8),)),)
    plan = made.decide()
    assert not plan.problems
    made.queues = made.flavors = ()
    (found,) = plan.flavors
    return found.total


def devices(made):
    return {device.name: device for pool in made.inventory.pools() for device in pool.devices.values()}


def test_nvidias_fabric_partitions_are_islands_of_the_size_that_is_asked_for():
    """Pairs (0 1) (2 3) … in halves (0–3) (4–7): where 0 is in use, a pair is taken whole, and the half that is whole stays so."""
    made = world(
        NVIDIA, [published.nvidia_gpu(n, partition8=1, partition4=2 + n // 4, partition2=4 + n // 2) for n in range(8)]
    )
    assert given(made, 1, name="one") == ["gpu-0"]
    assert given(made, 4, name="four") == ["gpu-4", "gpu-5", "gpu-6", "gpu-7"]
    assert given(made, 2, name="two") == ["gpu-2", "gpu-3"]


@pytest.mark.parametrize(
    ("driver", "capacity"),
    [
        (names.DRIVER, {"memory": {"value": "80Gi", "requestPolicy": {"default": "20Gi"}}}),
        (
            NVIDIA,
            {
                "memory": {"value": "80Gi", "requestPolicy": {"default": "0"}},
                "shares": {"value": "4", "requestPolicy": {"default": "1"}},
            },
        ),
    ],
)
def test_shares_fill_one_gpu_before_the_next_and_no_gpu_beyond_its_replicas(driver, capacity):
    """`nvidia.com/gpu.shared: 1` on GPUs of four replicas: ours by --shared-replicas, NVIDIA's by its gate ConsumableShares."""
    shared = {"capacity": capacity, "allowMultipleAllocations": True}
    made = world(driver, [published.nvidia_gpu(0), *({**published.nvidia_gpu(n), **shared} for n in (1, 2))])
    (request,) = legacy.template_manifest("fairlead-gpu.shared-1", "ml", driver=driver)["spec"]["spec"]["devices"][
        "requests"
    ]
    gangs = [gang(f"s{n}", 1, {"devices": {"requests": [request]}}) for n in range(9)]
    plan = made.decide(*gangs)
    held = [
        result.device
        for each in plan.admissions
        for claim in each.claims
        for result in claim.allocation.devices.results
    ]
    assert held == ["gpu-1"] * 4 + ["gpu-2"] * 4
    assert [each.name for each in plan.waiting] == ["s8"]


def test_without_fabric_partitions_nvidias_gpus_are_chosen_by_numa_node():
    made = world(NVIDIA, [published.nvidia_gpu(n, numa=n // 3) for n in range(5)])
    assert given(made, 2) == ["gpu-3", "gpu-4"]


def test_amds_own_numa_attribute_decides_where_the_standard_one_is_missing():
    made = world(AMD, [published.amd_gpu(n, numa=n // 3) for n in range(5)])
    assert given(made, 2) == ["gpu-3-131", "gpu-4-132"]


@pytest.mark.parametrize(
    ("profile", "product", "share"),
    [
        ("dpx_nps1", published.AMD_PRODUCT, Fraction(1, 2)),
        ("tpx_nps1", published.AMD_PRODUCT, Fraction(1, 3)),
        ("qpx_nps4", published.AMD_PRODUCT, Fraction(1, 4)),
        ("cpx_nps4", published.AMD_PRODUCT, Fraction(1, 8)),
        ("CPX", published.AMD_PRODUCT, Fraction(1, 8)),
        ("cpx_nps1", "AMD_Instinct_MI300A", Fraction(1, 6)),
        ("new_nps1", published.AMD_PRODUCT, None),
    ],
)
def test_an_amd_partition_is_its_modes_part_of_the_gpu(profile, product, share):
    made = world(AMD, [published.amd_partition(1, 0, profile, product=product)])
    (device,) = devices(made).values()
    assert mig_share(device) == share


def test_a_whole_amd_gpu_with_the_profile_spx_is_no_part():
    made = world(AMD, [published.amd_gpu(0)])
    assert mig_share(devices(made)["gpu-0-128"]) is None
    assert total(made, "Share") == 1


def test_amds_partitions_are_counted_as_parts_and_given_before_a_whole_gpu():
    parts = [published.amd_partition(9 + at, 1, "cpx_nps1") for at in range(8)]
    made = world(AMD, [published.amd_gpu(0), *parts])
    assert (total(made, "Share"), total(made, "Devices")) == (2, 9)
    assert given(made, 1) == ["gpu-9-137"]


@pytest.mark.parametrize("driver", [NVIDIA])
def test_nvidias_static_mig_devices_are_counted_by_slices(driver):
    made = world(
        driver,
        [
            published.nvidia_mig(0, "3g.40gb", 0, 4, gigabytes=40),
            published.nvidia_mig(0, "1g.10gb", 4, 1, gigabytes=10),
        ],
    )
    assert total(made, "Share") == Fraction(1, 2) + Fraction(1, 7)


def test_intels_gpus_are_counted_and_their_memory_too():
    made = world(INTEL, [published.intel_gpu(n) for n in range(1, 4)])
    assert (total(made, "Share"), total(made, "Devices")) == (3, 3)
    assert total(made, "Capacity", capacity_name="memory") == 3 * 131072 * 2**20
    assert given(made, 2) == ["0000-01-00-0-0x0bd5", "0000-02-00-0-0x0bd5"]


def test_the_example_drivers_partitions_are_parts_by_their_counters_and_the_cut_gpu_is_filled_first():
    first, second = (published.example_gpu(index, partitions=4) for index in range(2))
    made = world(EXAMPLE, [*first[0], *second[0]], [*first[1], *second[1]])
    assert total(made, "Share") == 2
    small = f'has(device.attributes["{EXAMPLE}"].partition)'
    assert [given(made, 1, cel=small, name=f"p{n}")[0].rpartition("-partition-")[0] for n in range(4)] == ["gpu-0"] * 4
    assert given(made, 1, cel=f'has(device.attributes["{EXAMPLE}"].full)', name="whole") == ["gpu-1-full"]


def test_an_unknown_drivers_devices_are_whole_and_placed_by_the_standard_numa_node():
    """What it calls mig or nvlinkDomain may mean anything: its devices are allocated, but not judged by such names."""
    driver = "gpu.unknown.dev"
    gpus = [published.nvidia_gpu(n, numa=n // 3) for n in range(5)]
    made = world(driver, [*gpus, published.nvidia_mig(7, "1g.10gb", 0, 1, gigabytes=10)])
    assert total(made, "Share") == 6
    assert given(made, 2, cel=f'device.attributes["{driver}"].type == "gpu"') == ["gpu-3", "gpu-4"]
