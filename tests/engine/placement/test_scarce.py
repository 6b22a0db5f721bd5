"""Scarce requests: places left for demand classes are counted, and what takes them is chosen last."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fairlead.api import names
from fairlead.engine.inventory.ledger import Ledger
from fairlead.engine.inventory.selectors import Selectors
from fairlead.engine.placement.model import NodeSnapshot
from fairlead.engine.placement.value.node_leftovers import NodeLeftovers
from fairlead.engine.placement.value.scarce import STEP, Scarce, ScarceRequests, _Sort
from fairlead.engine.placement.value.workload import (
    DEMANDS_MAX,
    FIRST,
    WEIGHT,
    DemandClasses,
    Pace,
    RequestKind,
    WorkloadCounter,
    mix,
)
from fairlead.engine.plan.session import Memory
from fairlead.engine.types.gangs import GangRequest
from tests.support.engine.mixes import MEMORY, seen, share, shared_gpus
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World


def whole(count: int) -> dict[str, Any]:
    return claim_spec(device_request(count))


def add(world: World, name: str, gpus: int, cpu: str = "64") -> None:
    world.add_node(name, shared_gpus(gpus), allocatable={"cpu": cpu})


def placed(world: World, request: GangRequest) -> str:
    """The node."""
    plan = world.decide(request)
    world.carry_out(plan, [request])
    return plan.admissions[0].assignments[0].node


def scarce(world: World) -> ScarceRequests:
    """As the last decision left it, brought up to date."""
    fragmentation = Memory().cache(world.snapshot()).placer.fragmentation
    assert fragmentation is not None
    return fragmentation.ahead


# ---------------------------------------------------------------------------------------------------- which node


MIX = ((share(52), 100, "1"), (share(26), 300, "1"), (share(19), 200, "1"), (whole(2), 20, "1"))


def small_beside_52(pairs: int) -> str:
    """Where 19 of 80 GiB go: beside 52, where the usual 26 would fit, or onto one of so many nodes with two free GPUs."""
    world = World()
    add(world, "a", 1)
    for number in range(pairs):
        add(world, f"pair-{number:02}", 2)
    placed(world, gang("big", 1, share(52)))
    world.workload = seen(*MIX)
    return placed(world, gang("small", 1, share(19)))


def test_where_places_are_plenty_a_share_goes_where_it_wastes_least():
    assert small_beside_52(pairs=40).startswith("pair-")


def test_where_places_are_scarce_a_share_keeps_off_them_even_if_it_wastes_more():
    """One place for two GPUs, and likely a request for it still to come."""
    assert small_beside_52(pairs=1) == "a"


def test_a_pod_without_a_gpu_leaves_its_cpu_to_a_scarce_request():
    """By loss alone it would go to `a`, whose CPU is worth less to the many small requests than that of `b`."""
    world = World()
    add(world, "a", 4, cpu="96")
    add(world, "b", 2, cpu="20")
    world.workload = seen((share(26), 400, "8"), (share(40), 400, "8"), (whole(4), 10, "90"))
    assert placed(world, gang("cpu-only", 1, None, cpu="8")) == "b"


def test_a_request_that_nobody_made_yet_is_kept_a_place_for():
    """No pod asked for four GPUs; new kinds of pod still come, and one may."""
    world = World()
    for name in ("a", "b"):
        add(world, name, 4)
    world.workload = seen((share(26), 40, "1"), *((share(30 + number), 1, "1") for number in range(20)))
    where = {placed(world, gang(f"g{number}", 1, share(26))) for number in range(6)}
    assert len(where) == 1
    assert placed(world, gang("four", 1, whole(4))) not in where


# ------------------------------------------------------------------------------------------------- what is counted


def scarce_kinds(world: World, pace: Pace) -> list[RequestKind]:
    """Kinds by which places of scarce classes are counted."""
    ahead = scarce(world)
    return [
        ahead.kinds[each.kind] for index in sorted(ahead.look(pace).classes) for each in ahead.classes[index].counted
    ]


def test_a_kind_is_scarce_while_it_has_places_and_less_than_will_be_asked_for():
    def found(nodes: int) -> set[int]:
        world = World()
        for number in range(nodes):
            add(world, f"n{number:02}", 8)
        world.workload = seen((share(40), 100, "1"), (whole(8), 10, "1"))
        assert scarce(world).places[:1] == [WEIGHT * 8000 * nodes][:nodes]
        return {kind.count for kind in scarce_kinds(world, Pace(1000.0, 0.0))}

    assert found(1) == {8}
    assert found(6) == {8}  # 48 GPUs: 50 or so pods are expected, 5 of them for eight
    assert found(0) == set()


def test_kinds_that_take_the_same_places_are_expected_together():
    """Eight nodes for eight GPUs are plenty for each of two kinds, and few for both; that with less CPU is the one that both take."""

    def found(*large: tuple[int, str]) -> set[int]:
        world = World()
        for number in range(8):
            add(world, f"n{number:02}", 8, cpu="128")
        world.workload = seen((share(40), 100, "1"), *((whole(8), count, cpu) for count, cpu in large))
        return {kind.cpu for kind in scarce_kinds(world, Pace(1400.0, 0.0, 1000)) if kind.needs}

    assert found((6, "64")) == set()
    assert found((6, "96")) == set()
    assert found((6, "64"), (6, "96")) == {64_000}


def test_known_kinds_are_not_expected_for_the_places_of_new_ones():
    """Else a cluster's many kinds, whatever model they ask for, would keep any node whole. Ten nodes are few for a known kind."""
    world = World()
    for number in range(10):
        add(world, f"n{number:02}", 8, cpu="128")
    world.workload = seen((share(40), 1000, "1"), (whole(8), 100, "96"))
    assert {kind.needs is None for kind in scarce_kinds(world, Pace(110.0, 0.0, 1100))} == {False}


