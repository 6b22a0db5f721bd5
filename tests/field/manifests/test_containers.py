"""Init containers and sidecars with GPUs, in both orders: the pod asks for what is in use at once, and runs where that fits."""

from __future__ import annotations

import pytest

from tests.field.models.test_what_people_run import Json, asked
from tests.support.engine.objects import gpu
from tests.support.engine.world import World

Container = tuple[str, int, bool]
"""Name, GPUs, and whether it goes on beside the others."""


def pod(init: list[Container], main: int) -> Json:
    def container(name: str, gpus: int, sidecar: bool = False) -> Json:
        more = {"restartPolicy": "Always"} if sidecar else {}
        return {"name": name, "image": "busybox", "resources": {"limits": {"nvidia.com/gpu": gpus}}, **more}

    spec = {
        "restartPolicy": "Never",
        "initContainers": [container(*each) for each in init],
        "containers": [container("main", main)],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ml"}, "spec": spec}


def devices(document: Json, *, gpus: int) -> int | None:
    """That it gets on a node of so many; None where it waits."""
    world = World()
    world.add_node("n", [gpu(minor) for minor in range(gpus)])
    plan = world.decide(*asked(document))
    if plan.waiting:
        return None
    return sum(len(claim.allocation.devices.results) for each in plan.admissions for claim in each.claims)


@pytest.mark.parametrize(
    ("init", "main", "held"),
    [
        ([("check-all", 8, False), ("cache", 1, True)], 7, 8),
        ([("warm", 4, False), ("side", 1, True), ("warm-2", 2, False)], 2, 4),
        ([("cache", 1, True), ("check", 7, False)], 7, 8),
        ([("cache", 1, True), ("check", 8, False)], 7, 9),
    ],
    ids=["init before the sidecar", "on both sides", "after it", "after it, and beside it too many"],
)
def test_a_pod_gets_what_its_containers_use_at_once(init: list[Container], main: int, held: int) -> None:
    assert devices(pod(init, main), gpus=held) == held
    assert devices(pod(init, main), gpus=held - 1) is None
