"""A cluster is filled with pods that are posted at once: what each costs, from its POST to its binding.

Counting ends when nothing has been written for `quiet_s` after the last binding, so that events and statuses that are
written a moment later count, too.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.protocol import objects
from benchmarks.protocol.cluster import OWNER, World, cpu_s, post, together, until, whole
from benchmarks.protocol.traffic import per_pod
from fairlead.kube.resources import JOBS, RESOURCE_CLAIM_TEMPLATES, Raw, Resource, raw

GANG = 8
REPLICA_SETS: Resource[Raw] = Resource(
    group="apps", version="v1", plural="replicasets", kind="ReplicaSet", namespaced=True, type=dict
)
Shape = Literal["single", "gang8", "bare"]


@dataclass(frozen=True, kw_only=True)
class Fill:
    """`shape`: one-GPU pods of a ReplicaSet, gangs of eight of Jobs, or pods without an owner. `qps` None: no limit."""

    nodes: int
    pods: int
    shape: Shape = "single"
    qps: float | None = None
    quiet_s: float = 2.0


@dataclass(frozen=True, kw_only=True)
class Filled:
    pods: int
    writes: Counter[str]
    refused: Counter[str]
    calls: Counter[str]
    controller_s: float
    webhook_s: float
    bound_s: float


async def fill(wanted: Fill) -> Filled:
    """Raises ProgramError when not all pods are bound in time."""
    async with whole(qps=wanted.qps) as world:
        objects.add_nodes(world.server.state, wanted.nodes)
        await world.admin.create(raw(RESOURCE_CLAIM_TEMPLATES), objects.template("one"))
        webhook = await world.start("webhook")
        controller = await world.start("controller")
        bodies = await _bodies(world, wanted)
        await world.traffic.quiet(wanted.quiet_s)
        world.traffic.reset()
        before = cpu_s(controller), cpu_s(webhook)
        began = asyncio.get_running_loop().time()
        async with world.client("admin" if wanted.shape == "bare" else OWNER) as client:
            await post(client, bodies)
        count = len(bodies)
        patience_s = 120 + count * (1.0 if wanted.qps else 0.5)
        await until(lambda: len(world.pods.bound) >= count, controller, f"{count} pods are bound", patience_s)
        bound_s = asyncio.get_running_loop().time() - began
        await world.traffic.quiet(wanted.quiet_s, at_most_s=30)
        traffic = world.traffic
        return Filled(
            pods=count,
            writes=Counter(traffic.writes),
            refused=Counter(traffic.refused),
            calls=Counter(traffic.calls),
            controller_s=cpu_s(controller) - before[0],
            webhook_s=cpu_s(webhook) - before[1],
            bound_s=bound_s,
        )


async def _bodies(world: World, wanted: Fill) -> list[Raw]:
    spec = objects.pod_spec(template="one")
    if wanted.shape == "bare":
        return [
            {"metadata": {"name": f"bare-{number:05d}", "namespace": objects.NAMESPACE}, "spec": spec}
            for number in range(wanted.pods)
        ]
    if wanted.shape == "single":
        owner = await world.admin.create(REPLICA_SETS, objects.replica_set("single", wanted.pods, spec))
        return [objects.pod_of(owner, number) for number in range(wanted.pods)]
    jobs = [objects.gang_job(f"gang-{number:04d}", GANG, spec) for number in range(wanted.pods // GANG)]
    owners = await together([lambda job=job: world.admin.create(raw(JOBS), job) for job in jobs])  # type: ignore[misc]
    return [objects.pod_of(owner, number) for owner in owners for number in range(GANG)]


def count_figures(prefix: str, suffix: str, filled: Filled, bars: dict[str, float]) -> list[dict[str, Any]]:
    """Writes, refused writes and webhook calls per pod, each with what it consists of. `bars` by figure's name."""
    counts = {
        "writes-per-pod": (filled.writes, "writes/pod"),
        "refused-writes-per-pod": (filled.refused, "writes/pod"),
        "webhook-calls-per-pod": (filled.calls, "calls/pod"),
    }
    found = []
    for name, (counted, unit) in counts.items():
        label = f"{prefix}{name}"
        by_kind = per_pod(counted, filled.pods)
        value = round(counted.total() / filled.pods, 4)
        figure = {"figure": f"protocol/{label}{suffix}", "value": value, "unit": unit, "bar": bars.get(label)}
        found.append({**figure, "pods": filled.pods, "by_kind": by_kind})
    return found