def test_what_is_expected_ends_with_whatever_ends_first():
    ahead = ScarceRequests((), NodeLeftovers(NodeSnapshot(Selectors()), Ledger()))
    ahead.free, ahead.cpu = 8000, 20_000
    by_devices, by_cpu = ahead.expected(Pace(500.0, 0.0)), ahead.expected(Pace(500.0, 4000.0))
    assert 16 <= by_devices <= 16 * STEP
    assert 5 <= by_cpu <= 5 * STEP
    ahead.free = 0
    assert ahead.expected(Pace(500.0, 0.0)) == 1


def test_what_a_placement_takes_is_places_times_their_size():
    """Eight GPUs and 96 cores: one place for eight, four for two. A share takes one of each."""
    kinds = [RequestKind(None, None, 8, 64_000, 0.1), RequestKind(None, None, 2, 6_000, 0.1)]
    shares = (1000, 1000)
    sort = _Sort(kinds, DemandClasses(kinds).on([shares]), shares)
    rooms = (1000,) * 8

    def taken(
        rooms: tuple[int, ...], count: int, share: int, cpu: int, room: int, scarce: tuple[int, ...] = (0, 1)
    ) -> float:
        return sort.taken(rooms, 96_000, count, share, cpu, room, Scarce(1, frozenset(scarce))) / WEIGHT

    assert sort.places(rooms, 96_000) == (WEIGHT * 8000, WEIGHT * 4 * 2000)
    assert taken(rooms, 1, 250, 4_000, 1000) == 8000 + 2000
    assert taken(rooms, 1, 250, 4_000, 1000, scarce=(1,)) == 2000
    assert taken(rooms, 1, 250, 4_000, 1000, scarce=()) == 0
    assert taken((750, *rooms[1:]), 1, 250, 4_000, 750) == 0
    assert taken(rooms, 0, 0, 40_000, 0) == 8000  # CPU only
    assert taken(rooms, 2, 1000, 4_000, 1000) == 8000 + 2000
    assert sort.places(rooms, -1) == (0, 0)


# ------------------------------------------------------------------------------------------ devices of one model


PRODUCT = f'device.attributes["{names.DRIVER}"].productName'


def of_model(model: str, gib: int) -> dict[str, Any]:
    memory = {"requests": {"memory": f"{gib}Gi"}}
    return claim_spec(device_request(capacity=memory, cel=f'{PRODUCT} == "{model}"'))


def add_model(world: World, name: str, model: str, gpus: int) -> None:
    devices = [gpu(minor, product=model, memory=MEMORY, allowMultipleAllocations=True) for minor in range(gpus)]
    world.add_node(name, devices, allocatable={"cpu": "64"})


def where_a_share_goes(rare: int) -> str:
    """Beside 20 GiB of one of two GPUs of a model that `rare` of 1,000 pods name, or onto one of four others, which nobody names.

    By waste alone it goes beside the 20 GiB: 60 are the usual rest.
    """
    world = World()
    add_model(world, "a", "rare", 2)
    for number in range(4):
        add_model(world, f"b{number}", "common", 1)
    placed(world, gang("first", 1, of_model("rare", 20)))
    world.workload = seen(
        (share(60), 500, "1"), (share(20), 500 - rare, "1"), *([(of_model("rare", 60), rare, "1")] if rare else [])
    )
    return placed(world, gang("share", 1, share(60)))


def test_devices_of_a_model_are_kept_for_pods_that_name_it():
    assert where_a_share_goes(rare=0) == "a"
    assert where_a_share_goes(rare=300).startswith("b")


