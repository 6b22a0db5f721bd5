"""Claims that are hard to refuse: of many alternatives, or with constraints that only trying every way proves impossible.

Each is small and valid, and any user may write it. Pods of a namespace that differ in one toleration are no equals for placement.
"""

from __future__ import annotations

from fairlead.api import names
from fairlead.engine.types.gangs import GangRequest
from tests.support.engine.objects import GPU, Json, claim_spec, device_request, gang, gpu
from tests.support.engine.world import World

UUID = f"{names.DRIVER}/uuid"


def alternatives(count: int) -> Json:
    return {"firstAvailable": [{"name": f"s{n}", "deviceClassName": GPU, "count": 1} for n in range(count)]}


def too_many() -> Json:
    """32 devices of a node that has eight, each in eight ways: ruled out by counting."""
    return claim_spec(*(alternatives(8) for _ in range(32)))


def uncolourable() -> Json:
    """Eight different GPUs, of which three are each on another NUMA node than the other two, where there are two NUMA nodes."""
    pairs = (["r5", "r6"], ["r6", "r7"], ["r5", "r7"])
    unlike = [{"distinctAttribute": names.NUMA_NODE, "requests": pair} for pair in pairs]
    return claim_spec(*(device_request() for _ in range(8)), constraints=[{"distinctAttribute": UUID}, *unlike])


def unlike_pods(count: int, spec: Json, namespace: str = "red") -> list[GangRequest]:
    """Gangs of one pod that all differ in what they tolerate."""
    return [
        gang(
            f"{namespace}-{number:03}",
            1,
            spec,
            namespace=namespace,
            created=float(number),
            pod={"tolerations": [{"key": f"k{number}", "operator": "Exists"}]},
        )
        for number in range(count)
    ]


def two_nodes() -> World:
    world = World()
    for name in ("n0", "n1"):
        world.add_node(name, [gpu(minor) for minor in range(8)])
    return world
