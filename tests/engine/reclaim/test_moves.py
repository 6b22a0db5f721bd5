"""Moves: which gangs make room elsewhere, for whom, at which cost, and what forbids it."""

from __future__ import annotations

from typing import Literal

import pytest
from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.plan.decide import decide
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.plan import Eviction, Plan
from fairlead.engine.types.reasons import Code
from fairlead.engine.types.settings import DisruptionBudget, FlavorQuota, FlavorSpec, QueueSpec
from fairlead.engine.types.values import DeviceRef
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World, devices_of, nodes_of

FLAVOR = FlavorSpec(name="gpu", device_selector=f'device.driver == "{names.DRIVER}"')


def ask(name: str, gpus: int, pods: int = 1, **more: object) -> GangRequest:
    return gang(name, pods, claim_spec(device_request(gpus)), **more)  # type: ignore[arg-type]


def fragmented(*, nodes: int = 2, each: int = 4, size: int = 8, movable: bool = True, priority: int = 0) -> World:
    """On each node one gang `g<number>` of `each` GPUs runs; the rest is free."""
    world = World()
    for number in range(nodes):
        world.add_node(f"n{number}", [gpu(minor) for minor in range(size)])
    for number in range(nodes):
        for other in range(nodes):
            world.cordon(f"n{other}", other != number)
        request = ask(f"g{number}", each, priority=priority)
        if movable:
            world.movable.add(request.id)
        plan = world.decide(request)
        assert nodes_of(plan, request.name) == [f"n{number}"]
        world.carry_out(plan, [request])
    for number in range(nodes):
        world.cordon(f"n{number}", False)
    world.now = 1000.0
    return world


def moves(plan: Plan) -> dict[str, Eviction]:
    return {each.name: each for each in plan.evictions if each.kind == "Move"}


def finish(world: World, gangs: list[GangRequest]) -> Plan:
    """The plan is carried out, pods go and are made again, until nothing changes; the last plan that did something."""
    for _ in range(10):
        plan = world.decide(*gangs)
        gangs = world.carry_out(plan, gangs)
        again = world.decide(*gangs)
        assert not again.admissions
        assert not again.evictions
        assert not world.faults()
        back = world.gone()
        gangs += back
        if not plan.admissions and not plan.evictions and not back:
            return plan
        world.now += 1.0
    raise AssertionError("it never comes to rest")


def test_a_gang_of_lower_priority_moves_so_that_a_large_one_fits() -> None:
    world = fragmented()
    plan = world.decide(ask("large", 8, priority=1))
    assert not plan.admissions
    ((name, moved),) = moves(plan).items()
    assert plan.evictions == (moved,)
    assert moved.place is not None
    (there,) = {each.node for each in moved.place.assignments}
    assert there == ("n1" if name == "g0" else "n0")
    assert moved.beneficiary == "ml/large"
    assert moved.reason.code is Code.MOVED
    assert plan.waiting[0].reason.code is Code.MAKING_ROOM
    assert plan.reservations[0].kind == "Preemptor"


def test_a_move_comes_before_an_eviction_for_good() -> None:
    world = fragmented(movable=False)
    killed = world.decide(ask("large", 8, priority=1))
    assert [each.kind for each in killed.evictions] == ["Preempt"]
    world = fragmented()
    assert [each.kind for each in world.decide(ask("large", 8, priority=1)).evictions] == ["Move"]


@pytest.mark.parametrize("priority", [0, -1])
def test_not_for_the_same_or_a_lower_priority(priority: int) -> None:
    world = fragmented()
    assert not world.decide(ask("large", 8, priority=priority, created=900.0)).evictions


@pytest.mark.parametrize("priority", [0, -1])
def test_for_any_priority_once_it_serves_a_reservation(priority: int) -> None:
    world = fragmented()
    large = ask("large", 8, priority=priority, created=500.0)
    early = world.decide(large)
    assert not early.evictions
    assert early.due == 500.0 + world.reserve_after_s
    world.now = early.due
    assert len(moves(world.decide(large))) == 1


