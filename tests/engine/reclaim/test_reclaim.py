"""Which gangs are evicted, for which others, and which are left alone."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.types.reasons import Code
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from tests.support.engine.objects import claim_spec, device_request, gang
from tests.support.engine.world import World, h100_world

ONE = claim_spec(device_request())
H100 = FlavorSpec(name="h100", device_selector=f'device.driver == "{names.DRIVER}"')


def quota(name: str, deserved: int = 0, **more) -> QueueSpec:
    return QueueSpec(name=name, quotas=(FlavorQuota(flavor="h100", deserved=deserved),), **more)


def two_queues(world: World) -> World:
    world.flavors = (H100,)
    world.queues = (quota("a", 4), quota("b", 4))
    return world


def settle(world: World, gangs):
    """Decide, carry out, let the evicted go, until nothing changes; the gangs that wait and how often it took."""
    for turn in range(10):
        plan = world.decide(*gangs)
        if (
            not plan.admissions
            and not plan.evictions
            and not any(m.leaving for r in world.running.values() for m in r.members)
        ):
            return gangs, plan
        gangs = world.carry_out(plan, gangs)
        again = world.decide(*gangs)
        assert not again.admissions and not again.evictions, (turn, again.evictions)
        gangs += world.gone()
    raise AssertionError("it never settles")


def held(world: World) -> dict[str, int]:
    found: dict[str, int] = {}
    for running in world.running.values():
        found[running.queue or ""] = found.get(running.queue or "", 0) + len(running.claims)
    return found


def test_a_queue_below_its_share_takes_back_one_gang_for_each():
    world = two_queues(h100_world(1))
    greedy = [gang(f"b{number}", 1, ONE, queue="b", created=float(number)) for number in range(8)]
    assert world.carry_out(world.decide(*greedy), greedy) == []
    poor = [gang(f"a{number}", 1, ONE, queue="a", created=100.0 + number) for number in range(6)]
    plan = world.decide(*poor)
    assert [eviction.kind for eviction in plan.evictions] == ["Reclaim"] * 4
    assert [eviction.beneficiary for eviction in plan.evictions] == ["ml/a0", "ml/a1", "ml/a2", "ml/a3"]
    assert {entry.name: entry.reason.code for entry in plan.waiting} == {
        **{f"a{n}": Code.MAKING_ROOM for n in range(4)},
        "a4": Code.OVER_SHARE,
        "a5": Code.OVER_SHARE,
    }
    settle(world, poor)
    assert held(world) == {"a": 4, "b": 4}
    assert not world.faults()


def test_eight_gpus_on_one_node_are_taken_where_they_make_a_place():
    world = two_queues(h100_world(4))
    world.queues = (quota("a", 16), quota("b", 16))
    greedy = [gang(f"b{number:02}", 1, ONE, queue="b", created=float(number)) for number in range(32)]
    assert world.carry_out(world.decide(*greedy), greedy) == []
    big = gang("big", 2, claim_spec(device_request(8)), queue="a", created=100.0)
    plan = world.decide(big)
    assert len(plan.evictions) == 16
    _, plan = settle(world, [big])
    assert held(world) == {"a": 2, "b": 16}


def test_higher_priority_takes_from_lower_in_the_same_queue():
    world = two_queues(h100_world(1))
    low = [gang(f"low{number}", 1, ONE, queue="b", created=float(number), priority=number % 2) for number in range(8)]
    world.carry_out(world.decide(*low), low)
    plan = world.decide(gang("high", 2, ONE, queue="b", priority=5))
    assert sorted((entry.name, entry.kind) for entry in plan.evictions) == [("low4", "Preempt"), ("low6", "Preempt")]
    assert world.decide(gang("equal", 2, ONE, queue="b", priority=0)).evictions == ()


def test_min_runtime_protects_and_says_until_when():
    world = two_queues(h100_world(1))
    world.queues = (quota("a", 4), quota("b", 4, min_runtime_s=3600.0))
    greedy = [gang(f"b{number}", 1, ONE, queue="b") for number in range(8)]
    world.carry_out(world.decide(*greedy), greedy)
    poor = gang("a0", 1, ONE, queue="a")
    world.now = 3599.0
    plan = world.decide(poor)
    assert plan.evictions == ()
    assert plan.waiting[0].reason.code is Code.PROTECTED
    assert "1970-01-01T01:00:00Z" in str(plan.waiting[0].reason)
    world.now = 3600.0
    assert len(world.decide(poor).evictions) == 1


def test_elastic_surplus_goes_before_whole_gangs():
    world = two_queues(h100_world(1))
    elastic = replace(gang("elastic", 4, ONE, queue="b"), size=2)
    greedy = [elastic, *(gang(f"b{number}", 1, ONE, queue="b", created=50.0) for number in range(4))]
    world.carry_out(world.decide(*greedy), greedy)
    plan = world.decide(gang("a0", 1, ONE, queue="a"), gang("a1", 2, ONE, queue="a"))
    assert [(entry.name, entry.whole, len(entry.pods)) for entry in plan.evictions] == [
        ("elastic", False, 1),
        ("elastic", False, 1),
        ("b0", True, 1),
    ]
