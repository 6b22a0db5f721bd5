"""The MIG benchmark: a made trace of MIG profiles and whole GPUs, and policies that keep to the hardware's rules."""

from __future__ import annotations

from itertools import pairwise

import pytest

from benchmarks.mig.baselines import ListedFleet
from benchmarks.mig.engine_fleet import EngineFleet
from benchmarks.mig.hardware import parse_cluster
from benchmarks.mig.published import read
from benchmarks.mig.requests import DRAWN, MIXES, Arrival, MigRequest, arrivals, mix_of, timed_arrivals
from benchmarks.mig.run import LOADS, POLICIES, churn, fill, fleet, measure
from fairlead.driver.backend import geometry
from fairlead.driver.backend.types import MigProfile

H100 = "NVIDIA H100 80GB HBM3"
ONE, DOUBLE, TWO = MigRequest("1g.10gb", "", 1, 1), MigRequest("1g.20gb", "", 1, 1), MigRequest("2g.20gb", "", 1, 2)
THREE, FOUR, GPU = MigRequest("3g.40gb", "", 1, 3), MigRequest("4g.40gb", "", 1, 4), MigRequest("", H100, 1, 7)


def held(of) -> list[tuple[int, list[str]]]:
    """The names of the devices of each request that runs, with the number of its node."""
    if isinstance(of, EngineFleet):
        return [(node, list(names)) for node, names in of.held()]
    assert isinstance(of, ListedFleet)
    return [(node, [offer.name for offer in offers]) for node, offers in of.held()]


# --------------------------------------------------------------------------------------------------------- the trace


@pytest.mark.parametrize("mix", [*MIXES, DRAWN])
def test_a_trace_is_the_same_for_the_same_seed_and_requests_130_percent(mix):
    cluster = parse_cluster(["hgx-h100=4", "dgx-a100=2"])
    made = [arrivals(cluster, mix_of(mix, seed), seed, dynamic=True) for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]
    asked = sum(request.slices for request in made[0])
    assert 1.3 * cluster.capacity - 56 < asked <= 1.3 * cluster.capacity


def test_with_departures_as_many_slices_are_requested_at_a_time_as_the_load_says():
    cluster = parse_cluster(["hgx-h100=8"])
    made = timed_arrivals(cluster, MIXES["small"], 1, dynamic=True, load=0.9, until=50.0)
    assert all(a.at < b.at for a, b in pairwise(made))
    assert sum(each.request.slices * each.runs for each in made) / 50 / cluster.capacity == pytest.approx(0.9, rel=0.05)


def test_requests_are_for_what_the_hardware_has():
    a100, a30 = parse_cluster(["dgx-a100-40=2"]), parse_cluster(["a30=2"])
    asked = {request.profile for request in arrivals(a100, MIXES["even"], 1, dynamic=True)}
    assert asked == {"1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb"}, "whole GPUs need MIG mode off: a reset"
    assert "" in {request.profile for request in arrivals(a100, MIXES["even"], 1, dynamic=False)}
    assert {request.profile for request in arrivals(a30, MIXES["partitions"], 1, dynamic=True)} == {
        "1g.6gb",
        "2g.12gb",
        "4g.24gb",
    }


# ----------------------------------------------------------------------------------------------------------- legality


@pytest.mark.parametrize("policy", ["fairlead", "best-fit", "fgd", "random"])
@pytest.mark.parametrize("nodes", [["hgx-h100=2"], ["hgx-h200=1", "dgx-a100=1"]])
def test_what_a_policy_places_the_hardware_can_cut(policy, nodes):
    """Judged by the geometry of MIG, which neither the engine nor the baselines read."""
    cluster = parse_cluster(nodes)
    of = fleet(cluster, policy, MIXES["small"], static=False)
    running = [
        number for request in arrivals(cluster, MIXES["small"], 3, dynamic=True) if (number := of.place(request))
    ]
    for number in running[::3]:
        of.release(number)
    for request in arrivals(cluster, MIXES["even"], 4, dynamic=True):
        of.place(request)
    placed: dict[tuple[int, str], list[tuple[MigProfile, int]]] = {}
    whole: set[tuple[int, str]] = set()
    for node, names in held(of):
        sizes = {size.id: size for size in cluster.nodes[node].sizes}
        for name in names:
            gpu, _, rest = name.removeprefix("gpu-").partition("-mig-")
            if not rest:
                assert (node, gpu) not in whole
                whole.add((node, gpu))
                continue
            profile, start = map(int, rest.split("-")[-2:])
            beside = placed.setdefault((node, gpu), [])
            assert geometry.fits(tuple(sizes.values()), beside, (sizes[profile], start)), (name, beside)
            beside.append((sizes[profile], start))
    assert placed and not whole & placed.keys()


