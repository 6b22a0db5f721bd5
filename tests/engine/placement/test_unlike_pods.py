"""Pods of which no two are alike: what a decision on thousands of them costs, counted in looks at nodes, and that it is the same.

A tenant may submit pods that differ by a thousandth of a core. Whether a node has devices for them, and which nodes refuse
them, is the same question for most of them, and is to be answered once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.engine.allocator.result import SearchStatus
from fairlead.engine.allocator.steps import StepBudget
from fairlead.engine.explain import counts, nodes
from fairlead.engine.explain.nodes import NodeRefusals, NodeRoom
from fairlead.engine.placement.capacity import device_fit, scored_nodes, unit_capacity
from fairlead.engine.plan import pending
from fairlead.engine.plan.session import Memory
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.reasons import Code
from tests.support.engine.examples import examples
from tests.support.engine.objects import Json, claim_spec, device_request, gang, gpu
from tests.support.engine.world import World

NODES = 20
ONE = claim_spec(device_request())


def _full() -> World:
    world = World()
    for number in range(NODES):
        world.add_node(f"node-{number:02d}", [gpu(minor) for minor in range(2)])
    first = [gang(f"first-{number}", 1, ONE) for number in range(2 * NODES)]
    world.carry_out(world.decide(*first), first)
    return world


UNLIKE: dict[str, Callable[[int], Json]] = {
    "cpu": lambda n: {"containers": [{"name": "c", "resources": {"requests": {"cpu": f"{1000 + n}m"}}}]},
    "memory": lambda n: {"containers": [{"name": "c", "resources": {"requests": {"memory": f"{1000 + n}Mi"}}}]},
    "preference": lambda n: {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": n + 1, "preference": {"matchExpressions": [{"key": "rack", "operator": "Exists"}]}}]}}},
}  # fmt: skip


@pytest.mark.parametrize("kind", UNLIKE)
def test_unlike_pods_on_a_full_cluster_cost_no_look_at_each_node_for_each(kind: str, monkeypatch: pytest.MonkeyPatch):
    looks = 0

    def counted(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def look(*args: Any, **more: Any) -> Any:
            nonlocal looks
            looks += 1
            return real(*args, **more)

        monkeypatch.setattr(owner, name, look)

    world = _full()
    waiting = [gang(f"u-{number:03d}", 1, ONE, pod=UNLIKE[kind](number)) for number in range(200)]
    counted(device_fit.DeviceFit, "spare")
    counted(scored_nodes.ScoredNodes, "score")
    counted(counts.ShortageCounter, "_count_on")
    counted(nodes, "_refusal")
    counted(unit_capacity, "_pods_when_empty")
    plan = world.decide(*waiting)
    assert len(plan.waiting) == 200
    assert looks < 10 * NODES + 2 * len(waiting), looks  # a look at each node for each pod would be 4,000 times four


def test_unlike_pods_are_told_what_each_of_them_lacks():
    """Pods of one refusal class share counts; the example names the amount that this very pod wants."""
    world = World()
    world.add_node("a", [gpu(0)], allocatable={"cpu": "4"})
    world.add_node("b", [gpu(0)], allocatable={"cpu": "8"})
    plan = world.decide(*[gang(f"u-{cores}", 1, ONE, cpu=str(cores)) for cores in (9, 10, 11)])
    told = {each.name: str(each.reason) for each in plan.waiting}
    for cores in (9, 10, 11):
        assert f"4 left, {cores} wanted" in told[f"u-{cores}"], told


AMOUNTS = st.integers(0, 5)


@given(
    nodes=st.lists(st.tuples(AMOUNTS, AMOUNTS, st.booleans()), min_size=1, max_size=4),
    wanted=st.lists(st.tuples(AMOUNTS, AMOUNTS, st.booleans()), min_size=2, max_size=6),
)
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_pods_of_one_refusal_class_are_refused_by_the_same_nodes_for_the_same_reasons(
    nodes: list[tuple[int, int, bool]], wanted: list[tuple[int, int, bool]]
):
    world = World()
    for number, (cpu, memory, labelled) in enumerate(nodes):
        has = {"cpu": str(cpu), "memory": str(memory)}
        world.add_node(f"n{number}", [gpu(0)], allocatable=has, labels={"x": "y"} if labelled else {})
    cache = Memory().cache(world.snapshot())
    snapshot, ledger, room = cache.node_snapshot, cache.placer.ledger, NodeRoom()
    room.update(snapshot, ledger)
    known: dict[object, NodeRefusals] = {}
    for number, (cpu, memory, labelled) in enumerate(wanted):
        requests = {"cpu": str(cpu), "memory": str(memory)}
        body: Json = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
        body |= {"nodeSelector": {"x": "y"}} if labelled else {}
        needs = [member.needs for member in gang(f"g{number}", 1, None, pod=body).members]
        own = NodeRefusals(needs)
        own.update(snapshot, ledger)
        shared = known.setdefault(room.refusal_class(needs, snapshot, ledger), own)
        assert shared.willing == own.willing
        assert shared.shortages(needs, ledger) == own.shortages(needs, ledger)


@given(
    nodes=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), min_size=1, max_size=4),
    size=st.integers(1, 5),
    count=st.integers(1, 3),
    cpu=st.integers(0, 4),
    port=st.booleans(),
)
@settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whether_alike_pods_ever_fit_is_what_a_search_finds(
    nodes: list[tuple[int, int]], size: int, count: int, cpu: int, port: bool
):
    world = World()
    for number, (devices, cores) in enumerate(nodes):
        world.add_node(f"n{number}", [gpu(minor) for minor in range(devices)], allocatable={"cpu": str(cores)})
    ports = [{"containerPort": 80, "hostPort": 80}] if port else []
    container = {"name": "c", "resources": {"requests": {"cpu": str(cpu)}}, "ports": ports}
    request: GangRequest = gang("g", size, claim_spec(device_request(count)), pod={"containers": [container]})
    cache = Memory().cache(world.snapshot(request))
    units = cache.shapes.units(request)
    placer, domains = cache.empty
    placer.begin()
    found = unit_capacity.alike_fit(units, placer.node_snapshot, placer.device_fit(units[0].shape))
    searched = domains.place(request, units, StepBudget(100_000), spread=False)
    assert found is (searched.status is SearchStatus.FOUND)


def _selecting(number: int) -> Json:
    return claim_spec(device_request(cel=f'device.driver != "other-{number}"'))


def test_a_namespace_with_too_many_kinds_of_selector_is_served_kind_by_kind_and_delays_no_other(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(pending, "KINDS_MIN", 3)
    monkeypatch.setattr(pending, "EVALUATIONS", 0)
    world = _full()
    red = [gang(f"r-{number}", 1, _selecting(number), namespace="red", created=9.0 - number) for number in range(9)]
    red.append(gang("alike", 1, _selecting(8), namespace="red", created=10.0))  # of the kind that waits longest
    red.append(gang("none", 1, ONE, namespace="red", created=11.0))  # without a selector of its own
    blue = gang("blue", 1, _selecting(100), namespace="blue", created=12.0)
    plan = world.decide(*red, blue)
    late = {each.name for each in plan.waiting if each.reason.code is Code.SEARCH_ENDED}
    assert late == {f"r-{number}" for number in range(6)}
    told = next(str(each.reason) for each in plan.waiting if each.name == "r-0")
    assert told.startswith("More kinds of device selector wait in namespace red than a decision has time for"), told
    world.add_node("more", [gpu(minor) for minor in range(8)])
    left: list[GangRequest] = [*red, blue]
    for _ in range(4):
        left = world.carry_out(world.decide(*left), left)
    assert [each.name for each in left] == [
        "r-0",
        "r-1",
        "r-2",
        "r-3",
    ]  # eight of twelve found a device, the oldest first
