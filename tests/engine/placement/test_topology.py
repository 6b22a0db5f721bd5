"""Levels of a topology, subgroups and ranks: each test is one small cluster of blocks of racks of nodes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.api.topology import levels
from fairlead.engine.placement.shapes import PlacementUnit, UnitShape
from fairlead.engine.placement.topology.domains import by_subgroup
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.reasons import Code
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World, nodes_of

HOST = "kubernetes.io/hostname"
BLOCK, RACK = "example.com/block", "example.com/rack"


def cluster(*blocks: list[list[int]]) -> World:
    """Blocks of racks of nodes, each with so many GPUs. Racks are numbered within their block."""
    world = World()
    for b, racks in enumerate(blocks):
        for r, sizes in enumerate(racks):
            for n, gpus in enumerate(sizes):
                name = f"b{b}r{r}n{n}"
                labels = {BLOCK: f"b{b}", RACK: f"r{r}", HOST: name}
                world.add_node(name, [gpu(minor) for minor in range(gpus)], labels=labels)
    return world


def ranked(found: GangRequest, *ranks: int) -> GangRequest:
    members = found.members
    order = ranks or range(len(members))
    return replace(found, members=tuple(replace(m, rank=r) for m, r in zip(members, order, strict=True)))


def grouped(found: GangRequest, size: int, topology: str) -> GangRequest:
    """By rank, else by number."""
    members = tuple(
        replace(m, subgroup=str((n if m.rank is None else m.rank) // size)) for n, m in enumerate(found.members)
    )
    return replace(found, members=members, subgroup_topology=topology)


def job(pods: int, gpus: int = 8, **more: Any) -> GangRequest:
    return gang("job", pods, claim_spec(device_request(gpus)), **more)


def paths(world: World, plan: Plan, labels: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Of each member in order, its values of the labels."""
    known = world.node_json
    return [tuple(known[node]["metadata"]["labels"][label] for label in labels) for node in nodes_of(plan, "job")]


def used(world: World, plan: Plan, *labels: str) -> int:
    return len(set(paths(world, plan, labels)))


class TestLevels:
    def test_the_innermost_domain_that_holds_the_gang_is_taken(self):
        world = cluster([[8, 8], [8, 8, 8]], [[8, 8, 8], [8, 8, 8]])
        text = f"required:{BLOCK}, preferred:{RACK}"
        assert paths(world, world.decide(job(2, topology=text)), (BLOCK, RACK)) == [("b0", "r0")] * 2
        assert used(world, world.decide(job(3, topology=text)), BLOCK, RACK) == 1

    def test_where_no_rack_holds_it_a_block_does_and_in_it_few_racks(self):
        world = cluster([[8], [8], [8, 8, 8]], [[8] * 3, [8] * 3, [8] * 3])
        plan = world.decide(job(5, topology=f"preferred:{BLOCK}, preferred:{RACK}"))
        assert set(paths(world, plan, (BLOCK,))) == {("b0",)}
        plan = world.decide(job(4, topology=f"preferred:{BLOCK}, preferred:{RACK}"))
        assert used(world, plan, BLOCK, RACK) == 2
        plan = world.decide(job(7, topology=f"preferred:{BLOCK}, preferred:{RACK}"))
        assert (used(world, plan, BLOCK), used(world, plan, BLOCK, RACK)) == (1, 3)

    def test_the_example_of_the_documentation(self):
        world = cluster([[8] * 4] * 2, [[8] * 4] * 2)
        plan = world.decide(job(12, topology=f"preferred:{BLOCK}, preferred:{RACK}"))
        assert (used(world, plan, BLOCK), used(world, plan, BLOCK, RACK)) == (2, 3)
        reason = world.decide(job(12, topology=f"required:{BLOCK}")).waiting[0].reason
        told = f"level {BLOCK} (required): 12 members in one of 2 domains: the best, b0, has room for 8, 4 short"
        assert [str(level) for level in reason.levels] == [told]

    def test_a_level_that_no_node_has_is_told(self):
        reason = cluster([[8]]).decide(job(1, topology="required:nowhere, preferred:either")).waiting[0].reason
        assert "level nowhere (required): no node has this label, nor devices such an attribute" in str(reason)

    def test_members_that_come_later_join_the_domain_of_those_that_run(self):
        world = cluster([[8, 8]], [[8]])
        text = f"required:{BLOCK}, preferred:{RACK}"
        plan = world.decide(replace(job(2, 4, topology=text), placed_nodes=("b1r0n0",)))
        assert set(nodes_of(plan, "job")) == {"b1r0n0"}
        astray = replace(job(1, 4, topology=text), placed_nodes=("b1r0n0", "b0r0n0"))
        assert not world.decide(astray).admissions

    def test_levels_in_an_order_that_makes_no_sense_are_refused_with_the_way_out(self):
        plan = cluster([[8]]).decide(job(1, topology=f"preferred:{BLOCK}, required:{RACK}"))
        assert plan.waiting[0].reason.code is Code.INVALID
        assert f"write required:{RACK}, preferred:{BLOCK}" in str(plan.waiting[0].reason)

    def test_a_gang_that_must_stay_in_one_rack_of_a_block_makes_room_there(self):
        """Victims are looked for in the domains that all required levels allow together."""
        world = cluster([[8, 8], [8]], [[8, 8]])
        fillers = [replace(gang(f"f{n}", 1, claim_spec(device_request(8))), priority=-1) for n in range(5)]
        world.carry_out(world.decide(*fillers), fillers)
        plan = world.decide(replace(job(2, topology=f"required:{BLOCK}, required:{RACK}"), priority=10))
        assert len(plan.evictions) == 2
        where = {world.running[each.id].members[0].node[:4] for each in plan.evictions}
        assert len(where) == 1


