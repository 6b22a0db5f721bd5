"""A reservation ends when its gang is admitted: nothing later in the decision takes it for one that is still held."""

from fairlead.engine.plan.postfilter import PostFilter
from fairlead.engine.plan.session import Session
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World


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
