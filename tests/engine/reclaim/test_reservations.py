"""A reservation ends when its gang is admitted: nothing later in the decision takes it for one that is still held."""

from dataclasses import replace

from fairlead.engine.plan.postfilter import PostFilter
from fairlead.engine.plan.session import Session
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
