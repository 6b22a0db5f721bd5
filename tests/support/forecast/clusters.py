"""A crowded cluster as a snapshot: every GPU held, gangs of many sizes waiting in four queues, run since different times."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.forecast.cluster import SimulatedCluster
from fairlead.engine.plan.decide import Engine
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.plan import Waiting
from fairlead.engine.types.pods import PodNeeds
from fairlead.engine.types.reasons import Reason
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from fairlead.kube import core, resource
from tests.support.engine.objects import claim_spec, device_request, gpu, one_claim_each
from tests.support.engine.world import World

QUEUES = 4
NOW = 1_000_000.0
_SIZES = ((1, 2, 4, 8, 16, 32), (40, 15, 15, 15, 10, 5))


def crowded(*, nodes: int, waiting: int, seed: int = 1, world: World | None = None) -> tuple[Snapshot, float]:
    """The snapshot, and its time in unix seconds. Gangs have a declared limit, so that their ends are spread.

    `world`: with these nodes already, of eight GPUs each; else they are made, with devices that have what decisions read of them.
    """
    random = Random(seed)  # a simulation
    if world is None:
        world = World()
        for number in range(nodes):
            world.add_node(f"node-{number:05d}", [gpu(minor) for minor in range(8)])
    needs = PodNeeds.of(core.Pod())
    spec = msgspec.convert(claim_spec(device_request(1)), resource.ResourceClaimSpec)
    quota = FlavorQuota(flavor="gpu", deserved=8 * nodes // QUEUES)

    def make(number: int, created: float) -> GangRequest:
        size = random.choices(*_SIZES)[0]
        pods = [f"gang-{number}-{member}" for member in range(size)]
        members, claims = one_claim_each("ml", pods, needs, spec)
        return GangRequest(
            namespace="ml",
            name=f"gang-{number}",
            uid=f"gang-{number}",
            size=size,
            queue=f"team-{random.randrange(QUEUES)}",
            created=created,
            members=members,
            claims=claims,
            run_s=random.choice([2.0, 4.0, 8.0, 12.0]) * 3600.0,
        )

    snapshot = Snapshot(
        inventory=world.inventory,
        nodes=world.nodes,
        classes=world.classes,
        queues=tuple(QueueSpec(name=f"team-{n}", uid=f"team-{n}", quotas=(quota,)) for n in range(QUEUES)),
        flavors=(FlavorSpec(name="gpu", device_selector=f'device.driver == "{names.DRIVER}"'),),
    )
    cluster, engine, count = SimulatedCluster(snapshot), Engine(), 0
    left: list[GangRequest] = []
    while not left:
        batch = {(each := make(count + n, NOW - 7000 + count + n)).id: each for n in range(3 * nodes // 2)}
        count += len(batch)
        plan = engine.decide(
            replace(snapshot, gangs=tuple(batch[key] for key in sorted(batch)), running=cluster.sequence()), NOW
        )
        for admission in plan.admissions:
            cluster.start(admission, batch.pop(admission.id), NOW - random.uniform(0.0, 6000.0))
        left = list(batch.values())
    left = left[:waiting] + [make(count + n, NOW - 500 + n / 10) for n in range(waiting - len(left))]
    running = cluster.sequence()
    return replace(snapshot, gangs=tuple(sorted(left, key=lambda each: each.id)), running=running), NOW


def left_with(reason: Reason, **more: Any) -> Waiting:
    """A gang that waits for this reason."""
    return Waiting(namespace="ml", name="waits", uid="uid", queue="q", position=1, reason=reason, **more)
