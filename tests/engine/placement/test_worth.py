"""The worth of free devices with the free CPU beside them, and that placement keeps the two together."""

from __future__ import annotations

import random

import pytest

from fairlead.engine.placement.value.leftover import NodeWorth
from tests.support.engine.mixes import seen, share, shared_gpus
from tests.support.engine.objects import gang
from tests.support.engine.world import World


def test_the_example_of_the_module() -> None:
    worth = NodeWorth([(1.0, 0.5, 4000), (1.0, 0.5, 12_000)])
    assert worth.of(2.0, 24_000) == pytest.approx(1.5)
    assert worth.of(2.0, 16_000) == pytest.approx((2 + 2 / 3) / 2)
    assert worth.of(2.0, 60_000) == worth.of(2.0, 52_000) == pytest.approx(2.0)


def test_where_no_request_takes_cpu_room_is_worth_itself() -> None:
    assert NodeWorth([(0.7, 0.3, 0), (0.3, 1.0, 0)]).of(1.5, 0) == 1.5
    assert NodeWorth([]).of(1.5, 1000) == 1.5


@pytest.mark.parametrize("seed", range(10))
def test_worth_grows_with_room_and_cpu_and_is_never_more_than_the_room(seed: int) -> None:
    """And it is the mean over the requests, each by its part of the demand."""
    dice = random.Random(seed)
    requests = [(dice.random(), dice.random(), dice.choice((0, dice.randint(1, 30_000)))) for _ in range(9)]
    worth = NodeWorth(requests)
    total = sum(often * price for often, price, _ in requests)
    for _ in range(50):
        room, cpu = 8 * dice.random(), dice.randint(0, 96_000)
        found = worth.of(room, cpu)
        mean = sum(o * p * (min(room, p * cpu / c) if c else room) for o, p, c in requests) / total
        assert found == pytest.approx(mean)
        assert found <= room + 1e-9
        assert found <= worth.of(room + 0.5, cpu) + 1e-9
        assert found <= worth.of(room, cpu + 500) + 1e-9


def test_a_share_keeps_off_a_node_where_it_would_leave_devices_without_cpu() -> None:
    """Beside 60 of 80 GiB the 20 waste nothing, but the 14 cores they come with are all that two free GPUs have beside them."""
    world = World()
    world.add_node("a-short", shared_gpus(3), allocatable={"cpu": "16"})
    big = gang("big", 1, share(60), cpu="2")
    world.carry_out(world.decide(big), [big])
    world.add_node("b", shared_gpus(1), allocatable={"cpu": "96"})
    world.workload = seen((share(80), 100, "8"), (share(80), 100, "6"))
    assert {cpu: node_for(world, cpu) for cpu in ("1", "14")} == {"1": "a-short", "14": "b"}


def node_for(world: World, cpu: str) -> str:
    return world.decide(gang("small", 1, share(20), cpu=cpu)).admissions[0].assignments[0].node
