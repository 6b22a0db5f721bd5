"""What is kept of running gangs by change is what counting all of them anew gives."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.selectors import Selectors
from fairlead.engine.plan.running import RunningGangs
from fairlead.engine.queues.charges import Charges
from fairlead.engine.queues.tree import Tree
from fairlead.engine.types.gangs import RunningGang, RunningMember, RunningSequence
from fairlead.engine.types.settings import FlavorSpec, QueueSpec
from fairlead.engine.types.values import PodRef
from fairlead.kube import resource
from fairlead.kube.objects import ObjectMeta
from tests.support.engine.objects import gpu
from tests.support.engine.world import World

FLAVOR = FlavorSpec(name="gpu", device_selector=f'device.driver == "{names.DRIVER}"', measure="Devices")
QUEUES = (QueueSpec(name="a"), QueueSpec(name="b", min_runtime_s=50.0), QueueSpec(name="top"))


def allocated(uid: str, device: str) -> resource.ResourceClaim:
    result = resource.DeviceRequestAllocationResult(request="gpu", driver=names.DRIVER, pool="n0", device=device)
    allocation = resource.AllocationResult(devices=resource.DeviceAllocationResult(results=(result,)))
    return resource.ResourceClaim(
        metadata=ObjectMeta(uid=uid, namespace="ml", name=uid),
        status=resource.ResourceClaimStatus(allocation=allocation),
    )


def running(random: Random, number: int, claim: str) -> RunningGang:
    name = f"g{number}"
    members = tuple(
        RunningMember(pod=PodRef("ml", f"{name}-{each}", f"{name}-{each}"), node="n0", leaving=random.random() < 0.2)
        for each in range(random.randrange(3))
    )
    return RunningGang(
        namespace="ml",
        name=name,
        uid=name,
        queue=random.choice(["a", "b", "nowhere"]),
        claims=(claim,),
        priority=random.randrange(3),
        started=float(random.randrange(100)),
        size=random.choice([1, 2]),
        members=members,
    )


def seen(found: RunningGangs, tree: Tree, now: float) -> tuple[object, ...]:
    """All that decisions read of it."""
    return (
        found.owners,
        found.allocated,
        [(gang.id, queue.name) for gang, queue in found.gangs],
        [gang.id for gang, _ in found.with_leaving(set())],
        [gang.id for gang, _ in found.with_leaving({"g1-0"})],
        sorted((queue.name, least, count) for queue, least, count in found.priorities()),
        None if found.any_surplus else found.next_end(now),
        found.any_surplus,
        bool(found),
        {name: (queue.used, queue.devices, queue.running) for name, queue in tree.queues.items()},
    )


def after(before: RunningSequence | None, gangs: list[RunningGang]) -> RunningSequence:
    old = {id(gang) for gang in before or ()}
    gone = [gang for gang in before or () if all(gang is not other for other in gangs)]
    return RunningSequence.after(before, gangs, gone=gone, new=[gang for gang in gangs if id(gang) not in old])


@pytest.mark.parametrize("told", [False, True], ids=["compared", "told what changed"])
@pytest.mark.parametrize("seed", range(20))
def test_what_is_kept_is_what_counting_anew_gives(seed: int, told: bool):
    random = Random(seed)
    sequence: RunningSequence | None = None
    world = World()
    world.add_node("n0", [gpu(number) for number in range(8)])
    inventory, tree = world.inventory, Tree(QUEUES)
    charges = Charges((FLAVOR,), Selectors())
    kept = RunningGangs(inventory, tree, charges)
    gangs: dict[int, RunningGang] = {}
    for _ in range(40):
        for _ in range(random.randrange(4)):
            number = random.randrange(8)
            claim = f"claim-{number}" if random.random() < 0.95 else "claim-0"  # now and then one claim of two gangs
            step = random.random()
            if step < 0.4:
                gangs[number] = running(random, number, claim)
            elif step < 0.6:
                gangs.pop(number, None)
            elif step < 0.9:
                inventory.set_claim(allocated(f"claim-{number}", f"gpu-{random.randrange(8)}"))
            else:
                inventory.drop_claim(f"claim-{number}")
        snapshot = tuple(gangs[number] for number in sorted(gangs))
        if told:
            snapshot = sequence = after(sequence, list(snapshot))
        if random.random() < 0.1:
            continue  # a snapshot that is not decided on
        now = float(random.randrange(160))
        tree.begin({})
        kept.look(snapshot)
        kept.charge()
        by_change = seen(kept, tree, now)
        tree.begin({})
        anew = RunningGangs(inventory, tree, charges)
        anew.look(tuple(replace(gang) for gang in snapshot))
        anew.charge()
        assert by_change == seen(anew, tree, now)


class Sequence(RunningSequence):
    """One that cannot be looked through."""

    def __iter__(self) -> Iterator[RunningGang]:
        raise AssertionError("all running gangs are looked at")


def test_gangs_that_stay_are_not_looked_at():
    """Also where some of them are leaving."""
    inventory, tree = Inventory(), Tree(QUEUES)
    random = Random(0)
    gangs = [running(random, number, f"claim-{number}") for number in range(50)]
    first = after(None, gangs)
    kept = RunningGangs(inventory, tree, Charges((), Selectors()))
    kept.look(first)
    kept.charge()
    leaving = [gang.id for gang, _ in kept.with_leaving(set())]
    come, goes = replace(gangs[7], priority=9), gangs[8]
    second = Sequence.after(first, [*gangs[:7], come, *gangs[9:]], gone=[gangs[7], goes], new=[come])
    inventory.set_claim(allocated("claim-3", "gpu-0"))
    kept.look(second)
    kept.charge()
    kept.look(second)
    kept.charge()
    assert [gang.id for gang, _ in kept.with_leaving(set())] == [each for each in leaving if each != goes.id]
    assert kept.owners["claim-3"][0] == "ml/g3"
