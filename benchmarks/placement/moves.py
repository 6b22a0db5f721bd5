"""How many gangs of eight GPUs find a place on a fragmented cluster, with moves and without, and what the moves cost.

A cluster of 200 nodes x 8 is filled to 85 %, in pieces of 1, 2 and 4 GPUs that end at random while others come, so that what is free
lies about: `packed` by the default strategy, or `spread` over the emptiest nodes, as schedulers do that do not pack. Then gangs of eight GPUs arrive one by one, as many as would fit if what is free lay together. All pieces may move; each
has run for up to two hours and saved its work within the last 30 minutes, and restarts in 300 s. Decisions only, carried out at once
(`tests.support.engine.world`); several seeds. The same cluster once with moves, and once where no gang says that it may.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from random import Random
from statistics import mean
from typing import Any, Literal

from msgspec.structs import replace

from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.settings import QueueSpec
from tests.support.engine.objects import claim_spec, device_request, gang
from tests.support.engine.world import World, h100_world, relocation

NODES = 200
LOAD = 0.85
SIZES = ((1, 4), (2, 3), (4, 2))  # GPUs of a piece, and of nine how many
SEEDS = 3
TURNOVER = 2_000  # pieces that end and are replaced before the gangs arrive
SPECS = {size: claim_spec(device_request(size)) for size in (1, 2, 4, 8)}
NOW = 7_200.0
ROUNDS_MAX = 20


@dataclass(frozen=True, slots=True)
class Outcome:
    wanted: int
    placed: int
    moved: int  # gangs
    gpu_seconds: float
    decide_s: float  # the slowest decision on a gang of eight
    held: int  # GPUs in use at the end


def moves_figures() -> list[dict[str, Any]]:
    """Figure, value and unit, for the benchmark `placement`."""
    return [*_of("packed"), *_of("spread")]


def _of(how: Literal["packed", "spread"]) -> list[dict[str, Any]]:
    found = {movable: [run(seed, how, movable=movable) for seed in range(SEEDS)] for movable in (False, True)}
    label = f"placement/consolidation/{NODES}x8/{how}"
    shown: list[dict[str, Any]] = []
    for movable, word in ((False, "without"), (True, "with")):
        share = 100 * sum(each.placed for each in found[movable]) / sum(each.wanted for each in found[movable])
        shown.append({"figure": f"{label}/placed-{word}-moves", "value": round(share, 1), "unit": "%"})
    moved = found[True]
    placed = sum(each.placed for each in moved) - sum(each.placed for each in found[False])
    cost = sum(each.gpu_seconds for each in moved)
    slowest = max(each.decide_s for each in moved)
    return [
        *shown,
        {"figure": f"{label}/gangs-of-eight", "value": round(mean(each.wanted for each in moved), 1), "unit": "gangs"},
        {"figure": f"{label}/gangs-moved", "value": round(mean(each.moved for each in moved), 1), "unit": "gangs"},
        {"figure": f"{label}/moved", "value": round(cost / SEEDS), "unit": "GPU-s"},
        {"figure": f"{label}/moved-per-gang-placed", "value": round(cost / max(1, placed)), "unit": "GPU-s"},
        {"figure": f"{label}/slowest-decision", "value": round(slowest, 4), "unit": "s"},
    ]


def run(
    seed: int,
    how: Literal["packed", "spread"],
    *,
    movable: bool,
    nodes: int = NODES,
    turnover: int = TURNOVER,
) -> Outcome:
    random = Random(seed)
    world = fragmented(random, how, nodes, turnover)
    free = 8 * nodes - _in_use(world)
    world.now = NOW
    for key, running in sorted(world.running.items()):
        started = NOW - random.uniform(0, NOW)
        saved = max(started, NOW - random.uniform(0, 1_800))
        request = world.requests[key]
        world.running[key] = replace(
            running,
            started=started,
            checkpointed=saved,
            movable=movable,
            relocation=relocation(request) if movable else None,
        )
        if movable:
            world.movable.add(key)
    wanted = free // 8
    placed = moved = 0
    cost = slowest = 0.0
    for number in range(wanted):
        name = f"large-{number}"
        waiting: list[GangRequest] = [gang(name, 1, SPECS[8], priority=1, created=NOW, queue="q")]
        waiting[0] = replace(waiting[0], preempts=movable)  # without moves nothing is evicted for it either
        for _ in range(ROUNDS_MAX):
            began = time.process_time()
            plan = world.decide_with(world.engine.decide_unexplained, *waiting)
            slowest = max(slowest, time.process_time() - began)
            kinds = {each.kind for each in plan.evictions}
            if kinds - {"Move"}:
                break  # it would stop others for good
            moved += len(plan.evictions)
            cost += sum(each.gpu_seconds for each in plan.evictions)
            waiting = world.carry_out(plan, waiting)
            back = world.gone()
            waiting += back
            if not plan.admissions and not plan.evictions:
                break
        placed += f"ml/{name}" in world.running
    return Outcome(wanted, placed, moved, cost, slowest, _in_use(world))


def fragmented(random: Random, how: Literal["packed", "spread"], nodes: int, turnover: int) -> World:
    world = h100_world(nodes)
    world.queues = (QueueSpec(name="q", strategy="pack" if how == "packed" else "spread"),)
    sizes = [size for size, count in SIZES for _ in range(count)]
    serial = 0
    most = int(LOAD * 8 * nodes)

    def fill() -> None:
        nonlocal serial
        while True:
            size = random.choice(sizes)
            if _in_use(world) + size > most:
                return
            request = gang(f"piece-{serial}", 1, SPECS[size], created=float(serial), queue="q")
            serial += 1
            plan = world.decide_with(world.engine.decide_unexplained, request)
            if not plan.admissions:
                return
            world.carry_out(plan, [request])

    fill()
    for _ in range(turnover):
        world.end(random.choice(sorted(world.running)))
        fill()
    world.queues = (QueueSpec(name="q"),)
    return world


def _in_use(world: World) -> int:
    return sum(
        len(claim.devices)
        for running in world.running.values()
        for uid in running.claims
        if (claim := world.inventory.claim(uid)) is not None
    )
