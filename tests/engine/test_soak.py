"""Weeks in seconds: queues that always want more converge to their weights, through broken nodes, restarts and failovers.

Real decisions in virtual time, with the memory of use that the controller has and a status that survives it. `make soak` runs
thirty days, or as many as SOAK_DAYS says.
"""

from __future__ import annotations

import heapq
import os
from random import Random

import pytest
from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.plan.decide import Engine
from fairlead.engine.queues.usage_history import RememberedUsage, UsageHistory, decayed
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World

HOUR = 3600.0
DAY = 24 * HOUR
DAYS = float(os.environ.get("SOAK_DAYS", "30"))
HALF_LIFE_S = DAY
NODES, GPUS = 5, 8
QUEUES = 20
MODEST = {"q03": 1, "q17": 1}  # queues that never have more than so many jobs, less than their weight would give
ONE = claim_spec(device_request())


class Soak:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 1_000_000.0
        self.world = World()
        for number in range(NODES):
            self.world.add_node(f"n{number}", [gpu(minor) for minor in range(GPUS)])
        self.world.flavors = (FlavorSpec(name="gpu", device_selector=f'device.driver == "{names.DRIVER}"'),)
        self.specs = tuple(
            QueueSpec(
                name=f"q{number:02}",
                uid=f"q{number:02}",
                quotas=(FlavorQuota(flavor="gpu", weight=float(1 + number % 4)),),
                min_runtime_s=HOUR,
            )
            for number in range(QUEUES)
        )
        self.status = {spec.uid: RememberedUsage(parts={}, at=0.0) for spec in self.specs}
        self.waiting: list[GangRequest] = []
        self.ends: list[tuple[float, str]] = []
        self.made = dict.fromkeys((spec.name for spec in self.specs), 0)
        self.true = dict.fromkeys((spec.name for spec in self.specs), 0.0)
        self.evicted = self.restarts = self.failures = 0
        self.memory = UsageHistory(HALF_LIFE_S)
        self.memory.restore(self.status)
        self.down, self.back_at = "", float("inf")
        self.fails_at, self.restarts_at = self.now + self.some(DAY), self.now + self.some(DAY / 2)

    def run(self, days: float) -> None:
        end = self.now + days * DAY
        while self.now < end:
            self.cycle()
            due = min(self.ends[0][0], self.fails_at, self.back_at, self.restarts_at, self.now + 2 * HOUR)
            self.advance(max(due, self.now + 1.0))
            if self.now >= self.fails_at:  # a node dies with what runs on it, and comes back later
                self.down = f"n{self.random.randrange(NODES)}"
                self.fails_at, self.back_at = float("inf"), self.now + self.some(4 * HOUR)
                self.world.drop_node(self.down)
                for gang_id in [key for key, held in self.world.running.items() if held.members[0].node == self.down]:
                    self.requeue(gang_id)
                self.failures += 1
            if self.now >= self.back_at:
                self.world.add_node(self.down, [gpu(minor) for minor in range(GPUS)])
                self.fails_at, self.back_at = self.now + self.some(DAY), float("inf")
            if self.now >= self.restarts_at:  # a new controller knows what stands in the status, and nothing else
                self.restarts_at = self.now + self.some(DAY / 2)
                self.world.engine = Engine()
                self.memory = UsageHistory(HALF_LIFE_S)
                self.memory.restore(dict(self.status))
                self.restarts += 1

    def some(self, seconds: float) -> float:
        return self.random.uniform(0.5, 1.5) * seconds

    def cycle(self) -> None:
        for spec in self.specs:
            want = MODEST.get(spec.name, 4)
            have = sum(entry.queue == spec.name for entry in self.waiting)
            running = sum(held.queue == spec.name for held in self.world.running.values())
            for _ in range(want - have - (running if spec.name in MODEST else 0)):
                self.made[spec.name] += 1
                name = f"{spec.name}-{self.made[spec.name]}"
                self.waiting.append(gang(name, 1, ONE, queue=spec.name, created=self.now, cpu="100m"))
        self.world.now = self.now
        self.world.queues = self.memory.with_past_usage(self.specs, self.now)
        plan = self.world.decide(*self.waiting)
        self.waiting = self.world.carry_out(plan, self.waiting)
        if plan.evictions:
            self.evicted += len(plan.evictions)
            self.waiting += self.world.gone()
            plan = self.world.decide(*self.waiting)
            assert not plan.evictions, "a decision on its own outcome evicts again"
            self.waiting = self.world.carry_out(plan, self.waiting)
        for gang_id in sorted(self.world.running.keys() - {gang_id for _, gang_id in self.ends}):
            heapq.heappush(self.ends, (self.now + self.some(4 * HOUR), gang_id))
        self.memory.note(self.specs, plan.queues, plan.flavors, self.now)

    def advance(self, then: float) -> None:
        held = dict.fromkeys(self.true, 0)
        for running in self.world.running.values():
            held[running.queue or ""] += 1
        total = len(self.world.node_json) * GPUS
        for name, past in self.true.items():
            self.true[name] = decayed(past, held[name] / total, elapsed_s=then - self.now, half_life_s=HALF_LIFE_S)
        while self.now < then:  # the loop turns meanwhile, and writes what has changed
            self.now = min(then, self.now + 300.0)
            for name in self.memory.tick(self.now):
                said = self.memory.to_write(name, self.now)
                if said is not None and self.random.random() < 0.9:
                    self.status[name] = said
                    self.memory.written(name, said)
        while self.ends and self.ends[0][0] <= self.now:
            _, gang_id = heapq.heappop(self.ends)
            if gang_id in self.world.running:
                self.world.end(gang_id)

    def requeue(self, gang_id: str) -> None:
        request = self.world.requests[gang_id]
        self.world.end(gang_id)
        self.waiting.append(replace(request, preemptor=False))


@pytest.mark.scale
@pytest.mark.timeout(3600)
def test_decayed_shares_converge_to_the_weights_where_demand_allows():
    soak = Soak(seed=7)
    sums = dict.fromkeys(soak.true, 0.0)
    soak.run(DAYS / 2)
    samples = 20
    for _ in range(samples):
        soak.run(DAYS / 2 / samples)
        for name, past in soak.true.items():
            sums[name] += past / samples
    assert soak.failures >= 1
    assert soak.restarts >= 2
    whole = sum(sums.values())  # less than 1 while the first days are not forgotten
    shares = {name: value / whole for name, value in sums.items()}
    left = 1.0 - sum(shares[name] for name in MODEST)
    weights = sum(spec.quotas[0].weight for spec in soak.specs if spec.name not in MODEST)
    shown = {spec.name: spec.past_usage.get("gpu", 0.0) for spec in soak.memory.with_past_usage(soak.specs, soak.now)}
    for spec in soak.specs:
        if spec.name in MODEST:
            assert shares[spec.name] < left * spec.quotas[0].weight / weights
        else:
            wanted = left * spec.quotas[0].weight / weights
            assert abs(shares[spec.name] - wanted) <= 0.02, (spec.name, shares[spec.name], wanted)
        assert abs(shown[spec.name] - soak.true[spec.name]) <= 0.01, (spec.name, shown[spec.name], soak.true[spec.name])
