"""Gangs come, run, end and are deleted at random, while controllers die and the apiserver misbehaves, also at random.

What must hold at every moment, and at the end: no device in two claims; no gang below its size released; everything that
could run has run; nothing is left. A failure prints its seed.
"""

import asyncio
from random import Random

import pytest

from fairlead.api import names
from fairlead.sandbox.apiserver.faults import Fault
from tests.controller.conftest import Bench, Life

ROUNDS = 12


def misbehave(bench: Bench, dice: Random) -> None:
    faults = bench.cluster.server.faults
    match dice.randrange(5):
        case 0:
            faults.close_watches()
        case 1:
            faults.add(Fault(user=names.CONTROLLER_USER, code=dice.choice([409, 429, 500]), count=dice.randrange(1, 5)))
        case 2:
            faults.add(Fault(user=names.CONTROLLER_USER, verb="patch", code=500, after=True, count=2))
        case 3:
            faults.add(Fault(user=names.CONTROLLER_USER, drop=True, count=3))
        case _:
            faults.fail(410, verb="watch", reason="Expired", count=2)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_whatever_happens_nothing_is_held_twice_and_nothing_leaks(bench: Bench, seed: int):
    dice = Random(seed)
    for count in (1, 2, 4):
        await bench.template(f"t{count}", count)
    gangs: dict[str, list[str]] = {}
    for number in range(ROUNDS):
        size, each = dice.choice([1, 2, 3, 4]), dice.choice([1, 2, 4])
        name = f"s{seed}-{number}"
        gangs[name] = await bench.gang(name, size, template=f"t{each}", sleep=dice.choice([0.1, 0.5]))
        misbehave(bench, dice)
        if dice.random() < 0.3:
            doomed = gangs.pop(dice.choice(sorted(gangs)))
            await bench.delete(doomed)
        await bench.mortal(Life(dice.randrange(1, 25), after=dice.random() < 0.5), lambda: settled(bench, gangs))
        bench.check()
    bench.cluster.server.faults.clear()
    async with bench.controller():
        await bench.until(lambda: settled(bench, gangs), f"seed {seed}: every gang that was left alone has run", 60)
        await bench.until(lambda: bench.watchdog.held == 0, f"seed {seed}: everything is given back", 60)
        for pods in gangs.values():
            await bench.delete(pods)
        await bench.until(lambda: bench.claims.all() == [], f"seed {seed}: no claim is left", 60)
        await bench.until(lambda: bench.gangs.all() == [], f"seed {seed}: no Gang object is left", 60)


def settled(bench: Bench, gangs: dict[str, list[str]]) -> bool:
    pods = [bench.get(name) for pods in gangs.values() for name in pods]
    return all(pod is not None and pod.finished for pod in pods)


@pytest.mark.slow
async def test_forty_pods_for_sixteen_devices_all_get_their_turn_with_one_claim_each(bench: Bench):
    """Many pods at once, so that the claim controller and we race for their claims."""
    await bench.template("one")
    async with bench.controller():
        pods = [f"p{number}" for number in range(40)]
        await asyncio.gather(*(bench.pod(name, template="one", sleep=0.3) for name in pods))
        done = {"all": pods}
        await bench.until(lambda: settled(bench, done), "all have run", 60)
        await bench.until(lambda: bench.watchdog.held == 0, "everything is given back")
        await bench.until(lambda: bench.claims.all() == [], "finished pods' claims are gone, and no duplicate is left")
