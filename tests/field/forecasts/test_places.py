"""A gang's place is that in its own queue: the only one that waits there is first, whoever waits elsewhere."""

from __future__ import annotations

from fairlead.engine.types.settings import QueueSpec
from tests.support.engine.objects import claim_spec, device_request, gang
from tests.support.engine.world import h100_world

WHOLE = claim_spec(device_request(8))


def test_places_count_those_that_wait_in_the_same_queue():
    world = h100_world(1)
    world.queues = tuple(QueueSpec(name=name) for name in ("a", "b"))
    starts = gang("starts", 1, WHOLE, queue="a", created=0.0)
    waiting = [gang(f"a{n}", 1, WHOLE, queue="a", created=1.0 + n) for n in range(3)]
    only = gang("only", 1, WHOLE, queue="b", created=9.0)
    plan = world.decide(starts, *waiting, only)
    assert {each.name: each.place for each in plan.waiting} == {"a0": 1, "a1": 2, "a2": 3, "only": 1}
