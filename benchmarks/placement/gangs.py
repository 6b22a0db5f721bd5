"""On how many nodes gangs of several pods are, and what that costs the others: use of the cluster, and waiting.

A cluster of 100 nodes x 8, virtual time. Jobs come at random, so that all together want 95 % of the GPUs: pods of 1, 2, 4 and 8 GPUs, and
gangs of 2 to 16 pods of 1, 2, 4 or 8 GPUs (at most 64 GPUs). They run for lognormal times, 30 minutes at the median. Where one ends or
comes, all that wait are decided on in order of age, each passing those that do not fit. The mix is learnt as in a cluster. Several seeds.
Figures: nodes of a gang for each that it needs on an empty cluster, GPUs in use, and how long jobs wait on average, those with pods of
eight GPUs by themselves. Only the second half of the arrivals counts.
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass, field
from math import ceil
from random import Random
from statistics import mean
from typing import Any

from fairlead.engine.placement.value.workload import WorkloadCounter
from fairlead.engine.types.gangs import GangRequest
from tests.support.engine.objects import claim_spec, device_request, gang
from tests.support.engine.world import h100_world, nodes_of

NODES, GPUS = 100, 8
LOAD = 0.95
ARRIVALS = 1_500
SEEDS = 3
MEDIAN_S, SIGMA = 1_800.0, 0.8
ALONE = ((1, 30), (2, 10), (4, 8), (8, 6))  # GPUs of a single pod, and how often of a hundred
PODS, EACH, MOST = (2, 3, 4, 6, 8, 12, 16), (1, 1, 2, 4, 8), 64  # of gangs, the rest
SPECS = {size: claim_spec(device_request(size)) for size in (1, 2, 4, 8)}


@dataclass
class Outcome:
    nodes: list[float] = field(default_factory=list)  # of each gang of several pods, for each node that it needs
    used: float = 0.0  # GPU-seconds
    span: float = 0.0  # seconds
    waits: list[float] = field(default_factory=list)
    waits_of_eight: list[float] = field(default_factory=list)
    decide_s: float = 0.0
    decisions: int = 0


def gangs_figures() -> list[dict[str, Any]]:
    """Figure, value and unit, for the benchmark `placement`."""
    found = [run(seed) for seed in range(SEEDS)]
    label = f"placement/gangs/{NODES}x{GPUS}"
    values = (
        ("nodes-for-each-needed", mean([each for one in found for each in one.nodes]), "nodes"),
        ("on-more-than-needed", 100 * mean([each > 1 for one in found for each in one.nodes]), "%"),
        ("gpus-in-use", 100 * sum(e.used for e in found) / sum(e.span for e in found) / NODES / GPUS, "%"),
        ("wait", mean([each for one in found for each in one.waits]), "s"),
        ("wait-of-pods-of-eight", mean([each for one in found for each in one.waits_of_eight]), "s"),
        ("decision", 1000 * sum(e.decide_s for e in found) / sum(e.decisions for e in found), "ms"),
    )
    return [{"figure": f"{label}/{name}", "value": round(value, 3), "unit": unit} for name, value, unit in values]


def drawn(random: Random, number: int, now: float) -> GangRequest:
    sizes, often = zip(*ALONE, strict=True)
    (size,) = random.choices((*sizes, 0), (*often, 100 - sum(often)))
    pods = 1 if size else random.choice(PODS)
    each = size or random.choice([gpus for gpus in EACH if gpus * pods <= MOST])
    return gang(f"job-{number}", pods, SPECS[each], created=now)


def run(seed: int, *, nodes: int = NODES, arrivals: int = ARRIVALS) -> Outcome:
    random = Random(seed)
    world, counter, found = h100_world(nodes), WorkloadCounter(), Outcome()
    sample = Random(f"{seed} mean")
    mean_s = MEDIAN_S * 2.718281828 ** (SIGMA * SIGMA / 2)
    mean_gpus = mean([_gpus(drawn(sample, 0, 0.0)) for _ in range(10_000)])
    rate = LOAD * nodes * GPUS / (mean_s * mean_gpus)
    waiting: list[GangRequest] = []
    ends: list[tuple[float, str]] = []
    held: dict[str, int] = {}
    lasts: dict[str, float] = {}
    coming, number, now, begun = random.expovariate(rate), 0, 0.0, 0.0
    while number < arrivals:
        then = min(coming, ends[0][0] if ends else coming)
        if number >= arrivals // 2:
            begun = begun or now
            found.used += sum(held.values()) * (then - now)
            found.span += then - now
        now = world.now = then
        if ends and ends[0][0] <= coming:
            _, name = heapq.heappop(ends)
            world.end(f"ml/{name}")
            del held[name]
        else:
            job = drawn(random, number, now)
            counter.note(job)
            waiting.append(job)
            lasts[job.name] = random.lognormvariate(0, SIGMA) * MEDIAN_S
            number += 1
            coming = now + random.expovariate(rate)
        world.workload = counter.workload()
        began = time.process_time()
        plan = world.decide_with(world.engine.decide_unexplained, *waiting)
        found.decide_s += time.process_time() - began
        found.decisions += 1
        by_name = {each.name: each for each in waiting}
        waiting = world.carry_out(plan, waiting)
        for admission in plan.admissions:
            job = by_name[admission.name]
            held[job.name] = _gpus(job)
            heapq.heappush(ends, (now + lasts.pop(job.name), job.name))
            if begun:
                found.waits.append(now - job.created)
                if _gpus(job) == 8 * len(job.members):
                    found.waits_of_eight.append(now - job.created)
                if len(job.members) > 1:
                    found.nodes.append(len(set(nodes_of(plan, job.name))) / _needed(job))
    return found


def _gpus(job: GangRequest) -> int:
    requests = [request for claim in job.claims for request in claim.spec.devices.requests]
    return sum([request.exactly.count for request in requests if request.exactly is not None])


def _needed(job: GangRequest) -> int:
    """Nodes, on the empty cluster."""
    each = _gpus(job) // len(job.members)
    return ceil(len(job.members) / (GPUS // each))
