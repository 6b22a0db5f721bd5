"""Explanations are kept by change: the same as of a decision that remembers nothing."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from fairlead.engine.explain.count_sums import ClaimOwners, LargestHolders
from fairlead.engine.inventory.changes import ChangeLog
from fairlead.engine.types.gangs import GangRequest
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World

NODES, GPUS = 6, 4


def pods(name: str, count: int, gpus: int, *, cpu: str = "1") -> GangRequest:
    return gang(name, count, claim_spec(device_request(count=gpus)), cpu=cpu)


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


def test_the_largest_holders_are_those_of_all_sums():
    random = Random(3)
    holders: dict[str, int] = {}
    by_claim: dict[str, tuple[str, str]] = {}
    owners = ClaimOwners(by_claim, ChangeLog())
    kept = LargestHolders(holders)
    for _ in range(300):
        uid = f"c{random.randrange(30)}"
        if random.random() < 0.6:
            holders[uid] = random.randrange(1, 4)
            kept.changed(uid)
        else:
            holders.pop(uid, None)
            kept.changed(uid)
        uid = f"c{random.randrange(30)}"
        by_claim[uid] = (f"g{random.randrange(9)}", "q")
        if random.random() < 0.3:
            del by_claim[uid]
        owners.changes.note(uid)
        if random.random() < 0.3:
            continue
        if random.random() < 0.1:
            owners = ClaimOwners(by_claim, ChangeLog())  # another decision's
        more = {("g1", "q"): 2, ("new", "q"): 1} if random.random() < 0.5 else {}
        sums = dict(more)
        for claim, devices in holders.items():
            owner = by_claim.get(claim, ("", ""))
            sums[owner] = sums.get(owner, 0) + devices
        ranked = sorted((-devices, owner) for owner, devices in sums.items())
        assert kept.largest(4, owners, more) == [(-devices, owner) for devices, owner in ranked[:4]]
