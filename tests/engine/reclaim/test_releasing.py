"""Devices that their nodes are releasing, for pods that were deleted by force: waited for, never taken from somebody else instead."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.api import names, withheld
from fairlead.engine.forecast.forecast import forecast
from fairlead.engine.forecast.run_times import RunTimes
from fairlead.engine.plan.decide import Engine
from fairlead.engine.reclaim.releasing import RELEASING_S
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.reasons import Code, Rejection
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from fairlead.kube import timestamps
from tests.support.engine.objects import MIG, Json, claim_spec, device_request, gang, gpu, mig_gpu, slice_of
from tests.support.engine.world import World

NOW = 1_000_000.0
H100 = FlavorSpec(name="h100", device_selector=f'device.driver == "{names.DRIVER}"')
ONE = claim_spec(device_request())


def releasing(device: Json, since: float | None = NOW - 5) -> Json:
    taint: Json = {"key": withheld.RELEASING, "effect": "NoSchedule"}
    if since is not None:
        taint["timeAdded"] = timestamps.seconds(since)
    return {**device, "taints": [taint]}


def publish(world: World, node: str, devices: list[Json], counters: list[Json] | None = None) -> None:
    """The node's slices from here on."""
    made = slice_of(node, devices, counters=counters or [])
    for each in made:
        each["spec"]["pool"]["generation"] = world.inventory.structure + 2
    world.add_slices(made)


