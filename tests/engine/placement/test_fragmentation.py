"""Placement costs the usual requests least: prices of leftovers, and where shares and whole devices go."""

from __future__ import annotations

import itertools
import random
from math import log2

import pytest

from fairlead.engine.placement.value.leftover import WHOLE, leftover_prices
from fairlead.engine.placement.value.workload import FIRST, REMEMBERED, WorkloadCounter
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.pods import Workload
from tests.support.engine.mixes import seen, share, shared_gpus
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World, devices_of

ONE, EIGHT = claim_spec(device_request()), claim_spec(device_request(8))


def shared_world(nodes: int = 2, gpus: int = 2, cpu: str = "64") -> World:
    world = World()
    for number in range(nodes):
        world.add_node(f"n{number}", shared_gpus(gpus), allocatable={"cpu": cpu})
    return world


def run(world: World, request: GangRequest) -> Plan:
    plan = world.decide(request)
    world.carry_out(plan, [request])
    return plan


def room_of(plan: Plan) -> set[str]:
    return set(devices_of(plan, plan.admissions[0].name))


def node_of(plan: Plan) -> str:
    return plan.admissions[0].assignments[0].node


# ---------------------------------------------------------------------------------------------------------- prices


def test_what_completes_no_packing_is_worth_nothing() -> None:
    worth = leftover_prices(((470, 10), (810, 30)))
    assert worth[190] == 0
    assert worth[530] == pytest.approx(0.5)
    assert worth[810] == 1


def test_scarce_partners_are_worth_what_they_save() -> None:
    """320s are many, 650s few: a 650 and a 320 share a device, the other 320s go by threes."""
    worth = leftover_prices(((320, 40), (650, 10)))
    assert worth[350] == pytest.approx(1 / 3, abs=1e-5)
    assert worth[680] == pytest.approx(2 / 3, abs=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_no_packing_costs_more_than_the_device_it_fills(seed: int) -> None:
    dice = random.Random(seed)
    demand = tuple(sorted({dice.randint(20, WHOLE): dice.randint(1, 500) for _ in range(dice.randint(1, 40))}.items()))
    worth = leftover_prices(demand)
    assert worth[0] == 0
    assert worth[WHOLE] == pytest.approx(1)
    assert all(a <= b for a, b in itertools.pairwise(worth))
    for _ in range(200):
        first = dice.randint(0, WHOLE)
        rest = dice.randint(0, WHOLE - first)
        assert worth[first] + worth[rest] <= worth[first + rest] + 1e-5


# ------------------------------------------------------------------------------------------------------- placement


def test_a_share_completes_the_packing_that_waits_for_it() -> None:
    """Tightest fit would put 19 of 80 GiB beside 52; the usual 26 would then need a new device."""
    world = shared_world(nodes=1, gpus=3)
    world.workload = seen((share(52), 100, "1"), (share(26), 300, "1"), (share(19), 200, "1"))
    run(world, gang("big", 1, share(52)))
    small = run(world, gang("small", 1, share(19)))
    partner = run(world, gang("partner", 1, share(26)))
    assert room_of(small) != room_of(partner)
    assert room_of(partner) == {"gpu-0"}


def test_a_pod_without_much_cpu_keeps_nodes_with_much_cpu_free() -> None:
    world = World()
    world.add_node("a-rich", [gpu(minor) for minor in range(2)], allocatable={"cpu": "100"})
    world.add_node("b-poor", [gpu(minor) for minor in range(2)], allocatable={"cpu": "16"})
    world.workload = seen((ONE, 50, "8"), (ONE, 51, "40"))
    assert node_of(run(world, gang("light", 1, ONE, cpu="8"))) == "b-poor"


def test_a_whole_node_stays_whole_for_requests_of_a_whole_node() -> None:
    world = World()
    for number in range(5):
        world.add_node(f"n{number}", [gpu(minor) for minor in range(8)], allocatable={"cpu": "96"})
    world.workload = seen((ONE, 90, "11"), (EIGHT, 10, "64"))
    for number in range(8):
        run(world, gang(f"one-{number}", 1, ONE, cpu="11"))
    eights = [run(world, gang(f"eight-{number}", 1, EIGHT, cpu="64")) for number in range(4)]
    assert all(plan.admissions for plan in eights)


# -------------------------------------------------------------------------------------------------------- the mix


def test_there_is_no_mix_before_enough_pods_were_seen() -> None:
    counter = WorkloadCounter()
    counter.note(gang("few", FIRST - 1, ONE))
    assert counter.workload() is None
    counter.note(gang("one-more", 1, ONE))
    assert counter.workload() is not None


def test_a_new_mix_is_made_when_twice_as_many_pods_were_seen() -> None:
    counter = WorkloadCounter()
    counter.note(gang("first", FIRST, ONE))
    workload = counter.workload()
    counter.note(gang("more", FIRST - 1, EIGHT))
    assert counter.workload() is workload
    counter.note(gang("one-more", 1, EIGHT))
    again = counter.workload()
    assert again is not workload
    assert again is not None
    assert [demand.count for demand in again.demands] == [FIRST, FIRST]


def test_old_pods_count_less_and_less_and_new_ones_enter_the_mix() -> None:
    counter = WorkloadCounter()
    counter.note(gang("old", REMEMBERED - 1, ONE))
    old = counter.workload()
    counter.note(gang("new", 1, EIGHT))
    counter.note(gang("newer", REMEMBERED // 2, EIGHT))
    workload = counter.workload()
    assert workload is not None
    assert workload is not old
    counts = [demand.count for demand in workload.demands]
    assert sum(counts) < REMEMBERED
    assert max(counts) <= REMEMBERED // 2


def test_ten_thousand_pods_that_all_differ_neither_renew_the_mix_again_and_again_nor_thin_it() -> None:
    counter = WorkloadCounter()
    counter.note(gang("usual", 20, EIGHT))
    counter.note(gang("other", 20, ONE))
    mixes: list[Workload | None] = []
    for number in range(10_000):
        counter.note(gang(f"unlike-{number}", 1, ONE, cpu=f"{1001 + number}m"))
        workload = counter.workload()
        if not mixes or workload is not mixes[-1]:
            mixes.append(workload)
    assert len(mixes) <= log2(10_000)
    assert mixes[-1] is not None
    assert [demand.count for demand in mixes[-1].demands[:2]] == [20, 20]


def test_what_a_mix_evaluates_on_every_device_is_bounded() -> None:
    numbers = f"[{','.join(map(str, range(60)))}]"
    counter = WorkloadCounter()
    for number in range(FIRST):
        loop = f"{numbers}.exists(x, {numbers}.exists(y, x * y == -{number}))"
        counter.note(gang(f"loop-{number}", 2, claim_spec(device_request(cel=loop))))
        counter.note(gang(f"short-{number}", 1, claim_spec(device_request(cel=f"{number} == 1"))))
    workload = counter.workload()
    assert workload is not None
    assert len(workload.demands) == FIRST
    assert {demand.count for demand in workload.demands} == {1}
    assert workload.pods == 3 * FIRST


def test_pods_without_devices_do_not_count() -> None:
    counter = WorkloadCounter()
    counter.note(gang("cpu-only", 2 * FIRST, None))
    assert counter.workload() is None