class TestSubgroups:
    def test_a_member_that_is_replaced_returns_to_its_subgroups_rack(self):
        world = cluster([[8, 8]], [[4]])
        waiting = grouped(job(1, 4), 1, f"required:{BLOCK}")
        joined = replace(waiting, placed_nodes=("b1r0n0",), placed_subgroups=(("0", "b1r0n0"),))
        assert nodes_of(world.decide(joined), "job") == ["b1r0n0"]
        filler = gang("filler", 1, claim_spec(device_request(4)), pod={"nodeSelector": {HOST: "b1r0n0"}})
        world.carry_out(world.decide(filler), [filler])
        assert not world.decide(joined).admissions, "another block has room, but its subgroup is in this one"

    def test_unlike_subgroups_are_tried_in_other_domains_too(self):
        """Three pods and two: the rack of five for the three would leave no rack for two and two."""
        world = cluster([[8] * 5, [8] * 4])
        found = job(9)
        named = ("a", "a", "a", "b", "b", "c", "c", "d", "d")
        members = tuple(replace(m, subgroup=name) for m, name in zip(found.members, named, strict=True))
        plan = world.decide(replace(found, members=members, subgroup_topology=f"required:{RACK}"))
        where = paths(world, plan, (RACK,))
        assert len(plan.admissions) == 1
        assert all(len({p for p, n in zip(where, named, strict=True) if n == name}) == 1 for name in "abcd")

    def test_room_is_made_where_the_subgroups_fit(self):
        world = cluster([[8, 8, 8], [8, 8, 8]])
        fillers = [replace(gang(f"f{n}", 1, claim_spec(device_request(8))), priority=-1) for n in range(6)]
        world.carry_out(world.decide(*fillers), fillers)
        plan = world.decide(replace(grouped(job(4), 2, f"required:{RACK}"), priority=10))
        racks = sorted(world.running[each.id].members[0].node[:4] for each in plan.evictions)
        assert racks == ["b0r0", "b0r0", "b0r1", "b0r1"]

    def test_a_place_is_kept_where_the_subgroups_fit(self):
        """Not on the nodes that end first: they are in two racks, where subgroups of two would be split."""
        world = cluster([[8, 8], [8, 8], [8, 8]])
        world.reserve_after_s = 0.0
        fillers = [gang(f"f{n}", 1, claim_spec(device_request(8))) for n in range(6)]
        world.carry_out(world.decide(*fillers), fillers)
        soon = {"b0r0n0", "b0r1n0", "b0r1n1", "b0r2n0", "b0r2n1"}
        world.running = {
            name: replace(each, ends_by=100.0 if each.members[0].node in soon else None)
            for name, each in world.running.items()
        }
        plan = world.decide(grouped(job(4), 2, f"required:{RACK}"))
        assert [entry.nodes for entry in plan.reservations] == [("b0r1n0", "b0r1n1", "b0r2n0", "b0r2n1")]

    def test_subgroups_that_pods_of_shared_claims_join_are_one_group_with_all_their_names(self):
        """The third unit joins the first subgroup and the second one, to which the third already belongs."""
        shared = [("a",), ("b", "c"), ("a", "b"), ("c",)]
        shape = UnitShape(claims=(), needs=(), bound=(), least=0, number=0)
        units = [
            PlacementUnit(
                members=tuple(replace(job(1).members[0], subgroup=subgroup) for subgroup in subgroups),
                claims=(),
                shape=shape,
            )
            for subgroups in shared
        ]
        (group,) = by_subgroup(job(1), units)
        assert (group.names, len(group.units)) == (("a", "b", "c"), 4)

    def test_a_node_whose_devices_are_of_several_fabrics_is_in_none(self):
        world = World()
        for name, islands in (("n0", (0, 1)), ("n1", (0, 0))):
            world.add_node(name, [gpu(minor, island=island) for minor, island in enumerate(islands)])
        fabric = "required:gpu.fairlead.dev/nvlinkDomain"
        assert set(nodes_of(world.decide(job(2, 1, topology=fabric)), "job")) == {"n1"}
        assert world.decide(job(3, 1, topology=fabric)).admissions == ()


