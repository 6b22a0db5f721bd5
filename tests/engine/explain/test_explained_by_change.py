"""Explanations are kept by change: the same as of a decision that remembers nothing."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from fairlead.engine.types.gangs import GangRequest
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World

NODES, GPUS = 6, 4


def pods(name: str, count: int, gpus: int, *, cpu: str = "1") -> GangRequest:
    return gang(name, count, claim_spec(device_request(count=gpus)), cpu=cpu)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(12))
def test_while_pods_come_and_go_the_waiting_gang_is_explained_as_anew(seed: int):
    random, world = Random(seed), World()
    for number in range(NODES):
        world.add_node(f"n{number}", [gpu(minor) for minor in range(GPUS)])
    large = pods("large", 4, GPUS)
    for number in range(40):
        if random.random() < 0.4 and world.running:
            for each in random.sample(sorted(world.running), random.randint(1, min(3, len(world.running)))):
                world.end(each)
        if random.random() < 0.1:
            world.cordon(f"n{random.randrange(NODES)}", random.random() < 0.5)
        small = pods(f"small-{number}", 1, random.randint(1, 2), cpu=random.choice(["1", "20"]))
        gangs = [large, *([small] if random.random() < 0.7 else [])]
        plan = world.decide(*gangs)
        assert plan == world.afresh().decide(*gangs)
        world.carry_out(
            replace(plan, admissions=tuple(each for each in plan.admissions if each.name != "large")), gangs
        )
        world.now += 1.0