def test_the_fewest_gpu_seconds_move() -> None:
    """Of three gangs alike the one that saved last; of a small and a large one the small one."""
    world = fragmented(nodes=3)
    world.running["ml/g1"] = replace(world.running["ml/g1"], checkpointed=990.0)
    plan = world.decide(ask("large", 8, priority=1))
    assert list(moves(plan)) == ["g1"]
    assert moves(plan)["g1"].gpu_seconds == 4 * (10 + 300)
    world.running["ml/g2"] = replace(world.running["ml/g2"], checkpointed=990.0, restart_s=20.0)
    plan = world.decide(ask("large", 8, priority=1))
    assert list(moves(plan)) == ["g2"]
    assert "120 GPU-seconds" in moves(plan)["g2"].reason.message


@pytest.mark.parametrize(("first", "second", "victim"), [
    ({}, {"started": 10.0}, "g1"),
    ({"checkpointed": 990.0}, {"started": 10.0}, "g0"),
    ({"checkpointed": 990.0}, {"checkpointed": 980.0, "started": 10.0}, "g0"),
    ({"checkpointed": 990.0, "restart_s": 60.0}, {"checkpointed": 980.0, "restart_s": 20.0}, "g1"),
    ({"restart_s": 20.0}, {"started": 10.0, "restart_s": 60.0}, "g0"),
])  # fmt: skip
def test_a_gang_that_is_stopped_for_good_is_also_the_one_that_loses_least(
    first: dict[str, float], second: dict[str, float], victim: str
) -> None:
    """By its last checkpoint, else its start, and by what its restart takes where that is known."""
    world = fragmented(each=8, movable=False)
    world.queues = (QueueSpec(name="q"),)
    for name, changed in (("g0", first), ("g1", second)):
        world.running[f"ml/{name}"] = replace(world.running[f"ml/{name}"], queue="q", **changed)
    plan = world.decide(ask("large", 8, priority=1, queue="q"))
    assert [(each.name, each.kind) for each in plan.evictions] == [(victim, "Preempt")]


def test_not_within_its_min_runtime_and_so_not_twice_within_it() -> None:
    world = fragmented()
    for key, running in world.running.items():
        world.running[key] = replace(running, min_runtime_s=2000.0)
    plan = world.decide(ask("large", 8, priority=1))
    assert not plan.evictions
    assert plan.due == 2000.0
    world.now = 2000.0
    assert moves(world.decide(ask("large", 8, priority=1)))


def test_what_has_just_started_is_looked_at_again_when_it_may_move() -> None:
    world = fragmented()
    for key, running in world.running.items():
        world.running[key] = replace(running, started=900.0, restart_s=120.0)
    never = ask("large", 8, priority=1, preempts=True)
    world.queues = (QueueSpec(name="q", preemption="Never"),)
    world.running = {key: replace(each, queue="q") for key, each in world.running.items()}
    plan = world.decide(replace(never, queue="q"))
    assert not plan.evictions
    assert plan.due == 1020.0
    world.now = plan.due
    assert moves(world.decide(replace(never, queue="q")))


def test_a_gang_that_comes_back_takes_the_devices_of_its_place_and_others_only_where_those_are_gone() -> None:
    world = World()
    world.add_node("n0", [gpu(minor) for minor in range(8)])
    own = tuple(DeviceRef(names.DRIVER, "n0", name) for name in ("gpu-2", "gpu-5"))
    back = replace(ask("back", 2), kept=own, replaces=True)
    assert devices_of(world.decide(back), "back") == ["gpu-2", "gpu-5"]
    assert devices_of(world.decide(ask("back", 2)), "back") == ["gpu-0", "gpu-1"]
    other = replace(ask("other", 1), kept=own[:1], replaces=True)
    world.carry_out(world.decide(other), [other])
    assert len(devices_of(world.decide(back), "back")) == 2