def full(count: int, queue: str = "a", **more: Any) -> tuple[World, list[GangRequest]]:
    """One node whose GPUs are held by gangs of one of that queue."""
    world = World()
    world.now = NOW - 100
    world.flavors = (H100,)
    quotas = (FlavorQuota(flavor="h100", deserved=count // 2),)
    world.queues = (QueueSpec(name="a", quotas=quotas), QueueSpec(name="b", quotas=quotas))
    world.add_node("n", [gpu(number) for number in range(count)])
    gangs = [gang(f"run-{number}", 1, ONE, queue=queue, created=NOW - 200, **more) for number in range(count)]
    assert world.carry_out(world.decide(*gangs), gangs) == []
    world.now = NOW
    return world, gangs


def delete_by_force(world: World, name: str, since: float | None = NOW - 5, *, count: int) -> str:
    """The gang's pod and claim are gone; the node has its device still. Returns the device."""
    running = world.running[f"ml/{name}"]
    (uid,) = running.claims
    claim = world.inventory.claim(uid)
    assert claim is not None
    device = claim.devices[0].ref.device
    world.end(f"ml/{name}")
    devices = [gpu(number) for number in range(count)]
    publish(world, "n", [releasing(each, since) if each["name"] == device else each for each in devices])
    return device


def preemptors(kind: str, number: int = 0) -> GangRequest:
    more = {"priority": 5, "queue": "a"} if kind == "preempts" else {"queue": "b"}
    return gang(f"new-{number}", 1, ONE, created=NOW - 1, **more)


@pytest.mark.parametrize("kind", ["preempts", "reclaims"])
def test_a_preemptor_waits_for_what_a_node_is_releasing_and_nobody_is_evicted(kind: str) -> None:
    world, _ = full(4)
    new = preemptors(kind)
    assert len(world.decide(new).evictions) == 1
    device = delete_by_force(world, "run-2", count=4)
    plan = world.decide(new)
    assert (plan.evictions, plan.admissions) == ((), ())
    (waiting,) = plan.waiting
    assert waiting.reason.code is Code.COMING_FREE
    assert "containers of pods that were deleted by force still hold devices on n" in waiting.reason.message
    assert f"device n/{device} is being released since {timestamps.seconds(NOW - 5)}" in waiting.reason.message
    (reservation,) = plan.reservations
    assert reservation.nodes == ("n",)
    assert Engine().decide_unexplained(world.snapshot(new), world.now).evictions == ()


def test_what_a_node_is_releasing_is_awaited_for_one_gang_only() -> None:
    world, _ = full(4)
    delete_by_force(world, "run-2", count=4)
    plan = world.decide(preemptors("reclaims"), preemptors("reclaims", 1))
    assert len(plan.evictions) == 1


@pytest.mark.parametrize(
    "since",
    [NOW - RELEASING_S, NOW + 3600, None, -1e12],
    ids=["for too long", "from the future", "not known", "forever"],
)
def test_a_device_that_is_not_released_in_time_counts_no_more(since: float | None) -> None:
    world, _ = full(4)
    delete_by_force(world, "run-2", since, count=4)
    plan = world.decide(preemptors("reclaims"))
    assert len(plan.evictions) == 1


def test_it_is_decided_again_when_that_time_is_over() -> None:
    world, _ = full(4)
    delete_by_force(world, "run-2", count=4)
    plan = world.decide(preemptors("reclaims"))
    assert plan.due == NOW - 5 + RELEASING_S
    world.now = plan.due
    assert len(world.decide(preemptors("reclaims")).evictions) == 1


def test_it_is_given_once_its_node_has_released_it_and_not_before() -> None:
    world, _ = full(2)
    delete_by_force(world, "run-1", count=2)
    tolerant = device_request(tolerations=[{"operator": "Exists"}])
    for new in (preemptors("reclaims"), gang("tolerant", 1, claim_spec(tolerant), queue="b", created=NOW)):
        assert world.decide(new).admissions == ()
    publish(world, "n", [gpu(0), gpu(1)])
    assert len(world.decide(preemptors("reclaims")).admissions) == 1


def test_what_is_too_few_all_the_same_counts_it_as_being_released() -> None:
    world, _ = full(4, priority=9)
    delete_by_force(world, "run-2", count=4)
    (waiting,) = world.decide(gang("big", 1, claim_spec(device_request(3)), queue="a")).waiting
    assert dict(waiting.reason.requests[0].removed) == {Rejection.IN_USE: 3, Rejection.RELEASING: 1}


def test_a_claim_that_holds_it_already_keeps_it() -> None:
    """It was given out before the driver had seen that the claim of before is gone."""
    world, _ = full(2)
    publish(world, "n", [releasing(gpu(0)), gpu(1)])
    assert world.decide().evictions == ()
    assert [each.releasing for each in world.inventory.releasing()] == [True]
    world.end("ml/run-0")
    world.end("ml/run-1")
    assert len(world.decide(preemptors("reclaims")).admissions) == 1
    assert world.decide(gang("two", 2, ONE, queue="b")).admissions == ()


def test_of_a_gpu_cut_on_demand_what_does_not_overlap_is_given() -> None:
    devices, counters = mig_gpu(0)
    world = World()
    world.now = NOW
    world.add_node("n", devices, counters=[counters])
    ends = ("-4", "-5", "-6")
    held = [
        releasing(each) if each["name"] in {"gpu-0", "gpu-0-mig-7g-80gb-0"} or each["name"].endswith(ends) else each
        for each in devices
    ]
    publish(world, "n", held, [counters])
    half = [
        gang(f"g{number}", 1, claim_spec(device_request(device_class=MIG, cel=_profile("3g.40gb"))))
        for number in (0, 1)
    ]
    plan = world.decide(*half)
    assert [each.claims[0].allocation.devices.results[0].device for each in plan.admissions] == ["gpu-0-mig-3g-40gb-0"]
    assert [each.reason.code for each in plan.waiting] == [Code.COMING_FREE]
    assert world.decide(gang("whole", 1, ONE)).waiting[0].reason.code is Code.COMING_FREE


def _profile(name: str) -> str:
    return f'device.attributes["{names.DRIVER}"].profile == "{name}"'


def test_the_forecast_has_it_start_when_the_device_is_released() -> None:
    world, _ = full(4)
    delete_by_force(world, "run-2", count=4)
    new = replace(preemptors("reclaims"), uid="uid-new")
    before = world.inventory.version
    found = forecast(world.snapshot(new), NOW, RunTimes([]), seed=1)
    at = found.gangs["ml/new-0"].p50
    assert at is not None
    assert 0 <= at - NOW <= 60
    assert [device.name for device in world.inventory.releasing()], "the simulation puts back what it changed"
    assert world.inventory.version > before
    assert world.decide(new).admissions == ()


@given(
    st.integers(2, 8).flatmap(
        lambda count: st.tuples(st.just(count), st.sets(st.integers(0, count - 1), min_size=1), st.integers(1, 8))
    )
)
def test_as_many_as_are_being_released_wait_and_the_others_evict_as_before(case: tuple[int, set[int], int]) -> None:
    count, gone, asked = case
    world, _ = full(count)
    for number in gone:
        world.end(f"ml/run-{number}")
    taken = {
        claim.devices[0].ref.device
        for running in world.running.values()
        if (claim := world.inventory.claim(running.claims[0])) is not None
    }
    devices = [gpu(number) for number in range(count)]
    new = [preemptors("preempts", number) for number in range(asked)]
    publish(world, "n", [each if each["name"] in taken else releasing(each) for each in devices])
    plan = world.decide(*new)
    publish(world, "n", devices)
    free = world.decide(*new)
    assert len(free.admissions) == min(asked, len(gone))
    assert plan.admissions == ()
    assert len(plan.evictions) == len(free.evictions)