# ----------------------------------------------------------------------------------------------------------- choices


def test_first_fit_takes_the_first_as_published_and_best_fit_the_gpu_that_keeps_least():
    cluster = parse_cluster(["hgx-h100=2"])
    first, best = (fleet(cluster, policy, MIXES["even"], static=False) for policy in ("first-fit", "best-fit"))
    for of in (first, best):
        for request in (THREE, FOUR, FOUR, TWO):  # GPU 0: full; GPU 1: 4g at 0, 2g at 4
            assert of.place(request)
        of.release(1)  # GPU 0 has three slices again
        assert of.place(ONE)
    assert [held(of)[-1][1][0].split("-mig-")[0] for of in (first, best)] == ["gpu-0", "gpu-1"]


def test_a_static_request_gets_the_smallest_device_that_serves_and_first_fit_the_first():
    cluster = parse_cluster(["dgx-a100=1"])
    sizes = {size.name: size for size in cluster.nodes[0].sizes}
    cut = ((sizes["3g.40gb"], 0), (sizes["2g.20gb"], 4), (sizes["1g.20gb"], 6))
    bodies = cluster.nodes[0].published([((sizes["3g.40gb"], 0), (sizes["3g.40gb"], 4)), *[cut] * 7])
    published = read(cluster.nodes[0], bodies)
    ours = EngineFleet([bodies], published.sizes)
    best = ListedFleet([published], "best-fit", static=True)
    first = ListedFleet([published], "first-fit", static=True)
    for of in (ours, best, first):
        assert of.place(TWO)
    devices = {offer.name: offer.profile for offer in published.offers}
    assert ["2g.20gb" in devices[names[0]] for of in (ours, best, first) for _, names in held(of)] == [
        True,
        True,
        False,
    ]


# ------------------------------------------------------------------------------------------------------------ figures


def test_what_is_counted_without_departures():
    class Takes:
        def place(self, request):
            return 1 if request.profile else None

        def release(self, number):
            raise AssertionError("nothing departs")

    found = fill(Takes(), 10, [FOUR, FOUR, MigRequest("", H100, 1, 1), ONE])
    assert {load: each.allocated for load, each in found.items()} == {80: 80.0, 90: 80.0, 100: 90.0, 130: 90.0}
    assert found[100].came == {"all": 4, "large": 2, "whole": 1} and found[100].refused == {
        "all": 1,
        "large": 0,
        "whole": 1,
    }


def test_what_is_counted_with_departures():
    class Takes:
        def __init__(self):
            self.released = []

        def place(self, request):
            return request.slices

        def release(self, number):
            self.released.append(number)

    takes = Takes()
    found = churn(takes, 10, [Arrival(2.0, 2.0, FOUR), Arrival(3.0, 9.0, TWO), Arrival(5.0, 1.0, ONE)])
    assert takes.released == [4]
    assert found.allocated == pytest.approx(100 * (6 * 1 + 2 * 1) / 10 / 2), "from 3 to 4 six slices, from 4 to 5 two"
    assert found.came == {"all": 1}


@pytest.mark.slow
@pytest.mark.parametrize("mix", ["partitions", "small"])
def test_ours_allocates_no_less_than_the_others_on_a_small_cluster(mix):
    cluster = parse_cluster(["hgx-h100=6"])
    means = {}
    for policy in POLICIES:
        runs = [measure(cluster, mix, seed, policy, static=False, departures=False)[0] for seed in (201, 202, 203)]
        means[policy] = [sum(each[load].allocated for each in runs) / len(runs) for load in LOADS]
    for other in ("best-fit", "first-fit"):
        assert all(ours >= theirs - 1e-9 for ours, theirs in zip(means["fairlead"], means[other], strict=True)), means
    assert means["fairlead"][-1] > means["best-fit"][-1]


# ------------------------------------------------------------------------------------------------------------ command