@pytest.mark.parametrize("preemption", ["LowerPriority", "Never"])
def test_a_place_on_a_node_that_pods_are_leaving_is_held_only_where_the_gang_would_be_evicted_otherwise(
    preemption: Literal["LowerPriority", "Never"],
) -> None:
    """Which of its devices are left is settled when they are gone: until then each decision might move one gang more."""
    world = World()
    for name in ("n0", "n1"):
        world.add_node(name, [gpu(minor) for minor in range(4)])
    world.movable = {"ml/small"}
    world.queues = (QueueSpec(name="q", preemption=preemption),)
    for name, gpus, node in (("small", 1, "n1"), ("stays", 2, "n1"), ("ends", 1, "n0"), ("ends-too", 1, "n0")):
        world.cordon("n0", node != "n0")
        world.cordon("n1", node != "n1")
        request = ask(name, gpus, queue="q")
        world.carry_out(world.decide(request), [request])
    world.cordon("n0", False)
    world.cordon("n1", False)
    world.now = 1000.0
    for key in ("ml/ends", "ml/ends-too"):
        members = tuple(replace(each, leaving=True) for each in world.running[key].members)
        world.running[key] = replace(world.running[key], members=members)
    waiting = [ask("first", 3, priority=2, queue="q"), ask("second", 2, priority=1, queue="q")]
    plan = world.decide(*waiting)
    assert [each.kind for each in plan.evictions] == (["Move"] if preemption == "LowerPriority" else [])
    world.gone()
    plan = world.decide(*waiting)
    assert [each.name for each in plan.admissions] == ["first"]
    assert {each.beneficiary for each in moves(plan).values()} == {"ml/second"}


def test_budgets_forbid_a_move_as_they_do_an_eviction() -> None:
    world = fragmented()
    world.budgets = (DisruptionBudget(namespace="ml", name="safe", allowed=0),)
    for key, running in world.running.items():
        members = tuple(replace(member, guarded_by=("safe",)) for member in running.members)
        world.running[key] = replace(running, members=members)
    assert not world.decide(ask("large", 8, priority=1)).evictions
    world.budgets = ()
    world.queues = (QueueSpec(name="q", namespace_selector=None, evictions_left=0),)
    for key, running in world.running.items():
        members = tuple(replace(member, guarded_by=()) for member in running.members)
        world.running[key] = replace(running, queue="q", members=members)
    assert not world.decide(ask("large", 8, priority=1, queue="q")).evictions


def test_a_budget_that_allows_each_of_two_gangs_does_not_allow_both() -> None:
    world = World()
    for name in ("n0", "n1"):
        world.add_node(name, [gpu(minor) for minor in range(4)])
    world.cordon("n1", True)
    for name in ("g0", "g1"):
        request = ask(name, 1)
        world.movable.add(request.id)
        world.carry_out(world.decide(request), [request])
    world.cordon("n1", False)
    stays = ask("stays", 2)
    world.carry_out(world.decide_with(decide, replace(stays, avoid=("n0",))), [stays])
    world.now = 1000.0
    for key in ("ml/g0", "ml/g1"):
        members = tuple(replace(each, guarded_by=("safe",)) for each in world.running[key].members)
        world.running[key] = replace(world.running[key], members=members)
    found = {}
    for allowed in (1, 2):
        world.budgets = (DisruptionBudget(namespace="ml", name="safe", allowed=allowed),)
        found[allowed] = [each.name for each in world.decide(ask("large", 4, priority=1)).evictions]
    assert found == {1: ["stays"], 2: ["g0", "g1"]}


def test_a_queue_says_that_its_gangs_may_move_and_a_gang_that_it_may_not() -> None:
    world = fragmented()
    world.queues = (QueueSpec(name="org", movable=True), QueueSpec(name="q", parent="org"))
    for key, running in world.running.items():
        world.running[key] = replace(running, queue="q", movable=None)
    assert moves(world.decide(ask("large", 8, priority=1, queue="q")))
    for key, running in world.running.items():
        world.running[key] = replace(running, movable=False)
    assert not moves(world.decide(ask("large", 8, priority=1, queue="q")))


def test_not_where_too_little_is_free_in_sum() -> None:
    world = fragmented(each=5)
    assert not moves(world.decide(ask("large", 8, priority=1)))