class TestRanks:
    def test_and_a_rack_and_a_block(self):
        world = cluster([[8, 8], [8]], [[8, 8], [8]])
        text = f"preferred:{BLOCK}, preferred:{RACK}"
        plan = world.decide(ranked(job(6, topology=text), 5, 1, 3, 0, 4, 2))
        where = dict(zip((5, 1, 3, 0, 4, 2), paths(world, plan, (BLOCK, RACK)), strict=True))
        apart = [where[rank] != where[rank + 1] for rank in range(5)]
        assert sum(apart) == 3
        assert where[2][0] != where[3][0], "three ranks in each block"

    def test_only_members_that_ask_for_the_same_change_places(self):
        world = cluster([[8, 2]])
        big, small = claim_spec(device_request(8)), claim_spec(device_request(2))
        one, other = gang("job", 1, big), gang("other", 1, small)
        both = replace(one, members=(*one.members, *other.members), claims=(*one.claims, *other.claims), size=2)
        plan = world.decide(ranked(both, 1, 0))
        assert nodes_of(plan, "job") == ["b0r0n0", "b0r0n1"]

    def test_members_without_a_rank_stay_as_they_were(self):
        world = cluster([[8, 8]])
        plain = nodes_of(world.decide(job(12, 1)), "job")
        found = job(12, 1)
        some = tuple(replace(m, rank=n) if n % 2 else m for n, m in enumerate(found.members))
        mixed = nodes_of(world.decide(replace(found, members=some)), "job")
        assert mixed[::2] == plain[::2]


# -- properties


@st.composite
def cases(draw: st.DrawFn) -> tuple[World, GangRequest, int, int]:
    """A cluster, a gang of alike pods, GPUs of each, and the size of its subgroups (0: none)."""
    blocks = draw(
        st.lists(
            st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=3),
            min_size=1,
            max_size=3,
        )
    )
    gpus, size = draw(st.integers(1, 2)), draw(st.sampled_from([0, 0, 1, 2, 3]))
    pods = draw(st.integers(1, 8)) if not size else size * draw(st.integers(1, 4))
    count = draw(st.integers(0, 3))
    bound = draw(st.integers(0, count))
    text = ", ".join(
        f"{'required' if number < bound else 'preferred'}:{label}"
        for number, label in enumerate((BLOCK, RACK, HOST)[:count])
    )
    found = ranked(job(pods, gpus, topology=text or None), *draw(st.permutations(range(pods))))
    if size:
        inner = draw(st.sampled_from([f"required:{BLOCK}, required:{RACK}", f"required:{HOST}", f"preferred:{RACK}"]))
        found = grouped(found, size, inner)
    return cluster(*blocks), found, gpus, size


def _labels(text: str | None, *, required: bool) -> tuple[str, ...]:
    found = levels(text) if text else ()
    return tuple(each.label for each in found if not required or each.mode == "required")


