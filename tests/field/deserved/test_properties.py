"""What is reclaimed of a flavor depends on nothing that holds none of it: tried on random queues, flavors and gangs.

The flavor is H100s. Gangs on other models are in no flavor, in one of their own, or in one that counts all models in another
measure. A failure prints hypothesis' own reproduction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from tests.field.deserved.clusters import A100, H100, L40S, Measure, all_gpus, cluster, held, job, model, settled
from tests.support.engine.examples import examples
from tests.support.engine.world import World

RELAXED = settings(
    max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck), report_multiple_bugs=False
)
MANY = settings(RELAXED, max_examples=examples(150))
MEASURES: Sequence[Measure] = ("Devices", "Share", "Capacity")
PREEMPTION: Sequence[Literal["LowerPriority", "Never"]] = ("LowerPriority", "Never")
OUTSIDE: Sequence[tuple[FlavorSpec, ...]] = (
    (),
    (model(L40S),),
    (model(L40S, "Capacity"), model(A100, "Share")),
    (all_gpus("share", "Share"),),
    (all_gpus("memory", "Capacity"), model(L40S)),
)


@st.composite
def queues(draw: st.DrawFn, flavors: Sequence[FlavorSpec]) -> tuple[QueueSpec, ...]:
    """Leaves with or without departments. What they deserve of H100s is at most what there is; they list L40Ss, or not."""
    listed = any(flavor.name == "l40s" for flavor in flavors) and draw(st.booleans())
    left, found = 6, list[QueueSpec]()
    for letter in "abc"[: draw(st.integers(2, 3))]:
        parent = f"dep-{letter}" if draw(st.booleans()) else None
        if parent is not None:
            found.append(QueueSpec(name=parent))
        for number in range(draw(st.integers(1, 2))):
            deserved = min(draw(st.sampled_from([0, 1, 2, 3])), left)
            left -= deserved
            more = (FlavorQuota(flavor="l40s", deserved=draw(st.integers(0, 2))),) if listed else ()
            quotas = (FlavorQuota(flavor="h100", deserved=deserved), *more)
            found.append(
                QueueSpec(
                    name=f"{letter}{number}", parent=parent, quotas=quotas, preemption=draw(st.sampled_from(PREEMPTION))
                )
            )
    return tuple(found)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Six H100s on one or two nodes, and other models beside them or on nodes of their own."""
    apart = draw(st.booleans())
    others = [L40S] * draw(st.integers(1, 3)) + [A100] * draw(st.integers(0, 2))
    nodes = {"h0": [H100] * 4, "h1": [H100] * 2, **({"o0": others} if apart else {})}
    if not apart:
        nodes["h0"] = [*nodes["h0"], *others]
    flavors = (model(H100, draw(st.sampled_from(MEASURES))), *draw(st.sampled_from(OUTSIDE)))
    specs = draw(queues(flavors))
    if flavors[0].measure == "Capacity":
        specs = tuple(replace(each, quotas=tuple(map(in_bytes, each.quotas))) for each in specs)
    return cluster(nodes, flavors, specs)


def in_bytes(quota: FlavorQuota) -> FlavorQuota:
    return replace(quota, deserved=quota.deserved * 80 * 2**30) if quota.flavor == "h100" else quota


def leaves(world: World) -> list[str]:
    parents = {each.parent for each in world.queues}
    return [each.name for each in world.queues if each.name not in parents]


@st.composite
def jobs(
    draw: st.DrawFn, world: World, prefix: str, products: Sequence[str], *, least: int = 0, most: int = 5, of: str = ""
) -> list[GangRequest]:
    """`of`: their queue; "": each of any."""
    found: list[GangRequest] = []
    for number in range(draw(st.integers(least, most))):
        pods = draw(st.integers(1, 2))
        made = job(
            f"{prefix}{number}",
            pods,
            draw(st.sampled_from(products)),
            of or draw(st.sampled_from(leaves(world))),
            gpus=draw(st.sampled_from([1, 1, 2])),
            priority=draw(st.sampled_from([0, 0, 1])),
            created=world.now + draw(st.integers(0, 9)) / 8,
        )
        found.append(replace(made, size=draw(st.integers(1, pods))))
    return found