def test_what_can_go_nowhere_else_is_expected_together():
    """Two kinds name one model, a third that model or another: the first two are a class, and all three are one."""
    world = World()
    add_model(world, "a", "first", 8)
    add_model(world, "b", "second", 8)
    add_model(world, "c", "third", 8)
    either = claim_spec(device_request(cel=f'{PRODUCT} in ["first", "second"]'))
    world.workload = seen(
        (share(80), 60, "1"), (of_model("first", 80), 20, "1"), (of_model("first", 40), 10, "1"), (either, 10, "1")
    )
    ahead = scarce(world)
    found = {frozenset(each.kind for each in one.counted): one for one in ahead.classes}
    both, three = found[frozenset({1, 2})], found[frozenset({1, 2, 3})]
    assert both.mean == pytest.approx(0.2 * 1000 + 0.1 * 500)
    assert both.square == pytest.approx(0.2 * 1000**2 + 0.1 * 500**2)
    assert three.mean == pytest.approx(both.mean + 0.1 * 1000)
    assert [each.weight for each in both.counted] == [800, 200]
    # Eight GPUs: eight of the first kind, or sixteen of the second.
    assert ahead.places[ahead.classes.index(both)] == (800 * 8 * 1000) + (200 * 16 * 500)


def test_nodes_that_others_may_not_use_are_no_reason_to_keep_any_free():
    """A class is the nodes that a kind is bound to. Where all kinds can use all nodes there is none."""
    world = World()
    add_model(world, "a", "first", 2)
    world.workload = seen((share(80), 60, "1"), (of_model("first", 80), 20, "1"))
    assert [each for each in scarce(world).classes if len(each.counted) > 1] == []


# ------------------------------------------------------------------------------------- the same from any history


KINDS = [
    (share(8), "1"),
    (share(37), "6"),
    (share(64), "9"),
    (whole(2), "4"),
    (whole(4), "30"),
    (None, "5"),
    (of_model("rare", 20), "2"),
    (of_model("rare", 50), "2"),
]


@pytest.mark.one_in(8)
@pytest.mark.parametrize("seed", range(8))
def test_counts_are_those_of_a_count_of_all_nodes_and_plans_those_of_a_fresh_cache(seed: int):
    """Through pods that come and go, nodes that are cordoned, go and come, and mixes that change."""
    dice = random.Random(seed)
    world = World()
    for number in range(6):
        add(world, f"n{number}", dice.choice((1, 2, 4)), cpu=dice.choice(("16", "64")))
    counter = WorkloadCounter()
    for step in range(90):
        spec, cpu = dice.choice(KINDS)
        request = gang(f"g{step}", 1, spec, cpu=cpu)
        for _ in range(3):
            counter.note(request)
        world.workload = counter.workload()
        event = dice.random()
        if event < 0.15 and world.running:
            world.end(dice.choice(sorted(world.running)))
        elif event < 0.2:
            world.cordon(dice.choice(sorted(world.node_json)), dice.random() < 0.5)
        elif event < 0.25:
            add_model(world, f"n{6 + step}", dice.choice(("rare", "common")), dice.choice((2, 4, 8)))
        elif event < 0.28 and len(world.node_json) > 3:
            free = set(world.node_json) - {node for _, node in world.pods.values()}
            if free:
                world.drop_node(min(free))
        plan = world.decide(request)
        assert plan == world.afresh().decide(request)
        world.carry_out(plan, [request])
        if world.workload is not None:
            assert counted(world) == counted(world.afresh())
    assert world.faults() == []


def counted(world: World) -> tuple[object, ...]:
    ahead = scarce(world)
    return ahead.classes, ahead.places, ahead.free, ahead.cpu


# -------------------------------------------------------------------------------------------------------- the mix


def test_a_mix_knows_large_requests_that_are_not_frequent():
    counter = WorkloadCounter()
    for number in range(DEMANDS_MAX):
        counter.note(gang(f"often-{number}", 3, share(1 + number)))
    counter.note(gang("once", 1, whole(8)))
    counter.note(gang("small-once", 1, share(79)))
    found = counter.workload()
    assert found is not None
    assert len(found.demands) == DEMANDS_MAX
    assert [demand.spec.devices.requests[0].exactly.count for demand in found.rare] == [8]  # type: ignore[union-attr]
    assert (found.pods, found.once) == (3 * DEMANDS_MAX + 2, 2)


def test_cpu_of_pods_without_devices_counts_in_a_mix():
    counter = WorkloadCounter()
    counter.note(gang("cpu-only", 10, None, cpu="4"))
    counter.note(gang("gpu", FIRST, whole(1), cpu="2"))
    found = counter.workload()
    assert found is not None
    assert (found.pods, found.cpu) == (FIRST, 1000 * (10 * 4 + FIRST * 2))


def test_kinds_of_equal_number_stay_in_their_order():
    demands = [(each.spec, each.needs, 2) for each in seen(*MIX).demands]
    assert [demand.spec for demand in mix(demands, 0).demands] == [spec for spec, _, _ in demands]
