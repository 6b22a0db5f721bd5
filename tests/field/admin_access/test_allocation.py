"""Admin access sees the devices that exist, in either order of claims; it makes, takes and counts none."""

from __future__ import annotations

import pytest

from fairlead.engine.types.reasons import Rejection
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from tests.support.engine.objects import MIG, Json, claim_spec, device_request, gang, gpu, mig_gpu
from tests.support.engine.world import World, devices_of

PROFILE = 'device.attributes["gpu.fairlead.dev"].profile == "3g.40gb"'
WATCH = device_request(device_class=MIG, cel=PROFILE, adminAccess=True)
WATCH_ALL = {"deviceClassName": MIG, "allocationMode": "All", "adminAccess": True}
CUT = device_request(device_class=MIG, cel=PROFILE)


@pytest.fixture
def world() -> World:
    """One GPU whose MIG devices are made on demand."""
    made = World()
    devices, counters = mig_gpu(0)
    made.add_node("n0", devices, counters=[counters])
    return made


def start(world: World, name: str, spec: Json, **more: object) -> list[str]:
    """The devices that the gang gets; [] where it waits."""
    asked = gang(name, 1, claim_spec(spec), **more)  # type: ignore[arg-type]
    plan = world.decide(asked)
    world.carry_out(plan, [asked])
    return devices_of(plan, name)


@pytest.mark.parametrize("watch", [WATCH, WATCH_ALL], ids=["one", "all"])
@pytest.mark.parametrize("holder", [None, "whole", "another profile"])
def test_no_mig_device_is_made_to_be_seen(world: World, watch: Json, holder: str | None) -> None:
    if holder == "whole":
        assert start(world, "job", device_request()) == ["gpu-0"]
    if holder == "another profile":
        other = device_request(device_class=MIG, cel=PROFILE.replace("3g.40gb", "1g.10gb"))
        [cut] = start(world, "job", other)
    seen = start(world, "watch", watch)
    assert seen == ([cut] if holder == "another profile" and watch is WATCH_ALL else [])


def test_first_the_watch_then_the_gpu_is_whole(world: World) -> None:
    assert start(world, "watch", WATCH) == []
    assert start(world, "job", device_request()) == ["gpu-0"]


@pytest.mark.parametrize("watch", [WATCH, WATCH_ALL], ids=["one", "all"])
def test_the_mig_device_of_a_claim_is_seen_and_nothing_else(world: World, watch: Json) -> None:
    [cut] = start(world, "job", CUT)
    assert start(world, "watch", watch) == [cut]
    beside = start(world, "beside", CUT)
    assert len(beside) == 1
    assert beside != [cut]
    world.end("ml/job")
    world.end("ml/beside")
    assert start(world, "whole", device_request()) == ["gpu-0"]
    assert not world.faults()


def test_the_reason_says_that_it_is_not_there_and_may_be_later(world: World) -> None:
    watch = gang("watch", 1, claim_spec(WATCH))
    [waits] = world.decide(watch).waiting
    assert waits.reason.could_ever_fit is not False
    removed = dict(waits.reason.requests[0].removed)
    assert removed[Rejection.NOT_MADE] == 2
    start(world, "job", CUT)
    assert world.decide(watch).admissions


def test_a_whole_gpu_is_seen_while_it_is_cut(world: World) -> None:
    start(world, "job", CUT)
    assert start(world, "watch", device_request(adminAccess=True)) == ["gpu-0"]
    assert len(start(world, "beside", CUT)) == 1


def test_one_that_is_leaving_is_not_counted_on(world: World) -> None:
    start(world, "job", CUT)
    world._leave("ml/job", {member.pod for member in world.running["ml/job"].members})
    watch = gang("watch", 1, claim_spec(WATCH))
    plan = world.decide(watch)
    assert not plan.reservations


@pytest.mark.parametrize("first", ["watch", "job"])
def test_a_shared_gpu_has_as_much_left_as_before(first: str) -> None:
    world = World()
    world.add_node("n0", [gpu(0, allowMultipleAllocations=True)])
    some: Json = {"capacity": {"requests": {"memory": "50Gi"}}}
    watch = gang("watch", 1, claim_spec(device_request(adminAccess=True, **some)), created=float(first == "job"))
    job = gang("job", 1, claim_spec(device_request(capacity={"requests": {"memory": "80Gi"}})), created=0.5)
    plan = world.decide(watch, job) if first == "watch" else None
    if plan is not None:
        assert {each.name for each in plan.admissions} == {"watch", "job"}
        return
    assert start(world, "watch", device_request(adminAccess=True, **some)) == ["gpu-0"]
    assert world.decide(job).admissions


def test_it_is_no_use_of_a_queue_and_holds_no_place() -> None:
    world = World()
    world.add_node("n0", [gpu(minor) for minor in range(4)])
    world.flavors = (FlavorSpec(name="gpu", device_selector='device.driver == "gpu.fairlead.dev"'),)
    world.queues = (QueueSpec(name="q", quotas=(FlavorQuota(flavor="gpu", deserved=0, limit=4),)),)
    assert len(start(world, "watch", device_request(4, adminAccess=True), queue="q")) == 4
    plan = world.decide(gang("job", 4, claim_spec(device_request()), queue="q"))
    assert [each.name for each in plan.admissions] == ["job"]
    assert plan.queues[0].flavors[0].used == 4
    assert plan.flavors[0].allocated == 4