def started(world: World, gangs: Sequence[GangRequest]) -> list[GangRequest]:
    """Those of them that find a place, one after the other; nothing is evicted for them."""
    found: list[GangRequest] = []
    for each in gangs:
        plan = world.decide(replace(each, preempts=False))
        if plan.admissions:
            world.carry_out(plan, [each])
            found.append(each)
    return found


def without(world: World, gangs: Sequence[GangRequest]) -> World:
    """The same cluster in which these never were."""
    other = world.afresh()
    for each in gangs:
        other.end(each.id)
        for member in each.members:
            other.nodes.drop_pod(member.pod.uid)
    return other


def about(plan: Plan, gangs: Sequence[GangRequest]) -> object:
    """What it decides on these gangs: who starts where, and which pods go for whom."""
    ids = {each.id for each in gangs}
    starts = {each.id: each.assignments for each in plan.admissions if each.id in ids}
    goes = {(each.id, each.kind, each.pods, each.beneficiary) for each in plan.evictions if each.id in ids}
    return starts, goes


def check_reclaimed(data: st.DataObject) -> None:
    world = data.draw(worlds())
    borrower, owner = data.draw(st.permutations(leaves(world)))[:2]
    of = st.sampled_from([borrower, borrower, ""])
    inside = started(world, data.draw(jobs(world, "in", [H100], least=4, most=6, of=data.draw(of))))
    world.now = data.draw(st.sampled_from([0.0, 30.0]))
    outside = started(world, data.draw(jobs(world, "out", [L40S, A100], least=1, of=data.draw(of))))
    world.now = 60.0
    late = data.draw(jobs(world, "late", [H100], least=1, of=owner))
    waiting = data.draw(jobs(world, "wait", [L40S, A100], most=2))
    alone = without(world, outside).decide(*late)
    beside = world.decide(*late, *waiting)
    assert about(beside, [*inside, *late]) == about(alone, [*inside, *late])
    assert not {each.id for each in beside.evictions if each.beneficiary in {one.id for one in late}} & {
        each.id for each in outside
    }


def check_deserved(data: st.DataObject) -> None:
    world = data.draw(worlds())
    world.reserve_after_s = 600.0
    lone = [
        job(f"in{number}", 1, H100, queue, created=number / 8, priority=data.draw(st.integers(0, 1)))
        for number, queue in enumerate(data.draw(st.lists(st.sampled_from(leaves(world)), min_size=2, max_size=8)))
    ]
    _, waiting = settled(world, lone)
    world.now += 30.0
    _, waiting = settled(world, [*waiting, *data.draw(jobs(world, "out", [L40S, A100], least=1))])
    world.now += 30.0
    late = [
        job(f"late{number}", 1, H100, queue, created=world.now + number / 8)
        for number, queue in enumerate(data.draw(st.lists(st.sampled_from(leaves(world)), min_size=2, max_size=8)))
    ]
    _, waiting = settled(world, [*waiting, *late, *data.draw(jobs(world, "more", [L40S, A100], most=3))])
    unit = 80 * 2**30 if world.flavors[0].measure == "Capacity" else 1
    for spec in world.queues:
        if spec.name not in leaves(world):
            continue
        deserved = next(quota.deserved for quota in spec.quotas if quota.flavor == "h100") / unit
        has = held(world, H100, spec.name)
        asks = has + sum(each.queue == spec.name and not each.name.startswith(("out", "more")) for each in waiting)
        assert has >= min(deserved, asks), spec.name


@given(st.data())
@RELAXED
def test_a_gang_that_holds_nothing_of_a_flavor_never_changes_what_is_reclaimed_of_it(data: st.DataObject):
    check_reclaimed(data)


@given(st.data())
@RELAXED
def test_an_owner_whose_demand_fits_holds_what_it_deserves_in_the_end(data: st.DataObject):
    check_deserved(data)


@pytest.mark.slow
@pytest.mark.parametrize("check", [check_reclaimed, check_deserved])
def test_on_many_more(check):
    MANY(given(st.data())(check))()