def test_a_moved_gang_keeps_within_its_topology() -> None:
    world = World()
    for number, rack in enumerate("aabb"):
        world.add_node(f"n{number}", [gpu(minor) for minor in range(4)], labels={"rack": rack})
    spread = replace(ask("g", 2, 2, topology="required:rack"), size=2)
    world.movable.add(spread.id)
    world.cordon("n2", True)
    world.cordon("n3", True)
    world.queues = ()
    first = world.decide(spread)
    world.carry_out(first, [spread])
    world.cordon("n2", False)
    world.cordon("n3", False)
    blocker = ask("b", 3, priority=9)
    world.carry_out(world.decide(blocker), [blocker])
    large = ask("large", 4, 2, priority=5, topology="required:rack")
    plan = world.decide(large)
    for each in moves(plan).values():
        assert each.place is not None
        racks = {world.node_json[a.node]["metadata"]["labels"]["rack"] for a in each.place.assignments}
        assert len(racks) == 1


def test_its_queue_stays_charged_while_it_moves_and_no_other_takes_its_share() -> None:
    world = fragmented()
    world.flavors = (FLAVOR,)
    world.queues = (
        QueueSpec(name="q", quotas=(FlavorQuota(flavor="gpu", deserved=8, limit=8),)),
        QueueSpec(name="top", quotas=(FlavorQuota(flavor="gpu", deserved=8),)),
    )
    for key, running in world.running.items():
        world.running[key] = replace(running, queue="q")
        world.requests[key] = replace(world.requests[key], queue="q")
        moved = replace(running.relocation, queue="q") if running.relocation else None
        world.running[key] = replace(world.running[key], relocation=moved)
    large = ask("large", 8, priority=1, queue="top")
    plan = world.decide(large)
    assert len(moves(plan)) == 1
    gangs = world.carry_out(plan, [large])
    back = world.gone()
    assert len(back) == 1
    thief = ask("thief", 1, queue="q", created=5.0)
    plan = world.decide(*gangs, thief)  # before its pods are made again
    assert [each.name for each in plan.admissions] == ["large"]
    assert next(each for each in plan.waiting if each.name == "thief").reason.code is Code.OVER_LIMIT
    gangs = world.carry_out(plan, [*gangs, thief])
    plan = world.decide(*gangs, *back)
    assert [each.name for each in plan.admissions] == [back[0].name]


# -- nodes that go ---------------------------------------------------------------------------------------------------


def announce(world: World, node: str, since: str = "1970-01-01T00:16:00Z") -> None:
    taint = {"key": "aws-node-termination-handler/spot-itn", "effect": "NoSchedule", "timeAdded": since}
    world.node_json[node]["spec"] = {"taints": [taint]}
    from msgspec import convert

    from fairlead.kube import core

    world.nodes.set_node(convert(world.node_json[node], core.Node))


def test_a_movable_gang_leaves_a_node_that_goes_though_it_serves_no_other() -> None:
    world = fragmented()
    for key, running in world.running.items():
        world.running[key] = replace(running, min_runtime_s=9999.0, checkpoint_grace_s=600.0)
    announce(world, "n0")
    plan = world.decide()
    moved = moves(plan)["g0"]
    assert moved.beneficiary == ""
    assert moved.checkpoint_grace_s == 80.0  # two minutes after the taint, at 1,080 s
    assert moved.place is not None
    assert {each.node for each in moved.place.assignments} == {"n1"}
    assert "spot interruption" in moved.reason.message
    finish(world, [])
    assert {member.node for member in world.running["ml/g0"].members} == {"n1"}


def test_no_new_gang_starts_on_a_node_that_goes_whatever_it_tolerates() -> None:
    world = fragmented(movable=False)
    announce(world, "n0")
    tolerant = gang(
        "tolerant", 1, claim_spec(device_request(4)), pod={"tolerations": [{"operator": "Exists"}]}, created=1.0
    )
    plan = world.decide(tolerant)
    assert nodes_of(plan, "tolerant") == ["n1"]
