"""Of random clusters: no gang of alike pods is on more nodes than free devices demand, and trying for fewer leaves no trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.engine.allocator.result import SearchStatus
from fairlead.engine.allocator.steps import StepBudget
from fairlead.engine.plan.decide import decide
from fairlead.engine.plan.session import Memory
from fairlead.engine.types.gangs import GangRequest
from tests.engine.placement.test_models import A100, H100, together
from tests.support.engine.examples import examples
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World, nodes_of

CORES = 16


@st.composite
def clusters(draw: st.DrawFn, products: Sequence[str] = (H100,)) -> World:
    """Nodes of up to 8 GPUs of one product each, of which some are in use."""
    world, others = World(), list[GangRequest]()
    for number in range(draw(st.integers(1, 8))):
        name, product = f"n{number}", draw(st.sampled_from(products))
        count = draw(st.integers(1, 8))
        world.add_node(
            name,
            [gpu(minor, product=product) for minor in range(count)],
            labels={"host": name},
            allocatable={"cpu": str(CORES)},
        )
        used = draw(st.integers(0, count))
        if used:
            others.append(gang(f"on-{name}", 1, claim_spec(device_request(used)), pod={"nodeSelector": {"host": name}}))
    world.carry_out(world.decide(*others), others)
    return world


def rooms(world: World, gpus: int, cores: int, product: str | None = None) -> dict[str, int]:
    """How many pods each node takes, counted by hand."""
    taken = Counter(device.ref.pool for claim in world.inventory.claims() for device in claim.devices)
    found: dict[str, int] = {}
    for name, body in world.node_json.items():
        published = world.slice_json[f"{name}-{world.driver}-0"]["spec"]["devices"]
        if product in {None, published[0]["attributes"]["productName"]["string"]}:
            used = bool(taken[name])  # by one pod of one core
            found[name] = min(
                (len(published) - taken[name]) // gpus, (int(body["status"]["allocatable"]["cpu"]) - used) // cores
            )
    return found


def fewest(rooms: dict[str, int], pods: int) -> int:
    """Nodes, the roomiest first; 0 where they are too few."""
    sums = accumulate(sorted(rooms.values(), reverse=True))
    return next((number for number, room in enumerate(sums, 1) if room >= pods), 0)


pods, gpus, cores = st.integers(1, 16), st.sampled_from((1, 1, 2, 3)), st.sampled_from((1, 1, 4, 5))


@given(clusters(), pods, gpus, cores)
@settings(max_examples=examples(200), deadline=None)
def test_no_gang_of_alike_pods_is_on_more_nodes_than_free_devices_demand(
    world: World, pods: int, gpus: int, cores: int
):
    wanted = gang("job", pods, claim_spec(device_request(gpus)), cpu=str(cores))
    plan = world.decide(wanted)
    least = fewest(rooms(world, gpus, cores), pods)
    assert len(set(nodes_of(plan, "job")) if plan.admissions else ()) == least
    world.carry_out(plan, [wanted])
    assert not world.faults()


@given(clusters((H100, A100)), pods, gpus)
@settings(max_examples=examples(200), deadline=None)
def test_of_one_model_no_more_than_the_model_with_the_fewest(world: World, pods: int, gpus: int):
    plan = world.decide(gang("job", pods, claim_spec(device_request(gpus))))
    each = [found for product in (H100, A100) if (found := fewest(rooms(world, gpus, 1, product), pods))]
    assert len(set(nodes_of(plan, "job")) if plan.admissions else ()) == min(each, default=0)
    mixed = world.decide(gang("job", pods, claim_spec(device_request(gpus)), models="any"))
    assert len(set(nodes_of(mixed, "job")) if mixed.admissions else ()) == fewest(rooms(world, gpus, 1), pods)


@given(clusters(), pods, st.integers(1, 4))
@settings(max_examples=examples(100), deadline=None)
def test_members_that_join_take_new_nodes_only_where_those_of_the_gang_are_full(world: World, pods: int, more: int):
    first = gang("job", pods, claim_spec(device_request(1)))
    plan = world.decide(first)
    if not plan.admissions:
        return
    placed = tuple(nodes_of(plan, "job"))
    world.carry_out(plan, [first])
    free = rooms(world, 1, 1)
    own = sum(free[name] for name in set(placed))
    joining = gang("more", more, claim_spec(device_request(1)))
    found = world.decide(replace(joining, size=pods + more, placed_nodes=placed))
    others = {name: room for name, room in free.items() if name not in placed}
    if found.admissions:
        new = set(nodes_of(found, "more")) - set(placed)
        assert len(new) == (0 if more <= own else fewest(others, more - own))


@given(clusters(), st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4)), min_size=2, max_size=3))
@settings(max_examples=examples(100), deadline=None)
def test_unlike_pods_find_a_place_wherever_they_did_and_leave_no_trace(world: World, parts: list[tuple[int, int]]):
    """Placed by the levels, with the search for fewer nodes, and by what it builds on; then undone."""
    wanted = together(*(gang(f"p{n}", pods, claim_spec(device_request(gpus))) for n, (pods, gpus) in enumerate(parts)))
    snapshot = world.snapshot(wanted)
    cache = Memory().cache(snapshot)
    placer, domains = cache.placer, cache.domains
    placer.begin()
    units = cache.shapes.units(wanted)
    plain = placer.place(units, StepBudget(10_000))
    placer.undo(plain.placed)
    found = domains.place(wanted, units, StepBudget(10_000), spread=False)
    assert found.status is plain.status
    if found.status is SearchStatus.FOUND:
        assert len({each.node for each in found.placed}) <= len({each.node for each in plain.placed})
        assert sorted(each.unit.members[0].pod.name for each in found.placed) == sorted(
            m.pod.name for m in wanted.members
        )
    placer.undo(found.placed)
    assert not placer.ledger.taken
    assert not any(any(load.values()) for load in placer.ledger.loads.values())
    assert decide(snapshot, 0.0) == decide(world.afresh().snapshot(wanted), 0.0)