def _fits(world: World, found: GangRequest, gpus: int, size: int) -> bool:
    """By counting: alike pods of whole GPUs on an empty cluster."""
    slices = [each["spec"] for each in world.slice_json.values()]
    rooms = {each["nodeName"]: len(each["devices"]) // gpus for each in slices}
    labels, inner = _labels(found.topology, required=True), _labels(found.subgroup_topology, required=True)

    def domains(names_: list[str], of: tuple[str, ...]) -> list[list[str]]:
        groups: dict[tuple[str, ...], list[str]] = {}
        for name in names_:
            path = tuple(world.node_json[name]["metadata"]["labels"][label] for label in of)
            groups.setdefault(path, []).append(name)
        return list(groups.values())

    for domain in domains(sorted(rooms), labels):
        if size and inner:
            holds = sum(sum(rooms[n] for n in part) // size for part in domains(domain, inner)) * size
        else:
            holds = sum(rooms[name] for name in domain)
        if holds >= len(found.members):
            return True
    return False


@given(case=cases())
def test_required_levels_hold_subgroups_stay_whole_and_what_fits_is_placed(case: tuple[World, GangRequest, int, int]):
    world, found, gpus, size = case
    plan = world.decide(found)
    assert bool(plan.admissions) == _fits(world, found, gpus, size)
    assert world.afresh().decide(found) == plan, "the same snapshot gave another plan"
    if not plan.admissions:
        reason = plan.waiting[0].reason
        assert reason.code is Code.NEVER_FITS, str(reason)
        return
    outer = paths(world, plan, _labels(found.topology, required=True))
    assert len(set(outer)) == 1
    inner = paths(world, plan, _labels(found.subgroup_topology, required=True))
    of: dict[str, set[tuple[str, ...]]] = {}
    for member, path in zip(found.members, inner, strict=True):
        of.setdefault(member.subgroup, set()).add(path)
    assert not size or all(len(domains) == 1 for domains in of.values())
    world.carry_out(plan, [found])
    assert not world.faults()


@given(case=cases())
def test_ranks_are_dealt_out_without_gaps_and_cost_no_domain(case: tuple[World, GangRequest, int, int]):
    world, found, _, size = case
    plan = world.decide(found)
    if not plan.admissions:
        return
    without = world.afresh().decide(replace(found, members=tuple(replace(m, rank=None) for m in found.members)))
    levels_ = (*_labels(found.topology, required=False), HOST)
    for depth in range(1, len(levels_) + 1):
        where = paths(world, plan, levels_[:depth])
        by_rank = [path for _, path in sorted(zip((m.rank for m in found.members), where, strict=True), key=_first)]
        apart = sum(one != other for one, other in pairwise(by_rank))
        if not size:
            assert apart == len(set(where)) - 1
            assert len(set(where)) <= len(set(paths(world, without, levels_[:depth])))
        else:
            assert apart >= len(set(where)) - 1


def _first(pair: tuple[Any, Any]) -> Any:
    return pair[0]


@given(
    blocks=st.lists(
        st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=4), min_size=1, max_size=3
    ),
    pods=st.integers(1, 12),
)
def test_of_the_outermost_preferred_level_no_more_domains_than_needed(blocks: list[list[list[int]]], pods: int):
    world = cluster(*blocks)
    plan = world.decide(job(pods, 1, topology=f"preferred:{BLOCK}, preferred:{RACK}"))
    if plan.admissions:
        rooms = sorted((sum(map(sum, racks)) for racks in blocks), reverse=True)
        least = next(n for n in range(1, len(rooms) + 1) if sum(rooms[:n]) >= pods)
        assert used(world, plan, BLOCK) == least
        if least == 1:
            holding = [racks for racks in blocks if sum(map(sum, racks)) >= pods]
            fewest = min(_fewest(list(map(sum, racks)), pods) for racks in holding)
            single = any(sum(rack) >= pods for racks in blocks for rack in racks)
            assert used(world, plan, BLOCK, RACK) >= (1 if single else fewest)
            assert not single or used(world, plan, BLOCK, RACK) == 1


def _fewest(rooms: list[int], pods: int) -> int:
    ordered = sorted(rooms, reverse=True)
    return next(n for n in range(1, len(ordered) + 1) if sum(ordered[:n]) >= pods)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2)])
def test_the_order_in_which_pods_were_made_does_not_matter_to_ranks(order: tuple[int, ...]):
    world = cluster([[2, 2]])
    found = ranked(job(4, 1))
    plan = world.decide(replace(found, members=tuple(found.members[n] for n in order)))
    at = {assignment.pod.name: assignment.node for a in plan.admissions for assignment in a.assignments}
    assert at["job-0"] == at["job-1"] != at["job-2"] == at["job-3"]
