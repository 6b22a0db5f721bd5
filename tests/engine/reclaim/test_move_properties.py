"""Moving never breaks an invariant, comes to rest, and places no less: tried on random clusters, queues and arrivals."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.plan import Eviction, Plan
from fairlead.engine.types.reasons import Code
from fairlead.engine.types.settings import DisruptionBudget, QueueSpec
from fairlead.engine.types.values import DeviceRef
from tests.engine.reclaim.test_reclaim_properties import (
    FLAVOR,
    RELAXED,
    explained,
    least_runtime_s,
    queues,
    runtime_s,
)
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World

ROUNDS_MAX = 60
PIECES = 10


def in_use(world: World) -> int:
    """Devices that gangs hold, and that are held for gangs which are being moved; those of pods that are leaving are not counted."""
    found = 0
    for running in world.running.values():
        kept = {uid for member in running.members if not member.leaving for uid in member.claims}
        for uid in running.claims:
            claim = world.inventory.claim(uid)
            if claim is not None and (uid in kept or uid.startswith("move/")):
                found += len(claim.devices)
    return found


def held_once(world: World) -> None:
    """No device is in two claims, those that stand for places of moved gangs included."""
    seen: set[DeviceRef] = set()
    for claim in world.inventory.claims():
        for device in claim.devices:
            assert device.ref not in seen, device.ref
            seen.add(device.ref)


def unchanged(world: World, gangs: list[GangRequest]) -> Plan:
    """The plan; the same from a fresh start and for gangs in any order. (Held places are lifted around a decision.)"""
    plan = world.decide(*gangs)
    assert world.afresh().decide(*reversed(gangs)) == plan
    return plan


def moves(plan: Plan) -> list[Eviction]:
    return [each for each in plan.evictions if each.kind == "Move"]


def lawful(world: World, plan: Plan, gangs: list[GangRequest]) -> None:
    by_id = {each.id: each for each in gangs}
    spent = sum(len(each.pods) for each in plan.evictions if world.running[each.id].members[0].guarded_by)
    assert spent <= sum(budget.allowed for budget in world.budgets)
    for each in moves(plan):
        moved, taker = world.running[each.id], by_id[each.beneficiary]
        assert each.reason.code is Code.MOVED
        assert each.place is not None
        assert moved.started + max(runtime_s(world, moved), world.restart_s or 0.0) <= world.now
        waited = taker.created + world.reserve_after_s <= world.now
        other = moved.queue != taker.queue  # then reclaim may be what it replaces
        assert moved.priority < taker.priority or waited or other
        assert {assigned.pod for assigned in each.place.assignments} == {member.pod for member in moved.members}


def come_back(world: World, plan: Plan, gangs: list[GangRequest]) -> None:
    """A moved gang whose pods are there again gets its own devices; only a gang that could evict it at once may take them."""
    by_id = {each.id: each for each in gangs}
    given = {each.id: {device for claim in each.claims for device in claim.devices} for each in plan.admissions}
    helped = {each.id for each in plan.reservations if each.kind == "Preemptor"} | set(given)
    for gang_id in set(world.moving) & set(by_id):
        if gang_id in given:
            assert given[gang_id] == world.moving[gang_id].devices(), "a moved gang gets other devices"
            continue
        moved = by_id[gang_id]
        takers = [by_id[each] for each in helped if each not in world.moving]
        assert any(each.queue != moved.queue or each.priority > moved.priority for each in takers), (
            "a moved gang loses its place"
        )
        assert least_runtime_s(world, moved.queue) == 0, "a moved gang loses its min-runtime"


def run(world: World, gangs: list[GangRequest]) -> list[GangRequest]:
    """Until nothing changes; after each step the invariants."""
    for _ in range(ROUNDS_MAX):
        plan = unchanged(world, gangs)
        explained(plan, gangs)
        lawful(world, plan, gangs)
        before = in_use(world)
        stopped = sum(
            len(claim.devices)
            for each in plan.evictions
            if each.kind != "Move"
            for pod in each.pods
            for member in world.running[each.id].members
            if member.pod == pod
            for uid in member.claims
            if (claim := world.inventory.claim(uid)) is not None
        )
        come_back(world, plan, gangs)
        gangs = world.carry_out(plan, gangs)
        held_once(world)
        assert not world.faults()
        assert in_use(world) >= before - stopped, "a move gives up devices"
        again = unchanged(world, gangs)
        assert not moves(again), "it moves again at once"
        back = world.gone()
        held_once(world)
        if not plan.evictions and not plan.admissions and not back:
            assert not world.moving
            return gangs
        gangs += back
        world.now += 1.0
    raise AssertionError("it never comes to rest")


def prepare(data: st.DataObject) -> World:
    """Two to four nodes of four GPUs, and queues that place apart: so what is free lies about."""
    world = World()
    for number in range(data.draw(st.integers(2, 4))):
        world.add_node(f"n{number}", [gpu(minor) for minor in range(4)])
    world.flavors = (FLAVOR,)
    tree = data.draw(queues()) if data.draw(st.sampled_from([True, False, False])) else (QueueSpec(name="q"),)
    world.queues = tuple(replace(queue, strategy="spread") for queue in tree)
    world.reserve_after_s = data.draw(st.sampled_from([1e9, 5.0]))
    world.restart_s = data.draw(st.sampled_from([1.0, 1.0, 3.0]))
    world.movable = {
        f"ml/x{number}" for number in range(PIECES) if data.draw(st.sampled_from([True, True, True, False]))
    }
    return world


def gangs_of(
    data: st.DataObject, world: World, prefix: str, count: int, sizes: tuple[int, ...], priorities: tuple[int, ...]
) -> list[GangRequest]:
    parents = {queue.parent for queue in world.queues}
    leaves = [queue.name for queue in world.queues if queue.name not in parents]
    return [
        gang(
            f"{prefix}{number}",
            data.draw(st.sampled_from([1, 1, 1, 2])),
            claim_spec(device_request(data.draw(st.sampled_from(sizes)))),
            queue=data.draw(st.sampled_from(leaves)),
            priority=data.draw(st.sampled_from(priorities)),
            created=world.now + number / 8,
        )
        for number in range(count)
    ]


def fragmented(data: st.DataObject, world: World) -> list[GangRequest]:
    """Small gangs come, some of them end; returns those that wait."""
    gangs = run(world, gangs_of(data, world, "x", PIECES, (1, 1, 2), (0, 0, 1)))
    for name in sorted(world.running):
        if data.draw(st.sampled_from([True, False, False])):
            world.end(name)
    world.now += 10.0
    return gangs


def large(data: st.DataObject, world: World, prefix: str) -> list[GangRequest]:
    return gangs_of(data, world, prefix, data.draw(st.integers(1, 2)), (3, 4), (0, 1, 2))


@given(st.data())
@RELAXED
def test_moves_come_to_rest_and_break_no_invariant(data: st.DataObject) -> None:
    world = prepare(data)
    gangs = fragmented(data, world)
    for prefix in ("y", "z"):
        gangs = run(world, gangs + large(data, world, prefix))
        for name in sorted(world.running)[: data.draw(st.integers(0, 2))]:
            world.end(name)
        world.now += 10.0


@given(st.data())
@RELAXED
def test_moves_keep_within_budgets(data: st.DataObject) -> None:
    world = prepare(data)
    world.budgets = (DisruptionBudget(namespace="ml", name="safe", allowed=data.draw(st.integers(0, 2))),)
    gangs = fragmented(data, world)
    for name, running in list(world.running.items()):
        guards = ("safe",) if data.draw(st.booleans()) else ()
        own = data.draw(st.sampled_from([None, 0.0, 30.0]))
        members = tuple(replace(member, guarded_by=guards) for member in running.members)
        world.running[name] = replace(running, members=members, min_runtime_s=own)
    gangs += large(data, world, "y")
    lawful(world, unchanged(world, gangs), gangs)


@given(st.data())
@RELAXED
def test_a_gang_for_which_others_move_leaves_no_moment_with_less_in_use_than_without_moves(data: st.DataObject) -> None:
    """The same cluster and one gang more, once with moves and once without, second by second until both have come to rest.

    So the GPU-seconds that are placed are no fewer either, whenever one looks.
    """
    world = prepare(data)
    fragmented(data, world)
    late = large(data, world, "y")[:1]
    plan = unchanged(world, late)
    if not moves(plan):
        return
    other = world.afresh()
    other.answers, other.pods, other.requests = dict(world.answers), dict(world.pods), dict(world.requests)
    other.running = {key: replace(each, relocation=None) for key, each in other.running.items()}
    moved, plain = in_use_by_second(world, late), in_use_by_second(other, late)
    length = max(len(moved), len(plain))
    moved += moved[-1:] * (length - len(moved))
    plain += plain[-1:] * (length - len(plain))
    assert all(with_moves >= without for with_moves, without in zip(moved, plain, strict=True)), (moved, plain)


def in_use_by_second(world: World, gangs: list[GangRequest]) -> list[int]:
    """Devices in use, from now until all has come to rest."""
    found = [in_use(world)]
    for _ in range(ROUNDS_MAX):
        plan = world.decide(*gangs)
        gangs = world.carry_out(plan, gangs)
        back = world.gone()
        found.append(in_use(world))
        if not plan.evictions and not plan.admissions and not back:
            return found
        gangs += back
        world.now += 1.0
    raise AssertionError("it never comes to rest")


def test_with_others_waiting_behind_less_may_be_placed_than_without_moves() -> None:
    """What is not promised (docs/moves.md): here two small gangs would fill five free devices, the one before them takes four."""
    placed = {}
    for movable in (True, False):
        world = World()
        world.queues, world.restart_s = (QueueSpec(name="q"),), 1.0
        for name in ("n0", "n1"):
            world.add_node(name, [gpu(minor) for minor in range(4)])
        pieces = [gang(f"x{size}", 1, claim_spec(device_request(size)), queue="q") for size in (2, 1)]
        world.movable = {each.id for each in pieces} if movable else set()
        for each, node in zip(pieces, ("n1", "n0"), strict=True):
            world.cordon(node, True)
            world.carry_out(world.decide(each), [each])
            world.cordon(node, False)
        world.now = 100.0
        waiting = [
            gang(name, 1, claim_spec(device_request(size)), queue="q", priority=priority)
            for name, size, priority in (("first", 4, 1), ("three", 3, 0), ("two", 2, 0))
        ]
        placed[movable] = in_use_by_second(world, waiting)[-1]
    assert placed == {True: 7, False: 8}
