"""A reservation ends when its gang is admitted: nothing later in the decision takes it for one that is still held."""

from dataclasses import replace

import pytest

from fairlead.engine.plan.postfilter import PostFilter
from fairlead.engine.plan.session import Session
from fairlead.engine.types.reasons import Code
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World


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
    session = Session(world.snapshot(gang("large", 1, claim_spec(device_request(2)))), world.now)
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
