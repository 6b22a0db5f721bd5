"""How long reclaim takes to decide: decisions only, one core, simulated clusters.

Measures CPU time of `decide`, from tables to plan, on KAI's published case (500 nodes of 8 GPUs, 4,000 running and 4,000
waiting one-GPU jobs, two queues), and on cases that are dear for other reasons: a gang that needs whole nodes, one that can
take nothing back, a cycle in which nothing is new. `figures()` of `benchmarks.queues` shows these with the others.
KAI measured 165.6 s for its case in process, with its full chain of plugins (PR #1809).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from benchmarks.measured import figure
from fairlead.api import names
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from fairlead.kube.garbage import frozen_heap
from tests.support.engine.objects import claim_spec, device_request, gang
from tests.support.engine.world import World, h100_world

ONE = claim_spec(device_request())
EIGHT = claim_spec(device_request(8))
GPUS = FlavorSpec(name="gpu", device_selector=f'device.driver == "{names.DRIVER}"')


def reclaim_figures() -> list[dict[str, Any]]:
    return [*_rebalancing(), *_whole_nodes(), *_nothing_new()]


def _rebalancing() -> list[dict[str, Any]]:
    """KAI's ReclaimManySingleGPUJobs: one decision evicts all that must go, the next admits the gang that takes its place."""
    world = _full(500)
    waiting = _jobs("poor", 4_000, created=10_000.0)
    evicting, plan = _timed(lambda: world.decide(*waiting))
    assert len(plan.evictions) == 2_000
    left = world.carry_out(plan, waiting)
    leaving, plan = _timed(lambda: world.decide(*left))
    assert not plan.evictions
    assert not plan.admissions
    left += world.gone()
    admitting, plan = _timed(lambda: world.decide(*left))
    assert len(plan.admissions) == 2_000
    assert not plan.evictions
    label = "queues/reclaim/500x8/4000+4000/{}"
    return [
        figure(label.format("evict"), evicting, "s", None),
        figure(label.format("while-leaving"), leaving, "s", None),
        figure(label.format("admit"), admitting, "s", None),
        figure(label.format("whole"), evicting + leaving + admitting, "s", 3.0),
    ]


def _whole_nodes() -> list[dict[str, Any]]:
    """A gang of 32 x 8 GPUs over one-GPU jobs; and the same where min-runtime protects every job."""
    world = _full(500)
    large = gang("large", 32, EIGHT, queue="poor", created=10_000.0)
    seconds, plan = _timed(lambda: world.decide(large))
    assert len(plan.evictions) == 256
    found = [figure("queues/reclaim/500x8/gang-32x8", seconds, "s", None)]
    world.queues = tuple(replace(queue, min_runtime_s=1e9) for queue in world.queues)
    # The best of three, as for the refusal without queues; each decided anew, by share IDs of its own.
    refusals = [
        _timed(lambda: world.engine.decide(world.snapshot(large), world.now, share_ids=lambda claim, *_: claim))
        for _ in range(3)
    ]
    assert not any(plan.evictions for _, plan in refusals)
    seconds = min(each for each, _ in refusals)
    found.append(figure("queues/reclaim/500x8/gang-32x8-refused", seconds * 1000, "ms", 50.0))
    return found


def _nothing_new() -> list[dict[str, Any]]:
    """1,000 queues and 10,000 waiting gangs on a full cluster: the decision, and the same question again."""
    world = h100_world(50)
    world.flavors = (GPUS,)
    world.queues = tuple(_queue(f"q{number:03}") for number in range(1_000))
    world.carry_out(world.decide(*(jobs := _jobs("q000", 400, created=0.0))), jobs)
    waiting = tuple(
        gang(f"job-{number}", 1, ONE, queue=f"q{number % 1_000:03}", created=float(number)) for number in range(10_000)
    )
    first, _ = _timed(lambda: world.decide(*waiting))
    again, _ = _timed(lambda: world.decide(*waiting))
    return [
        figure("queues/cycle/1000q/10000g/first", first, "s", None),
        figure("queues/cycle/1000q/10000g/nothing-new", again * 1000, "ms", 5.0),
    ]


def _full(nodes: int) -> World:
    """A cluster whose every GPU runs a job of the queue `rich`; `poor` deserves half of it."""
    world = h100_world(nodes)
    world.flavors = (GPUS,)
    world.queues = (_queue("poor"), _queue("rich"))
    jobs = _jobs("rich", 8 * nodes, created=0.0)
    assert not world.carry_out(world.decide(*jobs), jobs)
    return world


def _queue(name: str) -> QueueSpec:
    return QueueSpec(name=name, quotas=(FlavorQuota(flavor="gpu"),))


def _jobs(queue: str, count: int, *, created: float) -> list[GangRequest]:
    return [gang(f"{queue}-{number:05}", 1, ONE, queue=queue, created=created + number) for number in range(count)]


def _timed(run: Callable[[], Plan]) -> tuple[float, Plan]:
    with frozen_heap():  # as a long-running controller has it
        began = time.process_time()
        plan = run()
        return time.process_time() - began, plan
