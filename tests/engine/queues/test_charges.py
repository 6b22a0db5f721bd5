"""What queues pay where it is not one device for one gang: parts of shared devices, partitions, claims that gangs share."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fairlead.api import names
from fairlead.driver.backend import profiles
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.publish import slices
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from tests.support.engine.objects import MIG, claim_spec, device_request, gang, gpu, mig_gpu, slice_of
from tests.support.engine.world import World

EVERY = f'device.driver == "{names.DRIVER}"'
QUARTER = claim_spec(device_request(capacity={"requests": {"memory": "20Gi"}}))
GIB = 2**30


def flavor(name: str = "gpu", selector: str = EVERY, measure: str = "Devices", **more: str) -> FlavorSpec:
    return FlavorSpec(name=name, device_selector=selector, measure=measure, **more)  # type: ignore[arg-type]


def queue(name: str, limit: int | Fraction | None = None, flavor: str = "gpu") -> QueueSpec:
    return QueueSpec(name=name, quotas=(FlavorQuota(flavor=flavor, limit=limit),))


def use(plan: Plan, name: str) -> tuple[object, object]:
    """What the queue holds and asks for in its one flavor."""
    (found,) = [entry.flavors for entry in plan.queues if entry.name == name]
    return (found[0].used, found[0].demand) if found else (0, 0)


def admitted(plan: Plan) -> list[str]:
    return [entry.name for entry in plan.admissions]


def shared_gpus(count: int, measure: str, **more: str) -> World:
    world = World()
    world.add_node("n0", [gpu(minor, allowMultipleAllocations=True) for minor in range(count)])
    world.flavors = (flavor(measure=measure, **more),)
    return world


def test_a_quarter_of_a_shared_gpu_costs_a_quarter_while_it_waits_and_when_it_runs():
    world = shared_gpus(1, "Share")
    world.queues = (queue("a", Fraction(1, 2)),)
    jobs = [gang(f"j{number}", 1, QUARTER, queue="a", created=float(number)) for number in range(3)]
    plan = world.decide(*jobs)
    assert admitted(plan) == ["j0", "j1"]
    assert use(plan, "a") == (Fraction(1, 2), Fraction(3, 4))
    left = world.carry_out(plan, jobs)
    assert use(world.decide(*left), "a") == (Fraction(1, 2), Fraction(3, 4))


def test_of_a_shared_gpu_the_capacity_that_is_taken_is_charged():
    world = shared_gpus(2, "Capacity", capacity_name="memory")
    world.queues = (queue("a", 70 * GIB),)
    jobs = [gang(f"j{number}", 1, QUARTER, queue="a", created=float(number)) for number in range(4)]
    plan = world.decide(*jobs)
    assert admitted(plan) == ["j0", "j1", "j2"]
    assert use(plan, "a") == (60 * GIB, 80 * GIB)
    assert plan.flavors[0].total == 160 * GIB


def test_a_flavor_of_one_profile_has_as_much_as_fits_into_the_gpus():
    world = World()
    parts, counters = mig_gpu(0)
    world.add_node("n0", parts, counters=[counters])
    small = f'device.attributes["{names.DRIVER}"].?profile.orValue("") == "1g.10gb"'
    world.flavors = (
        flavor("count", small),
        flavor("memory", small, "Capacity", capacity_name="memory"),
        flavor("part", small, "Share"),
    )
    world.queues = (queue("a", flavor="count"),)
    totals = {total.flavor: (total.devices, total.total) for total in world.decide().flavors}
    assert totals == {"count": (7, 7), "memory": (7, 70 * GIB), "part": (7, 1)}


def test_nine_claims_of_20_gib_fit_on_three_shared_gpus_as_the_driver_publishes_them():
    found = SimulatedBackend(profiles.load("hgx-h100"), node="n0").inventory()
    built = slices.build(dataclasses.replace(found, gpus=found.gpus[:3]), slices.Facts(offer=slices.Offer(shared=True)))
    world = World()
    world.add_node("n0", [msgspec.to_builtins(device) for device in built.devices])
    world.flavors = (flavor(measure="Share"),)
    world.queues = (queue("a"),)
    plan = world.decide(*(gang(f"j{number}", 1, QUARTER, queue="a") for number in range(10)))
    assert len(plan.admissions) == 9
    assert use(plan, "a")[0] == 9 * Fraction(20 * 1024, 81_559)


def test_claims_share_a_mig_device_and_are_charged_their_part_of_the_gpu():
    found = SimulatedBackend(profiles.load("dgx-a100"), node="n0").inventory()
    built = slices.build(
        dataclasses.replace(found, gpus=(found.gpus[6],)), slices.Facts(offer=slices.Offer(shared_mig=True))
    )  # seven 1g.10gb of 9728Mi
    part = {"requests": {"memory": "4Gi"}}
    world = World()
    world.add_node("n0", [msgspec.to_builtins(device) for device in built.devices])
    world.flavors = (flavor(measure="Share"),)
    world.queues = (queue("a"),)
    wanted = claim_spec(device_request(device_class=MIG, capacity=part))
    plan = world.decide(*(gang(f"j{number:02}", 1, wanted, queue="a") for number in range(15)))
    assert len(plan.admissions) == 14
    assert use(plan, "a")[0] == 14 * Fraction(4096, 9728) / 7


def static_mig(driver: str, profile: str, slices: int, product: str, index: int = 0) -> dict[str, Any]:
    """A MIG device as drivers publish those that exist already: no counters."""
    capacity = {
        "memory": {"value": "9984Mi"},
        **{f"memorySlice{at}": {"value": "1"} for at in range(index, index + slices)},
    }
    attributes = {"type": "mig", "profile": profile, "productName": product, "parentUUID": "GPU-0"}
    return {
        "name": f"gpu-0-mig-{index}",
        "attributes": {name: {"string": value} for name, value in attributes.items()},
        "capacity": capacity,
    }


@pytest.mark.parametrize("driver", [names.DRIVER, "gpu.nvidia.com"])
@pytest.mark.parametrize("slices", [1, 0], ids=["memory slices published", "no memory slices"])
def test_static_mig_devices_are_charged_their_part_of_the_gpu(driver: str, slices: int):
    world = World()
    devices = [static_mig(driver, "1g.10gb", slices, "NVIDIA A100-SXM4-80GB", index) for index in range(7)]
    world.add_node("n0")
    world.add_slices(slice_of("n0", devices, driver=driver))
    world.flavors = (flavor(selector=f'device.driver == "{driver}"', measure="Share"),)
    world.queues = (queue("a", Fraction(3, 7)),)
    small = f'device.driver == "{driver}" && device.attributes["{driver}"].profile == "1g.10gb"'
    world.add_class("any", {})
    asked = claim_spec(device_request(device_class="any", cel=small))
    jobs = [gang(f"j{number}", 1, asked, queue="a") for number in range(4)]
    plan = world.decide(*jobs)
    assert use(plan, "a") == (Fraction(3, 7), Fraction(4, 7))
    assert plan.flavors[0].total == 1


@pytest.mark.parametrize(
    ("product", "profile", "slices", "want"),
    [
        ("NVIDIA A100-SXM4-80GB", "1g.20gb", 2, Fraction(1, 4)),
        ("NVIDIA A100-SXM4-80GB", "1g.20gb", 0, Fraction(1, 4)),
        ("NVIDIA A100-SXM4-40GB", "1g.10gb", 0, Fraction(1, 4)),
        ("NVIDIA A100-SXM4-80GB", "1g.10gb+me", 1, Fraction(1, 7)),
        ("NVIDIA A100-SXM4-80GB", "3g.40gb", 4, Fraction(1, 2)),
        ("NVIDIA A100-SXM4-80GB", "4g.40gb", 4, Fraction(4, 7)),
        ("NVIDIA A100-SXM4-80GB", "7g.80gb", 8, 1),
        ("NVIDIA H200", "1g.35gb", 2, Fraction(1, 4)),
        ("NVIDIA H200", "1g.35gb", 0, Fraction(1, 7)),  # how large the GPU is cannot be read
        ("NVIDIA A30", "2g.12gb", 2, Fraction(1, 2)),
        ("NVIDIA A30", "1g.6gb", 0, Fraction(1, 4)),
        ("NVIDIA A100-SXM4-80GB", "a third", 0, 1),
    ],
)
def test_the_share_of_a_static_mig_device_is_its_larger_part(product: str, profile: str, slices: int, want: Fraction):
    world = World()
    world.add_node("n0", [static_mig(names.DRIVER, profile, slices, product)])
    world.flavors = (flavor(measure="Share"),)
    assert world.decide().flavors[0].total == want


def joined(first: GangRequest, plan: Plan, name: str, queue: str) -> GangRequest:
    """Another gang whose pod uses the claim that the first was given."""
    (given,) = [claim.allocation for entry in plan.admissions for claim in entry.claims]
    made = gang(name, 1, None, queue=queue, created=5.0)
    (claim,) = first.claims
    return replace(
        made,
        claims=(replace(claim, allocation=given),),
        members=tuple(replace(member, claims=(claim.key,)) for member in made.members),
    )


def test_a_claim_that_two_queues_use_is_charged_to_one_of_them_at_a_time():
    """To the gang that had it first, and then to the one that is left: a GPU is never paid twice, and never held for nothing."""
    world = World()
    world.add_node("n0", [gpu(minor) for minor in range(2)])
    world.flavors = (flavor(),)
    world.queues = (queue("a", 1), queue("b", 0))
    first = gang("first", 1, claim_spec(device_request()), queue="a")
    plan = world.decide(first)
    world.carry_out(plan, [first])
    second = joined(first, plan, "second", "b")
    plan = world.decide(second)
    assert use(plan, "b") == (0, 0)
    assert admitted(plan) == ["second"], "it costs nothing that is not paid already"
    world.carry_out(plan, [second])
    plan = world.decide()
    assert (use(plan, "a"), use(plan, "b")) == ((1, 1), (0, 0))
    assert plan.flavors[0].allocated == 1
    del world.running["ml/first"]
    plan = world.decide()
    assert (use(plan, "a"), use(plan, "b")) == ((0, 0), (1, 1))


def test_what_is_published_no_more_costs_nothing_and_stops_no_gang():
    world = World()
    world.add_node("n0", [gpu(minor) for minor in range(2)])
    world.add_node("n1", [gpu(minor) for minor in range(2)])
    world.flavors, world.queues = (flavor(),), (queue("a", 2),)
    jobs = [
        gang(f"j{number}", 1, claim_spec(device_request(2)), queue="a", created=float(number)) for number in range(2)
    ]
    plan = world.decide(*jobs)
    left = world.carry_out(plan, jobs)
    assert [entry.name for entry in left] == ["j1"]
    world.inventory.drop_slice("n0-gpu.fairlead.dev-0")
    plan = world.decide(*left)
    assert plan.flavors[0].total == 2
    assert admitted(plan) == ["j1"]
