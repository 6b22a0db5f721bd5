"""What holds for any tree of queues and any arrivals: DESIGN's invariants 3 to 6, tried on random ones.

A failure prints hypothesis' own reproduction. `make properties EXAMPLES=20` tries twenty times as many.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.types.gangs import GangRequest, RunningGang
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.reasons import Code
from fairlead.engine.types.settings import DisruptionBudget, FlavorQuota, FlavorSpec, QueueSpec
from tests.support.engine.examples import examples
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World

RELAXED = settings(
    max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck), report_multiple_bugs=False
)
FLAVOR = FlavorSpec(name="gpu", device_selector=f'device.driver == "{names.DRIVER}"')
ROUNDS_MAX = 40


@st.composite
def queues(draw: st.DrawFn) -> tuple[QueueSpec, ...]:
    """One or two departments with one or two queues each, or queues without a department."""
    found: list[QueueSpec] = []
    for letter in "ab"[: draw(st.integers(1, 2))]:
        deserved = [draw(st.integers(0, 3)) for _ in range(draw(st.integers(1, 2)))]
        parent = None
        if draw(st.booleans()):
            parent = f"dep-{letter}"
            found.append(
                QueueSpec(
                    name=parent, quotas=(FlavorQuota(flavor="gpu", deserved=sum(deserved) + draw(st.integers(0, 1))),)
                )
            )
        found += [
            QueueSpec(
                name=f"{letter}{number}",
                parent=parent,
                quotas=(
                    FlavorQuota(
                        flavor="gpu",
                        deserved=amount,
                        weight=draw(st.sampled_from([0.5, 1.0, 2.0])),
                        limit=draw(st.sampled_from([None, None, None, amount + 2])),
                    ),
                ),
                preemption=draw(st.sampled_from(["LowerPriority", "LowerPriority", "Never"])),
                min_runtime_s=draw(st.sampled_from([None, None, 15.0])),
                evictions_left=draw(st.sampled_from([None, None, None, 2])),
            )
            for number, amount in enumerate(deserved)
        ]
    return tuple(found)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    world = World()
    for number in range(draw(st.integers(1, 3))):
        world.add_node(f"n{number}", [gpu(minor) for minor in range(draw(st.integers(1, 4)))])
    world.flavors = (FLAVOR,)
    world.queues = draw(queues())
    world.reserve_after_s = 1e9
    return world


@st.composite
def arrivals(draw: st.DrawFn, world: World, prefix: str) -> list[GangRequest]:
    parents = {queue.parent for queue in world.queues}
    leaves = [queue.name for queue in world.queues if queue.name not in parents]
    found: list[GangRequest] = []
    for number in range(draw(st.integers(1, 6))):
        pods = draw(st.integers(1, 3))
        made = gang(
            f"{prefix}{number}",
            pods,
            claim_spec(device_request(draw(st.sampled_from([1, 1, 2])))),
            queue=draw(st.sampled_from(leaves)),
            priority=draw(st.sampled_from([0, 0, 1, 2])),
            created=world.now + number / 8,
        )
        found.append(replace(made, size=draw(st.integers(1, pods))))
    return found


def unchanged(world: World, gangs: list[GangRequest]) -> Plan:
    """The plan; the same from a fresh start and for gangs in any order, with its input left alone."""
    before = (world.inventory.version, world.nodes.changes.cursor)
    plan = world.decide(*gangs)
    assert (world.inventory.version, world.nodes.changes.cursor) == before
    assert world.afresh().decide(*reversed(gangs)) == plan
    return plan


def explained(plan: Plan, gangs: list[GangRequest]) -> None:
    """Every gang is in one list of the plan, with a reason that says something."""
    assert sorted([e.id for e in plan.admissions] + [e.id for e in plan.waiting]) == sorted(e.id for e in gangs)
    for reason in [e.reason for e in plan.waiting] + [e.reason for e in plan.evictions]:
        assert reason.message
        assert str(reason).endswith(".")


def run(world: World, gangs: list[GangRequest]) -> list[GangRequest]:
    """Decide and carry out until nothing changes, and decide on each outcome, too; returns the gangs that wait at the end."""
    for _ in range(ROUNDS_MAX):
        plan = unchanged(world, gangs)
        explained(plan, gangs)
        nobody_below_deserved(world, plan, gangs)
        gangs = world.carry_out(plan, gangs)
        at_rest(world, plan, unchanged(world, gangs), gangs)
        assert not world.faults()
        back = world.gone()
        if not plan.evictions and not back:
            return gangs
        gangs += back
        world.now += 1.0
    raise AssertionError("it never comes to rest")


def at_rest(world: World, plan: Plan, again: Plan, waiting: list[GangRequest]) -> None:
    """Deciding on the outcome evicts nothing, where nothing is leaving.

    While pods are leaving, gangs that are promised what they give back may be given other places, which may, about once in
    ten thousand of these worlds, be just what another needs beside its victims. The same holds of an elastic gang of which
    members beyond its size have gone, or start with it (the controller asks for those one by one).
    """
    coming = any(entry.kind == "Blocked" for entry in plan.reservations)
    elastic = any(len(running.members) > running.size for running in world.running.values())
    assert plan.evictions or coming or elastic or not again.evictions, again.evictions
    promised = {entry.id for entry in waiting if entry.preemptor}
    assert coming or again.evictions or {entry.id for entry in again.admissions} <= promised, again.admissions


def used(world: World, without: frozenset[str] = frozenset()) -> dict[str, int]:
    """GPUs of every queue, those below it included, without some pods."""
    parents = {queue.name: queue.parent for queue in world.queues}
    found = dict.fromkeys(parents, 0)
    for running in world.running.values():
        for member in running.members:
            if member.pod.uid in without or member.leaving:
                continue
            held = [world.inventory.claim(uid) for uid in member.claims]
            devices = sum(len(claim.devices) for claim in held if claim is not None)
            queue: str | None = running.queue
            while queue is not None:
                found[queue] += devices
                queue = parents[queue]
    return found


def devices_of(world: World, gang_id: str) -> int:
    held = [world.inventory.claim(uid) for uid in world.running[gang_id].claims]
    return sum(len(claim.devices) for claim in held if claim is not None)


def nobody_below_deserved(world: World, plan: Plan, gangs: list[GangRequest]) -> None:
    """Who is left with less than deserved lost a gang that straddled it, to a queue that gets what it deserves itself."""
    reclaimed = [eviction for eviction in plan.evictions if eviction.kind == "Reclaim"]
    after = used(world, frozenset(pod.uid for eviction in reclaimed for pod in eviction.pods))
    before = used(world)
    by_id = {entry.id: entry for entry in gangs}
    deserved = {queue.name: sum(quota.deserved for quota in queue.quotas) for queue in world.queues}
    parents = {queue.name: queue.parent for queue in world.queues}
    for admission in plan.admissions:
        more = sum(len(claim.allocation.devices.results) for claim in admission.claims)
        step: str | None = admission.queue
        while step is not None:
            before[step] += more
            after[step] += more
            step = parents[step]
    for eviction in reclaimed:
        taker = by_id[eviction.beneficiary].queue
        above: set[str | None] = {taker}
        while above_ := parents.get(taker or ""):
            taker = above_
            above.add(taker)
        queue: str | None = eviction.queue
        while queue is not None and queue not in above:
            if after[queue] < min(deserved[queue], before[queue]):
                assert devices_of(world, eviction.id) > 1 or before[queue] > deserved[queue]
            queue = parents[queue]


@given(st.data())
@RELAXED
def test_any_arrivals_come_to_rest_and_stay_there(data: st.DataObject):
    world = data.draw(worlds())
    gangs: list[GangRequest] = []
    for prefix in ("x", "y", "z"):
        gangs = run(world, gangs + data.draw(arrivals(world, prefix)))
        for name in sorted(world.running)[: data.draw(st.integers(0, 1))]:
            world.end(name)
        world.now += 10.0


@given(st.data())
@RELAXED
def test_deciding_on_the_outcome_changes_nothing(data: st.DataObject):
    """Gangs of no more members than they need: no exception for elastic ones."""
    world = data.draw(worlds())
    gangs: list[GangRequest] = []
    for prefix in ("x", "y"):
        new = [replace(entry, size=len(entry.members)) for entry in data.draw(arrivals(world, prefix))]
        gangs = run(world, gangs + new)
        for name in sorted(world.running)[: data.draw(st.integers(0, 1))]:
            world.end(name)
        world.now += 10.0


@given(st.data())
@RELAXED
def test_nothing_idles_that_a_waiting_gang_could_use(data: st.DataObject):
    world = data.draw(worlds())
    waiting = run(world, data.draw(arrivals(world, "x")))
    for entry in waiting:
        assert world.afresh().decide(entry).admissions == ()


@pytest.mark.slow
@given(st.data())
@RELAXED
def test_no_victim_could_have_been_spared(data: st.DataObject):
    """With any one of those that are evicted protected, it takes another, or nothing helps: never just the others."""
    world = data.draw(worlds())
    run(world, data.draw(arrivals(world, "x")))
    world.now += 20.0
    late = data.draw(arrivals(world, "y"))[:1]
    plan = unchanged(world, late)
    assume(plan.evictions)
    gone = pods_of(plan)
    assert admitted_without(world, gone, late), "the gang does not land on what its victims give back"
    for victim in {eviction.id for eviction in plan.evictions}:
        other = world.afresh()
        other.running[victim] = replace(other.running[victim], min_runtime_s=1e9)
        fewer = pods_of(other.decide(*late))
        assert not (fewer and fewer < gone), f"{victim} could have been spared"


def pods_of(plan: Plan) -> set[tuple[str, str]]:
    """Those that are evicted, with their gangs."""
    return {(eviction.id, pod.uid) for eviction in plan.evictions for pod in eviction.pods}


def admitted_without(world: World, gone: set[tuple[str, str]], gangs: list[GangRequest]) -> bool:
    """Whether the first gang starts in the same cluster, once these pods are gone."""
    other = world.afresh()
    other.answers, other.pods, other.requests = dict(world.answers), dict(world.pods), {}
    for running in list(other.running.values()):
        leaving = [replace(member, leaving=(running.id, member.pod.uid) in gone) for member in running.members]
        other.running[running.id] = replace(running, members=tuple(leaving))
    other.gone()
    return bool(other.decide(*gangs).admissions)


@given(st.data())
@RELAXED
def test_protection_holds(data: st.DataObject):
    """Nobody within min-runtime, beyond a budget, or of the same or higher priority in one queue."""
    world = data.draw(worlds())
    world.budgets = (DisruptionBudget(namespace="ml", name="safe", allowed=data.draw(st.integers(0, 2))),)
    run(world, data.draw(arrivals(world, "x")))
    for name, running in list(world.running.items()):
        guards = ("safe",) if data.draw(st.booleans()) else ()
        own = data.draw(st.sampled_from([None, 0.0, 30.0]))
        members = tuple(replace(member, guarded_by=guards) for member in running.members)
        world.running[name] = replace(running, members=members, min_runtime_s=own)
    world.now += 20.0
    late = data.draw(arrivals(world, "y"))
    plan = unchanged(world, late)
    spent = sum(len(eviction.pods) for eviction in plan.evictions if world.running[eviction.id].members[0].guarded_by)
    assert spent <= world.budgets[0].allowed
    by_id = {entry.id: entry for entry in late}
    for eviction in plan.evictions:
        victim = world.running[eviction.id]
        assert victim.started + runtime_s(world, victim) <= world.now
        if eviction.kind == "Preempt":
            assert victim.priority < by_id[eviction.beneficiary].priority
            assert victim.queue == by_id[eviction.beneficiary].queue
        assert eviction.whole or len(victim.members) - len(eviction.pods) >= victim.size
        assert eviction.reason.code is (Code.PREEMPTED if eviction.kind == "Preempt" else Code.RECLAIMED)


def runtime_s(world: World, running: RunningGang) -> float:
    if running.min_runtime_s is not None:
        return running.min_runtime_s
    return least_runtime_s(world, running.queue)


def least_runtime_s(world: World, name: str | None) -> float:
    by_name = {queue.name: queue for queue in world.queues}
    queue = by_name.get(name or "")
    while queue is not None:
        if queue.min_runtime_s is not None:
            return queue.min_runtime_s
        queue = by_name.get(queue.parent or "")
    return 0.0


@given(st.data())
@RELAXED
def test_a_reserved_gang_starts_when_those_have_ended_that_it_waited_for(data: st.DataObject):
    """The bound: however many small gangs arrive, it is passed over at most until what ran on its nodes has ended."""
    world = data.draw(worlds())
    world.queues, world.reserve_after_s = (QueueSpec(name="q"),), 5.0
    gangs = run(world, [replace(entry, queue="q") for entry in data.draw(arrivals(world, "x"))])
    assume(not gangs)
    sizes = [len(entry.devices) for entry in (world.inventory.on_node(name, {}) for name in sorted(world.node_json))]
    big = gang("big", 1, claim_spec(device_request(max(sizes))), queue="q", created=world.now)
    first = world.decide(big)
    assume(first.waiting)
    gangs = [big]
    world.now += 6.0
    left = []
    for number in range(60):
        small = gang(f"small{number}", 1, claim_spec(device_request()), queue="q", created=world.now)
        gangs.append(small)
        plan = world.decide(*gangs)
        gangs = world.carry_out(plan, gangs)
        if "ml/big" in world.running:
            break
        nodes = {entry.id: entry.nodes for entry in plan.reservations}["ml/big"]
        blocking = [
            running.id for running in world.running.values() if any(member.node in nodes for member in running.members)
        ]
        left.append(len(blocking))
        world.end(data.draw(st.sampled_from(sorted(world.running))))
        world.now += 1.0
    else:
        raise AssertionError(f"never; left on its nodes: {left}")
    assert all(later <= earlier for earlier, later in pairwise(left)), left
