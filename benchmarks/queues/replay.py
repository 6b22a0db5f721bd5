"""Kueue's performance scenarios replayed in virtual time: real decisions, no cluster.

Measures what `decide` takes for a whole scenario (CPU time, one core, decisions only), and how long the scenario lasts in its
own time, against the least that it could last. Parameters are those of Kueue's generators (test/performance/scheduler/configs,
ff69552e), where a workload asks for n CPUs; here it is a gang of n pods with one GPU each, on nodes of eight, so that
where devices are is never what stands in the way. A cohort is a queue with a limit, its cluster queues are the queues below.
The clock stands still while a decision is made: Kueue needed 351 s and 1,179 s for the two on a real clock.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fairlead.api import names
from fairlead.engine.plan.decide import Engine
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.gangs import GangRequest, RunningGang, RunningMember
from fairlead.engine.types.plan import Admission
from fairlead.engine.types.pods import PodNeeds
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from fairlead.kube import core, resource
from fairlead.kube.garbage import frozen_heap
from fairlead.kube.objects import ObjectMeta
from tests.support.engine.objects import gpu, one_claim_each
from tests.support.engine.world import World

NODE_GPUS = 8
MIN_RUNTIME_S = 1.0  # no run lasts longer: to evict one would only lose what it has done


@dataclass(frozen=True, slots=True)
class Class:
    """Workloads of one kind: every queue makes `count`, one each `every_ms`."""

    name: str
    count: int
    every_ms: int
    runs_ms: int
    priority: int
    request: int


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    cohorts: int
    queues: int  # of each cohort
    nominal: int
    borrowing: int
    classes: tuple[Class, ...]
    decided_s: float  # bar

    @property
    def ideal_ms(self) -> float:
        """The work of one queue on what it deserves, for all are alike; no less than the last arrival and its run."""
        work = sum(each.count * each.runs_ms * each.request for each in self.classes) / self.nominal
        return max(work, *(each.count * each.every_ms + each.runs_ms for each in self.classes))


BASELINE = Scenario(
    "baseline", 5, 6, 20, 100,
    (Class("small", 350, 100, 200, 50, 1), Class("medium", 100, 500, 500, 100, 5), Class("large", 50, 1200, 1000, 200, 20)),
    decided_s=20.0,
)  # fmt: skip
LARGE = Scenario(
    "large", 10, 100, 20, 100,
    (Class("small", 35, 60, 150, 50, 1), Class("medium", 11, 300, 350, 100, 5), Class("large", 4, 700, 700, 200, 20)),
    decided_s=120.0,
)  # fmt: skip


@dataclass(slots=True)
class Outcome:
    makespan_ms: int = 0
    decided_s: float = 0.0
    decisions: int = 0
    admitted: int = 0
    evicted: int = 0


def replay_figures() -> list[dict[str, Any]]:
    return [*_figures(BASELINE), *_figures(LARGE)]


def _figures(scenario: Scenario) -> Iterator[dict[str, Any]]:
    outcome = replay(scenario)
    label = f"queues/replay/kueue-{scenario.name}"
    ideal = scenario.ideal_ms / 1000
    bar = round(1.1 * 66.0, 1) if scenario is BASELINE else None
    makespan_s = outcome.makespan_ms / 1000
    yield {"figure": f"{label}/makespan", "value": makespan_s, "unit": "s", "bar": bar, "scaled": False}
    yield {"figure": f"{label}/ideal", "value": ideal, "unit": "s", "bar": None, "scaled": False}
    yield {"figure": f"{label}/decided", "value": outcome.decided_s, "unit": "s", "bar": scenario.decided_s}
    yield {"figure": f"{label}/admitted", "value": outcome.admitted, "unit": "gangs", "bar": None}
    yield {"figure": f"{label}/evicted", "value": outcome.evicted, "unit": "gangs", "bar": None}
    yield {"figure": f"{label}/decisions", "value": outcome.decisions, "unit": "", "bar": None}


def replay(scenario: Scenario) -> Outcome:
    """Runs it to the end. Events of one millisecond are decided on together."""
    rim, engine = _Rim(scenario), Engine()
    outcome = Outcome()
    arrivals: list[tuple[int, str, Class, int]] = [
        (number * each.every_ms, f"q{cohort}-{queue:03}", each, number)
        for each in scenario.classes
        for number in range(1, each.count + 1)
        for cohort in range(scenario.cohorts)
        for queue in range(scenario.queues)
    ]
    arrivals.sort(key=lambda entry: (entry[0], entry[1], entry[2].name), reverse=True)  # next one last
    with frozen_heap():  # as the controller runs
        while arrivals or rim.ends or rim.waiting:
            now = min([entry[0] for entry in arrivals[-1:]] + [entry[0] for entry in rim.ends[:1]])
            while arrivals and arrivals[-1][0] <= now:
                _, queue, each, number = arrivals.pop()
                rim.arrive(queue, each, number, now)
            rim.finish(now)
            snapshot = rim.snapshot()
            began = time.process_time()
            plan = engine.decide(snapshot, now / 1000)
            outcome.decided_s += time.process_time() - began
            outcome.decisions += 1
            for admission in plan.admissions:
                rim.admit(admission, now)
            outcome.admitted += len(plan.admissions)
            for eviction in plan.evictions:
                rim.evict(eviction.id)
            outcome.evicted += len(plan.evictions)
            outcome.makespan_ms = now
    return outcome


class _Rim:
    """Plays the controller's rim: what is admitted runs at once, what is evicted is gone at once and queues again."""

    def __init__(self, scenario: Scenario) -> None:
        self.world = World()
        devices = scenario.cohorts * scenario.queues * scenario.nominal
        for number in range(devices // NODE_GPUS):
            self.world.add_node(f"node-{number:05}", [gpu(minor) for minor in range(NODE_GPUS)])
        self.flavors = (FlavorSpec(name="gpu", device_selector=f'device.driver == "{names.DRIVER}"'),)
        self.queues = tuple(_queues(scenario))
        self.classes = self.world.classes
        self.waiting: dict[str, GangRequest] = {}
        self.running: dict[str, tuple[RunningGang, GangRequest]] = {}
        self.ends: list[tuple[int, str, int]] = []  # when, gang, its how manieth start
        self._starts: dict[str, int] = {}
        self._runs_ms: dict[str, int] = {}
        self._needs = PodNeeds.of(core.Pod())
        exactly = resource.ExactDeviceRequest(device_class_name=names.GPU_CLASS, count=1)
        request = resource.DeviceRequest(name="gpu", exactly=exactly)
        self._spec = resource.ResourceClaimSpec(devices=resource.DeviceClaim(requests=(request,)))

    def arrive(self, queue: str, each: Class, number: int, now: int) -> None:
        name = f"{queue}-{each.name}-{number}"
        pods = [f"{name}-{member}" for member in range(each.request)]
        members, claims = one_claim_each("bench", pods, self._needs, self._spec)
        gang = GangRequest(
            namespace="bench",
            name=name,
            uid=name,
            size=each.request,
            queue=queue,
            priority=each.priority,
            created=now / 1000,
            members=members,
            claims=claims,
        )
        self._runs_ms[gang.id] = each.runs_ms
        self.waiting[gang.id] = gang

    def finish(self, now: int) -> None:
        while self.ends and self.ends[0][0] <= now:
            _, gang_id, start = heapq.heappop(self.ends)
            if self._starts.get(gang_id) == start and gang_id in self.running:
                self._free(gang_id)

    def _free(self, gang_id: str) -> GangRequest:
        running, request = self.running.pop(gang_id)
        for key in running.claims:
            self.world.inventory.drop_claim(key)
        for member in running.members:
            self.world.nodes.drop_pod(member.pod.uid)
        return request

    def evict(self, gang_id: str) -> None:
        self.waiting[gang_id] = self._free(gang_id)

    def admit(self, admission: Admission, now: int) -> None:
        request = self.waiting.pop(admission.id)
        start = self._starts[admission.id] = self._starts.get(admission.id, 0) + 1
        heapq.heappush(self.ends, (now + self._runs_ms[admission.id], admission.id, start))
        for claim in admission.claims:
            self.world.inventory.set_claim(
                resource.ResourceClaim(
                    metadata=ObjectMeta(uid=claim.key, namespace=claim.namespace, name=claim.name),
                    status=resource.ResourceClaimStatus(allocation=claim.allocation),
                )
            )
        for assigned in admission.assignments:
            pod = core.Pod(metadata=ObjectMeta(uid=assigned.pod.uid, namespace="bench", name=assigned.pod.name))
            self.world.nodes.set_pod(pod, assigned.node)
        claims = {member.pod.uid: member.claims for member in request.members}
        members = tuple(
            RunningMember(pod=assigned.pod, node=assigned.node, claims=claims[assigned.pod.uid], started=now / 1000)
            for assigned in admission.assignments
        )
        running = RunningGang(
            namespace=request.namespace,
            name=request.name,
            uid=request.uid,
            queue=request.queue,
            claims=tuple(claim.key for claim in admission.claims),
            priority=request.priority,
            created=request.created,
            started=now / 1000,
            size=request.size,
            members=members,
        )
        self.running[admission.id] = (running, request)

    def snapshot(self) -> Snapshot:
        return Snapshot(
            inventory=self.world.inventory,
            nodes=self.world.nodes,
            classes=self.classes,
            gangs=tuple(self.waiting.values()),
            running=tuple(running for running, _ in self.running.values()),
            queues=self.queues,
            flavors=self.flavors,
        )


def _queues(scenario: Scenario) -> Iterator[QueueSpec]:
    for cohort in range(scenario.cohorts):
        whole = scenario.nominal * scenario.queues
        name = f"cohort-{cohort}"
        yield QueueSpec(
            name=name,
            uid=name,
            min_runtime_s=MIN_RUNTIME_S,
            quotas=(FlavorQuota(flavor="gpu", deserved=whole, limit=whole),),
        )
        quota = FlavorQuota(flavor="gpu", deserved=scenario.nominal, borrowing_limit=scenario.borrowing)
        for queue in range(scenario.queues):
            yield QueueSpec(name=f"q{cohort}-{queue:03}", uid=f"q{cohort}-{queue:03}", parent=name, quotas=(quota,))
