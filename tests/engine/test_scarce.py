"""Scarce requests: places left for large requests are counted, and what takes them is chosen last."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fairlead.engine.inventory.ledger import Ledger
from fairlead.engine.inventory.selectors import Selectors
from fairlead.engine.placement.candidate_nodes import NodeSnapshot
from fairlead.engine.placement.leftover import UsualRequest
from fairlead.engine.placement.node_rooms import NodeRooms
from fairlead.engine.placement.scarce import STEP, Pace, ScarceRequests, _Kinds
from fairlead.engine.placement.workload import DEMANDS_MAX, FIRST, WorkloadCounter, mix
from fairlead.engine.queues.cache import SchedulerCache
from fairlead.engine.types.gangs import GangRequest
from tests.support.engine.mixes import seen, share, shared_gpus
from tests.support.engine.objects import claim_spec, device_request, gang
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
    fragmentation = SchedulerCache.of(world.snapshot()).placer.fragmentation
    assert fragmentation is not None
    return fragmentation.large


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


def test_a_kind_is_scarce_while_it_has_places_and_less_than_will_be_asked_for():
    def found(nodes: int) -> set[int]:
        world = World()
        for number in range(nodes):
            add(world, f"n{number:02}", 8)
        world.workload = seen((share(40), 100, "1"), (whole(8), 10, "1"))
        large = scarce(world)
        assert large.copies[0] == nodes
        return {large.large[index].count for index in large.look(Pace(1000.0, 0.0))}

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
        counted = scarce(world)
        return {
            counted.large[index].cpu for index in counted.look(Pace(1400.0, 0.0, 1000)) if counted.large[index].needs
        }

    assert found((6, "64")) == set()
    assert found((6, "96")) == set()
    assert found((6, "64"), (6, "96")) == {64_000}


def test_known_kinds_are_not_expected_for_the_places_of_new_ones():
    """Else a cluster's many kinds, whatever model they ask for, would keep any node whole. Ten nodes are few for a known kind."""
    world = World()
    for number in range(10):
        add(world, f"n{number:02}", 8, cpu="128")
    world.workload = seen((share(40), 1000, "1"), (whole(8), 100, "96"))
    counted = scarce(world)
    assert {counted.large[index].needs is None for index in counted.look(Pace(110.0, 0.0, 1100))} == {False}


def test_what_is_expected_ends_with_whatever_ends_first():
    large = ScarceRequests((), NodeRooms(NodeSnapshot(Selectors()), Ledger()))
    large.free, large.cpu = 8000, 20_000
    by_devices, by_cpu = large.expected(Pace(500.0, 0.0)), large.expected(Pace(500.0, 4000.0))
    assert 16 <= by_devices <= 16 * STEP
    assert 5 <= by_cpu <= 5 * STEP
    large.free = 0
    assert large.expected(Pace(500.0, 0.0)) == 1


def test_what_a_placement_takes_is_places_times_their_size():
    """Eight GPUs and 96 cores: one place for eight, four for two. A share takes one of each."""
    kinds = _Kinds([(0, UsualRequest(8, 1000, 64_000, 0.1)), (1, UsualRequest(2, 1000, 6_000, 0.1))], 2)
    rooms = (1000,) * 8
    assert kinds.copies(rooms, 96_000) == (1, 4)
    assert kinds.lost(rooms, 96_000, 1, 250, 4_000, 1000) == ((0, 8000), (1, 2000))
    assert kinds.lost((750, *rooms[1:]), 96_000, 1, 250, 4_000, 750) == ()
    assert kinds.lost(rooms, 96_000, 0, 0, 40_000, 0) == ((0, 8000),)  # CPU only
    assert kinds.lost(rooms, 96_000, 2, 1000, 4_000, 1000) == ((0, 8000), (1, 2000))
    assert kinds.copies(rooms, -1) == (0, 0)


# ------------------------------------------------------------------------------------- the same from any history


KINDS = [(share(8), "1"), (share(37), "6"), (share(64), "9"), (whole(2), "4"), (whole(4), "30"), (None, "5")]


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
            add(world, f"n{6 + step}", dice.choice((2, 4, 8)), cpu="100")
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


def counted(world: World) -> tuple[list[int], int, int]:
    large = scarce(world)
    return large.copies, large.free, large.cpu


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
