"""A gang is admitted exactly when some way to place it exists: against brute force on clusters small enough for it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.types.gangs import GangRequest
from tests.support.engine.examples import examples
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World

MODEL = f'device.attributes["{names.DRIVER}"].productName'
Wish = tuple[int, str, bool]  # devices, model ("" any), all of one island
Cluster = list[list[tuple[str, int]]]  # per node, per device: model, island


def _world(cluster: Cluster, cpus: list[int]) -> World:
    world = World()
    for number, devices in enumerate(cluster):
        published = [gpu(minor, product=model, island=island) for minor, (model, island) in enumerate(devices)]
        world.add_node(f"node-{number}", published, allocatable={"cpu": str(cpus[number])})
    return world


def _gang(wishes: list[Wish]) -> GangRequest:
    members: list[Any] = []
    claims: list[Any] = []
    for number, (count, model, together) in enumerate(wishes):
        constraints = [{"matchAttribute": f"{names.DRIVER}/nvlinkDomain"}] if together else []
        cel = f'{MODEL} == "{model}"' if model else ""
        one = gang(f"m{number}", 1, claim_spec(device_request(count, cel=cel), constraints=constraints))
        members += one.members
        claims += one.claims
    return replace(gang("all", 1, None), size=len(wishes), members=tuple(members), claims=tuple(claims))


def _choices(wish: Wish, devices: list[tuple[str, int]], taken: frozenset[int]) -> Iterator[frozenset[int]]:
    count, model, together = wish
    free = [n for n, (found, _) in enumerate(devices) if n not in taken and model in {"", found}]
    for chosen in combinations(free, count):
        if not together or len({devices[n][1] for n in chosen}) == 1:
            yield frozenset(chosen)


def _possible(wishes: list[Wish], cluster: Cluster, cpus: list[int]) -> bool:
    """Pods that name no model ask for the same, and get one model."""
    return any(
        _possible_on([(count, named or model, together) for count, named, together in wishes], cluster, cpus)
        for model in ("x", "y")
    )


def _possible_on(wishes: list[Wish], cluster: Cluster, cpus: list[int]) -> bool:
    def serve(left: list[tuple[Wish, int]], taken: dict[int, frozenset[int]]) -> bool:
        if not left:
            return True
        wish, node = left[0]
        before = taken.get(node, frozenset())
        return any(
            serve(left[1:], {**taken, node: before | chosen}) for chosen in _choices(wish, cluster[node], before)
        )

    return any(
        all(nodes.count(node) <= cpus[node] for node in set(nodes)) and serve(list(zip(wishes, nodes, strict=True)), {})
        for nodes in product(range(len(cluster)), repeat=len(wishes))
    )


device = st.tuples(st.sampled_from(["x", "y"]), st.integers(0, 1))
wish: Any = st.tuples(st.integers(1, 3), st.sampled_from(["", "x", "y"]), st.booleans())


@settings(max_examples=examples(250), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    cluster=st.lists(st.lists(device, max_size=4), min_size=1, max_size=3),
    cpus=st.lists(st.integers(1, 3), min_size=3, max_size=3),
    wishes=st.lists(wish, min_size=1, max_size=4),
)
def test_a_gang_of_unlike_pods_is_admitted_exactly_when_it_can_be(
    cluster: Cluster, cpus: list[int], wishes: list[Wish]
):
    world = _world(cluster, cpus)
    job = _gang(wishes)
    plan = world.decide(job)
    assert bool(plan.admissions) == _possible(wishes, cluster, cpus)
    if plan.admissions:
        world.carry_out(plan, [job])
        assert not world.faults()
