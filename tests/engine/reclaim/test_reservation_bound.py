"""How long a feasible gang can be passed over: until those have ended that ran where it will run, whoever else arrives.

Beside the one-queue case in `test_reclaim_properties`: here others bring small gangs all the time, and may not be evicted.
"""

from __future__ import annotations

from itertools import pairwise, product
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from tests.support.engine.examples import examples
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World

FLAVOR = FlavorSpec(name="gpu", device_selector=f'device.driver == "{names.DRIVER}"')
ONE = claim_spec(device_request())
RELAXED = settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))


def missing(free: list[int], pods: int, each: int) -> int:
    """How many gangs of one GPU have to end on these nodes before so many pods of `each` GPUs fit, one at least on each."""
    spread = [chosen for chosen in product(range(1, pods + 1), repeat=len(free)) if sum(chosen) == pods]
    return min(sum(max(0, count * each - left) for count, left in zip(chosen, free, strict=True)) for chosen in spread)


@given(st.data())
@RELAXED
def test_a_gang_of_many_nodes_starts_when_as_many_have_ended_as_ran_there(data: st.DataObject):
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    pods = data.draw(st.integers(1, len(sizes) - 1))
    each = sorted(sizes, reverse=True)[pods - 1]
    world = World()
    for number, size in enumerate(sizes):
        world.add_node(f"n{number}", [gpu(minor) for minor in range(size)])
    world.flavors, world.reserve_after_s = (FLAVOR,), 5.0
    owned = data.draw(st.booleans())
    world.queues = (
        QueueSpec(name="big", quotas=(FlavorQuota(flavor="gpu", deserved=pods * each if owned else 0, weight=1e6),)),
        QueueSpec(name="small", quotas=(FlavorQuota(flavor="gpu"),), min_runtime_s=1e9),
    )
    small = [gang(f"s{number}", 1, ONE, queue="small") for number in range(sum(sizes))]
    assert world.carry_out(world.decide(*small), small) == []
    dice = Random(data.draw(st.integers(0, 10_000)))  # which gang ends next: any of them
    gangs: list[GangRequest] = [gang("large", pods, claim_spec(device_request(each)), queue="big", created=world.now)]
    blocking: list[int] = []
    for number in range(10 * sum(sizes)):
        world.now += 3.0
        gangs.append(replace(gang(f"more{number}", 1, ONE, queue="small"), created=world.now))
        plan = world.decide(*gangs)
        assert not plan.evictions, "those who run are protected"
        gangs = world.carry_out(plan, gangs)
        if "ml/large" in world.running:
            break
        reserved = {entry.name: entry.nodes for entry in plan.reservations}
        if number > 1:  # the reservation was due at 5 s
            held = [member.node for entry in world.running.values() for member in entry.members]
            free = [len(world.inventory.on_node(name, {}).devices) - held.count(name) for name in reserved["large"]]
            blocking.append(missing(free, pods, each))
        world.end(dice.choice(sorted(world.running)))
    else:
        raise AssertionError(f"it never starts: {blocking}")
    assert all(later <= earlier for earlier, later in pairwise(blocking)), blocking
