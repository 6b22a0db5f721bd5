"""Aligned gangs: each test is one small cluster, GPUs with rails, some of which are in use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.types.gangs import ClaimRequest, GangRequest, PlacedMember
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.reasons import Code, Reason
from tests.support.engine.objects import Json, claim_spec, device_request, gang, gpu
from tests.support.engine.world import World

RAIL = f"{names.DRIVER}/rail"
RACK = "example.com/rack"


def railed(minor: int, rail: int, **more: Any) -> Json:
    made = gpu(minor, **more)
    made["attributes"]["rail"] = {"int": rail}
    return made


def cluster(free: Mapping[str, Sequence[int]], *, gpus: int = 8, labels: Mapping[str, str] | None = None) -> World:
    """Nodes with one GPU on each rail, of which only these rails are free."""
    world = World()
    for name, rails in free.items():
        world.add_node(
            name, [railed(n, n) for n in range(gpus)], labels={HOST: name, RACK: (labels or {}).get(name, name)}
        )
        for minor in set(range(gpus)) - set(rails):
            only = f'device.attributes["{names.DRIVER}"].uuid == "GPU-{minor}"'
            taken = gang(
                f"t-{name}-{minor}", 1, claim_spec(device_request(cel=only)), pod={"nodeSelector": {HOST: name}}
            )
            assert not world.carry_out(world.decide(taken), [taken])
    return world


HOST = "kubernetes.io/hostname"


def job(pods: int, gpus: int, name: str = "job", align: str = RAIL, **more: Any) -> GangRequest:
    return gang(name, pods, claim_spec(device_request(gpus)), align=align, **more)


def rails(
    world: World, plan: Plan, name: str = "job", attribute: str = RAIL, request: str = ""
) -> dict[str, list[Any]]:
    """By pod, the values of its devices, or of those of one request, sorted."""
    found: dict[str, list[Any]] = {}
    (admission,) = (each for each in plan.admissions if each.name == name)
    for claim in admission.claims:
        for result, ref in zip(claim.allocation.devices.results, claim.devices, strict=True):
            device = world.inventory.device(ref)
            if request and result.request != request:
                continue
            assert device is not None
            found.setdefault(claim.reserved_for[0].name, []).extend(value for _, value in device.values(attribute))
    return {pod: sorted(values) for pod, values in found.items()}


def common(world: World, plan: Plan, name: str = "job", attribute: str = RAIL) -> list[Any]:
    """The values that all members have."""
    by_pod = list(rails(world, plan, name, attribute).values())
    assert all(values == by_pod[0] for values in by_pod), by_pod
    return by_pod[0]


def reason(plan: Plan) -> Reason:
    (waiting,) = plan.waiting
    return waiting.reason


class TestSame:
    def test_fewer_nodes_come_before_that(self):
        world = World()
        world.add_node("a", [railed(n, n % 2) for n in range(4)])  # two GPUs of each rail
        world.add_node("b", [railed(n, 2 + n % 2) for n in range(2)])
        world.add_node("c", [railed(n, 2 + n % 2) for n in range(2)])
        assert common(world, world.decide(job(2, 2))) in ([0, 1], [0, 0], [1, 1])

    def test_requests_are_compared_by_name(self):
        world = cluster({"a": range(8), "b": [0, 1, 4]})
        spec = claim_spec(device_request(2), device_request(1))
        aligned = gang("job", 2, spec, align=f"{RAIL} of r0")
        plan = world.decide(aligned)
        found = rails(world, plan, request="r0")
        assert found["job-0"] == found["job-1"]

    def test_unlike_numbers_can_never_be_the_same(self):
        world = cluster({"a": range(8), "b": range(8)})
        four, two = job(1, 4), job(1, 2, "other")
        members = (*four.members, *two.members)
        mixed = replace(four, size=2, members=members, claims=(*four.claims, *two.claims))
        said = reason(world.decide(mixed))
        assert said.code is Code.INVALID
        assert "request r0 is for 2 or 4 devices" in said.message
        by_group = tuple(replace(m, worker_group=f"g{n}") for n, m in enumerate(members))
        assert world.decide(replace(mixed, members=by_group, align=f"{RAIL} per worker-group")).admissions

    def test_all_devices_of_a_node(self):
        world = World()
        for name, on in {"a": (0, 1), "b": (0, 1), "c": (2, 3, 4)}.items():
            world.add_node(name, [railed(n, rail) for n, rail in enumerate(on)])
        every = gang("job", 2, claim_spec(device_request(allocationMode="All", count=0)), align=RAIL)
        assert common(world, world.decide(every)) == [0, 1]
        assert not world.decide(replace(every, align=None, size=3)).admissions

    def test_an_alternative_with_another_count(self):
        world = cluster({"a": [0, 1, 2], "b": [1, 2, 3, 4]})
        either = claim_spec({"firstAvailable": [device_request(3, name="x"), device_request(2, name="y")]})
        assert common(world, world.decide(gang("job", 2, either, align=RAIL))) == [1, 2]

    def test_within_a_domain(self):
        racks = {"a": "r1", "b": "r1", "c": "r2", "d": "r2"}
        world = cluster({"a": [0, 1], "b": [2, 3], "c": [4, 5], "d": [4, 5]}, labels=racks)
        plan = world.decide(job(2, 2, topology=f"required:{RACK}"))
        assert common(world, plan) == [4, 5]
        world = cluster({"a": [0, 1], "b": [2, 3], "c": [0, 1], "d": [6]}, labels=racks)
        assert not world.decide(job(2, 2, topology=f"required:{RACK}")).admissions
        assert common(world, world.decide(job(2, 2, topology=f"preferred:{RACK}"))) == [0, 1]

    def test_each_subgroup_by_itself(self):
        world = cluster({"a": [0, 1], "b": [0, 1], "c": [2, 3], "d": [2, 3]})
        asked = job(4, 2, align=f"{RAIL} per subgroup")
        parts = replace(asked, members=tuple(replace(m, subgroup=f"s{n // 2}") for n, m in enumerate(asked.members)))
        found = rails(world, world.decide(parts))
        assert found["job-0"] == found["job-1"] != found["job-2"] == found["job-3"]
        assert not world.decide(replace(parts, align=RAIL)).admissions

    def test_two_attributes_hold_apart(self):
        """The rails are the same and the NUMA nodes are, though not rail by rail."""
        world = World()
        world.add_node("a", [_at(0, rail=0, slot="x"), _at(1, rail=1, slot="y")])
        world.add_node("b", [_at(0, rail=0, slot="y"), _at(1, rail=1, slot="x")])
        both = f"{RAIL}, {names.DRIVER}/slot"
        assert common(world, world.decide(job(2, 2, align=both))) == [0, 1]
        assert not world.decide(job(2, 1, align=both)).admissions

    def test_the_ordinal_where_no_driver_says_rails(self):
        world = World()
        for name in "ab":
            devices = [gpu(n) for n in range(4)]
            for n, device in enumerate(devices):
                device["attributes"][names.PCI_BUS_ID] = {"string": f"0000:{9 - n:02x}:00.0"}
            world.add_node(name, devices)
        plan = world.decide(job(2, 2, align=names.ORDINAL))
        assert len(set(map(tuple, rails(world, plan, attribute=names.ORDINAL).values()))) == 1
        by_name = {
            name: next(iter(world.inventory.on_node("a", {}).devices[n].values(names.ORDINAL)))
            for n, name in enumerate("dcba")
        }
        assert [number for _, number in (by_name[each] for each in "abcd")] == [0, 1, 2, 3]


def _at(minor: int, *, rail: int, slot: str) -> Json:
    made = railed(minor, rail)
    made["attributes"]["slot"] = {"string": slot}
    return made


class TestJoining:
    def member(self, world: World, node: str, minors: Sequence[int]) -> PlacedMember:
        spec = claim_spec(device_request(len(minors)))
        made = gang("old", 1, spec).claims[0]
        results = [{"request": "r0", "driver": names.DRIVER, "pool": node, "device": f"gpu-{n}"} for n in minors]
        return PlacedMember(claims=(_allocated(made, results),))

    def test_a_replaced_member_keeps_the_rails_of_the_others(self):
        world = cluster({"a": [0, 1, 4, 5], "b": [2, 3]})
        joins = replace(job(1, 2), size=2, placed_nodes=("b",), placed_members=(self.member(world, "b", [4, 5]),))
        assert common(world, world.decide(joins)) == [4, 5]

    def test_and_waits_where_they_are_taken(self):
        world = cluster({"a": [0, 1], "b": [2, 3]})
        joins = replace(job(1, 2), size=2, placed_nodes=("b",), placed_members=(self.member(world, "b", [4, 5]),))
        said = reason(world.decide(joins))
        assert said.code is Code.NO_DEVICES
        assert "4, 5" in said.message


def _allocated(claim: ClaimRequest, results: list[Json]) -> ClaimRequest:
    import msgspec

    from fairlead.kube import resource

    return replace(claim, allocation=msgspec.convert({"devices": {"results": results}}, resource.AllocationResult))


class TestReasons:
    def test_never_where_no_rails_would_do_on_an_empty_cluster(self):
        world = World()
        world.add_node("a", [railed(n, n) for n in range(2)])
        world.add_node("b", [railed(n, n + 2) for n in range(2)])
        said = reason(world.decide(job(2, 2)))
        assert said.code is Code.NEVER_FITS
        assert said.could_ever_fit is False
        assert "1 of its 2 pods" in said.message and RAIL in said.message

    def test_which_rails_are_in_the_way(self):
        world = cluster({"a": [0, 1, 2], "b": [1, 2], "c": [0, 3]})
        said = reason(world.decide(job(3, 2)))
        assert said.code is Code.NO_DEVICES
        assert said.could_ever_fit is True
        assert "2 of its 3 pods" in said.message and "1, 2" in said.message

    @pytest.mark.parametrize(
        "text", ["rail", "a/b=other", "a.b/c of", "a.b/c,,d.e/f", "a.b/c per node", "a.b/c, a.b/c of x"]
    )
    def test_a_text_that_cannot_be_read(self, text: str):
        said = reason(cluster({"a": [0]}).decide(job(1, 1, align=text)))
        assert said.code is Code.INVALID
        assert names.ALIGN in said.message


@given(
    free=st.lists(st.frozensets(st.integers(0, 5), max_size=6), min_size=1, max_size=4),
    pods=st.integers(1, 4),
    gpus=st.integers(1, 3),
)
def test_it_is_placed_if_and_only_if_some_rails_hold_it(free: list[frozenset[int]], pods: int, gpus: int):
    world = World()
    for number, on in enumerate(free):
        world.add_node(f"n{number}", [railed(n, rail) for n, rail in enumerate(sorted(on))])
    plan = world.decide(job(pods, gpus))
    ways = [set(way) for way in combinations(range(6), gpus)]
    holds = any(sum(way <= on for on in free) >= pods for way in ways)
    assert bool(plan.admissions) == holds
    if holds:
        common(world, plan)
    else:
        assert reason(plan).could_ever_fit is False


@given(
    nodes=st.lists(st.lists(st.integers(0, 2), max_size=5), min_size=1, max_size=3),
    pods=st.integers(1, 4),
    gpus=st.integers(1, 3),
)
def test_likewise_where_a_value_comes_several_times(nodes: list[list[int]], pods: int, gpus: int):
    world = World()
    for number, on in enumerate(nodes):
        world.add_node(f"n{number}", [railed(n, rail) for n, rail in enumerate(on)])
    plan = world.decide(job(pods, gpus))
    ways = {tuple(sorted(way)) for on in nodes for way in combinations(on, gpus)}
    holds = any(
        sum(min(Counter(on)[value] // count for value, count in Counter(way).items()) for on in nodes) >= pods
        for way in ways
    )
    assert bool(plan.admissions) == holds
    if holds:
        common(world, plan)


@given(data=st.data())
def test_whatever_comes_and_goes_each_admitted_gang_is_aligned(data: st.DataObject):
    world = World()
    for number in range(data.draw(st.integers(1, 3))):
        on = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=6))
        world.add_node(f"n{number}", [railed(n, rail) for n, rail in enumerate(on)])
    waiting: list[GangRequest] = []
    for number in range(data.draw(st.integers(1, 6))):
        pods, gpus, priority = (data.draw(st.integers(1, 3)) for _ in range(3))
        mode = data.draw(st.sampled_from([RAIL, f"{RAIL}=distinct", None]))
        waiting.append(gang(f"g{number}", pods, claim_spec(device_request(gpus)), align=mode, priority=priority))
        plan = world.decide(*waiting)
        for admission in plan.admissions:
            align = next(each.align for each in waiting if each.id == admission.id)
            values = rails(world, plan, admission.name).values()
            if align == RAIL:
                assert len(set(map(tuple, values))) == 1
            elif align is not None:
                every = [value for of in values for value in set(of)]
                assert len(every) == len(set(every))
        waiting = world.carry_out(plan, waiting) + world.gone()
        assert not world.decide(*waiting).admissions or plan.evictions
