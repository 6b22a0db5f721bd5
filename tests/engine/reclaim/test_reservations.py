"""A reservation ends when its gang is admitted: nothing later in the decision takes it for one that is still held."""

from dataclasses import replace

import pytest

from fairlead.api import names
from fairlead.engine.plan.decide import decide
from fairlead.engine.plan.postfilter import PostFilter
from fairlead.engine.plan.session import Memory, Session
from fairlead.engine.types.reasons import Code
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World, h100_world


def test_a_reservation_says_which_pod_is_to_have_room_on_which_node_though_two_that_differ_in_it_alone_are_equal():
    world = World()
    for name in ("n0", "n1"):
        world.add_node(name, [gpu(minor) for minor in range(2)])
    world.reserve_after_s = 0.0
    small = [gang("small", 2, claim_spec(device_request(2)))]
    assert world.carry_out(world.decide(*small), small) == []
    world.now = 10.0
    large = gang("large", 2, claim_spec(device_request(2)))
    (reservation,) = world.decide(large).reservations
    assert [each.pod for each in reservation.assignments] == [member.pod for member in large.members]
    assert {each.node for each in reservation.assignments} == set(reservation.nodes) == {"n0", "n1"}
    assert replace(reservation, assignments=()) == reservation


def test_a_fulfilled_reservation_is_neither_soft_nor_cancelled_again():
    world = World()
    world.add_node("n0", [gpu(minor) for minor in range(2)])
    world.reserve_after_s = 0.0
    small = [gang("small", 1, claim_spec(device_request()))]
    assert world.carry_out(world.decide(*small), small) == []
    world.now = 10.0
    session = Session(world.snapshot(gang("large", 1, claim_spec(device_request(2)))), world.now, Memory())
    session.divide()
    session.start()
    (pending,) = session.pending.gangs
    filtered = PostFilter(session, finds_blockers=True)
    preemptor = filtered._preemptor(pending)
    reservation = filtered.reservations.reserve(pending, preemptor)
    assert filtered.reservations.of(pending) is reservation
    (place,) = filtered.reservations.usable(pending)
    assert filtered.reservations.fulfilled(pending, place)
    assert filtered.held.reservations == []
    assert filtered.reservations.of(pending) is None
    assert filtered.reservations.soft(preemptor) == []
    assert not filtered.reservations.fulfilled(pending, place)


def test_a_gang_that_is_over_its_queues_limit_says_when_its_place_is_due_and_gets_it_then_though_nothing_else_changes():
    world = h100_world(2)
    world.flavors = (FlavorSpec(name="gpu", device_selector=f'device.driver == "{names.DRIVER}"'),)
    quota = (FlavorQuota(flavor="gpu", deserved=8, limit=8),)
    world.queues = tuple(QueueSpec(name=name, quotas=quota, preemption="Never") for name in "ab")
    each = claim_spec(device_request(4))
    running = [gang(f"{queue}{number}", 1, each, queue=queue) for queue in "ab" for number in range(2)]
    assert world.carry_out(world.decide(*running), running) == []
    waits = gang("waits", 1, each, queue="a", created=10.0)
    known = world.snapshot(waits)
    early = decide(known, 20.0)
    assert (early.reservations, early.due) == ((), 10.0 + world.reserve_after_s)
    assert [each.name for each in decide(known, 10.0 + world.reserve_after_s).reservations] == ["waits"]


@pytest.mark.parametrize("mode", ["ExactCount", "All"])
def test_nothing_is_held_for_a_gang_that_only_observes(mode: str):
    """It is charged to no queue, so neither a limit nor a fair share would bound what is held for it."""
    world = World()
    world.add_node("n0", [gpu(minor) for minor in range(2)])
    world.reserve_after_s = 0.0
    works = [gang("works", 1, claim_spec(device_request()), cpu="60")]
    assert world.carry_out(world.decide(*works), works) == []
    world.now = 10.0
    observed = device_request(adminAccess=True, allocationMode=mode)
    if mode == "All":
        del observed["count"]
    plan = world.decide(gang("observes", 1, claim_spec(observed), cpu="60"))
    assert (plan.admissions, plan.reservations, plan.evictions) == ((), (), ())
    (waiting,) = plan.waiting
    assert waiting.reason.code is Code.NODES_FULL
    assert len(world.decide(gang("larger", 1, claim_spec(device_request()), cpu="60")).reservations) == 1
