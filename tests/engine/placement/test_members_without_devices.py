"""Gangs of which some members ask for no device: a place for all of them is found wherever there is one, and no gang is placed in part.

A failure prints hypothesis' own reproduction.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from tests.support.engine.examples import examples
from tests.support.engine.objects import claim_spec, device_request, gang, gpu, with_heads
from tests.support.engine.world import World

RELAXED = settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
Node = tuple[int, int]
"""Cpu and GPUs, of a node or a pod."""


def world_of(nodes: list[Node]) -> World:
    world = World()
    for number, (cpu, gpus) in enumerate(nodes):
        world.add_node(f"n{number}", [gpu(minor) for minor in range(gpus)], allocatable={"cpu": str(cpu)})
    return world


def mixed(random: Random, name: str, **more: Any) -> tuple[GangRequest, list[Node]]:
    """A gang with one to three heads, and what each of its pods asks for."""
    workers, heads, gpus = random.randint(1, 5), random.randint(1, 3), random.choice([1, 1, 2])
    cpu, head_cpu = random.randint(1, 3), random.randint(1, 5)
    made = gang(name, workers, claim_spec(device_request(gpus)), cpu=str(cpu), models="any", **more)
    return with_heads(made, heads, cpu=str(head_cpu)), [(cpu, gpus)] * workers + [(head_cpu, 0)] * heads


def nodes_of(random: Random, most: int) -> list[Node]:
    return [(random.randint(2, 8), random.choice([0, 2, 4])) for _ in range(random.randint(1, most))]


def fits(nodes: list[Node], pods: list[Node]) -> bool:
    """Whether there is any way to place all pods, by trying all of them."""
    if not pods:
        return True
    (cpu, gpus), rest = pods[0], pods[1:]
    return any(
        fits([*nodes[:number], (left[0] - cpu, left[1] - gpus), *nodes[number + 1 :]], rest)
        for number, left in enumerate(nodes)
        if left[0] >= cpu and left[1] >= gpus and left not in nodes[:number]
    )


@RELAXED
@given(random=st.randoms(use_true_random=False))
def test_a_gang_with_heads_is_placed_wherever_all_its_pods_have_a_place(random: Random) -> None:
    nodes = nodes_of(random, 4)
    wanted, pods = mixed(random, "gang")
    plan = world_of(nodes).decide(wanted)
    assert bool(plan.admissions) == fits(nodes, sorted(pods, reverse=True))


@RELAXED
@given(random=st.randoms(use_true_random=False))
def test_gangs_with_heads_start_and_go_whole_and_no_node_is_given_twice(random: Random) -> None:
    nodes = nodes_of(random, 4)
    world = world_of(nodes)
    world.flavors = (FlavorSpec(name="any", device_selector="true"),)
    world.queues = (QueueSpec(name="a", quotas=(FlavorQuota(flavor="any", deserved=4),)), QueueSpec(name="b"))
    waiting: list[GangRequest] = []
    asked: dict[str, int] = {}
    for number in range(4):
        made, pods = mixed(random, f"g{number}", queue="b" if number < 2 else "a")
        waiting.append(made)
        asked |= {member.pod.uid: pod[0] for member, pod in zip(made.members, pods[::-1], strict=True)}
        world.now += 10
        plan = world.decide(*waiting)
        _whole(world, plan, waiting)
        waiting = [*world.carry_out(plan, waiting), *world.gone()]
        used = Counter[str]()
        for running in world.running.values():
            for member in running.members:
                used[member.node] += asked[member.pod.uid]
        assert all(used[f"n{index}"] <= cpu for index, (cpu, _) in enumerate(nodes))
        assert not world.faults()


def _whole(world: World, plan: Plan, waiting: list[GangRequest]) -> None:
    by_id = {each.id: each for each in waiting}
    for admission in plan.admissions:
        assert [each.pod for each in admission.assignments] == [each.pod for each in by_id[admission.id].members]
    for eviction in plan.evictions:
        assert {*eviction.pods} == {member.pod for member in world.running[eviction.id].members}
