"""Where MIG profiles go: what a cut costs of a GPU, and which GPU and placement a request gets. Figures are worked out by hand."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fairlead.api import names
from fairlead.engine.placement.value import cuts
from fairlead.engine.placement.value.cuts import Cut, CutValue, Packings, Worth, after, fits
from fairlead.engine.placement.value.workload import WorkloadCounter
from fairlead.engine.types.pods import Workload
from tests.support.engine.objects import MIG, claim_spec, device_request, gang, mig_gpu
from tests.support.engine.world import World, devices_of, nodes_of

# Counters of a GPU of 7 compute and 8 memory slices: compute, then the memory slices.
WHOLE = (7, 1, 1, 1, 1, 1, 1, 1, 1)
NAMES = ("compute", *(f"memory-slice-{number}" for number in range(8)))
GROUPS = ((0,), tuple(range(1, 9)))


def cut(compute: int, start: int, memory: int) -> Cut:
    return ((0, compute), *((1 + at, 1) for at in range(start, start + memory)))


ONE = tuple(cut(1, start, 1) for start in range(7))
TWO = tuple(cut(2, start, 2) for start in (0, 2, 4))
THREE = tuple(cut(3, start, 4) for start in (0, 4))
FOUR = (cut(4, 0, 4),)
GPU = (cut(7, 0, 8),)


def value(kinds: tuple[tuple[Cut, ...], ...], demand: tuple[float, ...], several: float = 0.0) -> CutValue:
    return CutValue((NAMES, WHOLE), kinds, demand, GROUPS, several)


def mix(*entries: tuple[dict[str, Any], int]) -> Workload:
    counter = WorkloadCounter()
    for number, (spec, count) in enumerate(entries):
        counter.note(gang(f"seen-{number}", count, spec))
    found = counter.workload()
    assert found is not None
    return found


def profile(name: str) -> dict[str, Any]:
    return claim_spec(device_request(device_class=MIG, cel=f'device.attributes["{names.DRIVER}"].profile == "{name}"'))


def gpus(*numbers: int) -> World:
    """A node for each number, with so many GPUs that may be cut."""
    world = World()
    for node, number in enumerate(numbers):
        parts = [mig_gpu(minor) for minor in range(number)]
        world.add_node(
            f"node-{node}", [each for devices, _ in parts for each in devices], counters=[c for _, c in parts]
        )
    return world


# ------------------------------------------------------------------------------------------------------ what a cut costs


def test_a_1g_costs_the_same_wherever_it_ends_the_same_places():
    """At slices 0 to 3 it ends the 4g and a 3g, at 4 to 6 the other 3g; beside a 4g only the latter are left."""
    of = value((ONE, THREE, FOUR), (1.0, 10.0, 10.0))
    waste = {cut[1][0] - 1: of.cost(WHOLE, cut) for cut in ONE}
    assert len({each for at, each in waste.items() if at < 4}) == 1
    assert len({each for at, each in waste.items() if at >= 4}) == 1
    beside_four = after(WHOLE, FOUR[0])
    costs = [of.cost(beside_four, cut) for cut in ONE]
    assert costs[:4] == [None] * 4 and None not in costs[4:]


def test_slices_that_only_1g_can_use_are_used_before_a_3g_loses_its_place():
    """3g at 0 leaves 4 compute slices and the memory slices 4 to 7: one more 3g with a slice of compute left, or a 2g and two 1g."""
    of = value((ONE, TWO, THREE), (1.0, 1.0, 10.0))
    beside_three, beside_two = after(WHOLE, THREE[0]), after(after(WHOLE, THREE[0]), TWO[2])
    third = [cost for cut in ONE if (cost := of.cost(beside_three, cut)) is not None]
    last = [cost for cut in ONE if (cost := of.cost(beside_two, cut)) is not None]
    assert min(last) < min(third), "the third slice's GPU is cut up already: a 3g no longer fits there"


def test_a_gpu_that_is_cut_already_comes_before_a_whole_one():
    of = value((ONE, TWO, THREE, GPU), (4.0, 2.0, 1.0, 1.0), several=0.3)
    cut_already = after(WHOLE, TWO[2])
    costs = [min(cost for each in ONE if (cost := of.cost(state, each)) is not None) for state in (cut_already, WHOLE)]
    assert costs[0] < costs[1]


def test_what_does_not_fit_has_no_cost_and_what_is_not_usual_has_one():
    of = value((ONE, TWO), (1.0, 1.0))
    assert of.cost(after(WHOLE, GPU[0]), ONE[0]) is None
    assert of.cost(WHOLE, FOUR[0]) is not None


def test_a_state_is_worth_its_best_packing():
    """Beside an exhaustive search over all orders of cuts, at random prices."""
    draw = random.Random(5)
    kinds = (ONE, TWO, THREE, FOUR)
    packings = Packings(kinds)

    def exhaustive(state: cuts.State, prices: list[int]) -> int:
        found = [
            prices[kind] + exhaustive(after(state, each), prices)
            for kind, of_kind in enumerate(kinds)
            for each in of_kind
            if fits(state, each)
        ]
        return max(found, default=0)

    for _ in range(20):
        state: cuts.State = WHOLE
        for each in draw.sample([*TWO, *THREE, *FOUR], 3):
            state = after(state, each) if fits(state, each) else state
        prices = [draw.randrange(9) for _ in kinds]
        worth = Worth(packings, prices)
        assert worth(state) == exhaustive(state, prices)
        assert sum(price * count for price, count in zip(prices, worth.packing(state), strict=True)) == worth(state)


def test_no_packing_of_a_gpu_is_worth_more_than_the_gpu():
    for demand in ((1.0, 1.0, 1.0, 1.0), (50.0, 1.0, 3.0, 0.5), (1.0, 0.1, 0.1, 20.0)):
        of = value((ONE, TWO, THREE, FOUR), demand)
        state: cuts.State = WHOLE
        spent = 0.0
        while options := [each for kind in (ONE, TWO, THREE, FOUR) for each in kind if fits(state, each)]:
            best = min(options, key=lambda each: of.cost(state, each) or (0, 0))
            spent += of._price[best]
            state = after(state, best)
        assert spent <= 1.0 + 1e-6


def test_a_gpu_with_too_many_states_is_not_priced(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cuts, "STATES_MAX", 10)
    of = value((ONE, TWO), (1.0, 1.0))
    assert not of.priced
    cost = of.cost(WHOLE, ONE[6])
    assert cost is not None and cost[1] == 857, (
        "it still packs: six of seven compute slices are left, seven of eight of memory"
    )


# ---------------------------------------------------------------------------------------------------- where requests go


def test_a_small_profile_leaves_a_place_for_the_large_ones_of_the_mix():
    world = gpus(1)
    world.workload = mix((profile("1g.10gb"), 8), (profile("3g.40gb"), 16), (profile("4g.40gb"), 16))
    small = gang("small", 1, profile("1g.10gb"))
    plan = world.decide(small)
    assert devices_of(plan, "small")[0].rsplit("-", 1)[1] in {"4", "5", "6"}
    world.carry_out(plan, [small])
    assert world.decide(gang("large", 1, profile("4g.40gb"))).admissions


def test_of_two_nodes_the_one_whose_gpu_is_cut_already_gets_the_profile():
    """The other has fewer placements of it left, on its one GPU: without the score that GPU is cut, too."""
    world = gpus(1, 2)
    world.workload = mix((profile("1g.10gb"), 30), (profile("2g.20gb"), 10), (claim_spec(device_request()), 8))
    first = gang("first", 1, profile("2g.20gb"), avoid=("node-0",))
    world.carry_out(plan := world.decide(first), [first])
    where, cut_gpu = nodes_of(plan, "first"), devices_of(plan, "first")[0].split("-")[1]
    assert where == ["node-1"]
    for number in range(5):
        job = gang(f"small-{number}", 1, profile("1g.10gb"))
        world.carry_out(plan := world.decide(job), [job])
        assert (nodes_of(plan, job.name), devices_of(plan, job.name)[0].split("-")[1]) == (where, cut_gpu)
    assert not world.faults()


def test_profiles_keep_the_node_whose_gpus_are_whole_for_several():
    world = gpus(2, 4)
    world.workload = mix((profile("1g.10gb"), 30), (claim_spec(device_request(4)), 8))
    jobs = [gang(f"small-{number}", 1, profile("1g.10gb"), created=float(number)) for number in range(9)]
    plan = world.decide(*jobs)
    assert {node for job in jobs for node in nodes_of(plan, job.name)} == {"node-0"}
    world.carry_out(plan, jobs)
    assert world.decide(gang("four", 1, claim_spec(device_request(4)))).admissions
