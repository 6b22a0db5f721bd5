"""Random clusters that live for a while: gangs come, run, end and are evicted; nodes, devices and queues change.

All of it follows from a seed: Python's `Random`, plain draws, no clock. A `Kind` says which features a cluster has; together the
kinds have all that a snapshot can express. Nothing is asserted here: whatever `decide` answers is carried out and recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import msgspec
from msgspec.structs import replace

from fairlead.engine.placement.value.workload import WorkloadCounter
from fairlead.engine.plan.decide import Engine
from fairlead.engine.types.gangs import GangRequest, RunningGang
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.settings import DisruptionBudget
from fairlead.kube import resource
from tests.support.decisions_draws import Draws, Features
from tests.support.engine.world import World

STEPS = 120
PATIENCE_S = 120.0  # what has waited longer is soon withdrawn
PAUSES_S = (1.0, 1.0, 5.0, 30.0, 300.0)


@dataclass(frozen=True, slots=True)
class Kind:
    """`backlog` is how many gangs wait at most before no more are submitted."""

    name: str
    features: Features
    backlog: int = 8
    arrivals: int = 3  # most of one step
    seeds: int = 48  # how many clusters of this kind are recorded


KINDS = (
    Kind("plain", Features()),
    Kind("queues", Features(queues=True, odd=True, elastic=True)),
    Kind("reclaim", Features(queues=True, elastic=True, nodes=(2, 3))),
    Kind("reserve", Features(queues=True, deadlines=True, strict=True)),
    Kind("forest", Features(queues=True, deep=True, deadlines=True), backlog=12),
    Kind("flawed", Features(queues=True, odd=True, elastic=True, flawed=True), seeds=12),
    Kind("hardware", Features(mig=True, shared=True, taints=True, claims=True)),
    Kind(
        "mixed",
        Features(
            mig=True,
            shared=True,
            taints=True,
            claims=True,
            queues=True,
            odd=True,
            elastic=True,
            deadlines=True,
            strict=True,
        ),
        backlog=12,
    ),
    Kind("large", Features(queues=True, elastic=True, deadlines=True, nodes=(9, 14)), backlog=24, arrivals=8, seeds=6),
)


def live(kind: Kind, seed: int, steps: int = STEPS) -> None:
    """One cluster's life."""
    life = Life(kind, Random(f"{kind.name} {seed}"))
    for _ in range(steps):
        life.step()


class Life:
    def __init__(self, kind: Kind, random: Random) -> None:
        self.kind = kind
        self.random = random
        self.draws = Draws(random, kind.features)
        self.world = World()
        self.waiting: list[GangRequest] = []
        self.growing: dict[str, GangRequest] = {}  # whole requests of gangs that ask for lost members again
        self.learner = WorkloadCounter() if random.random() < 0.5 else None
        self.taints = 0
        for number in range(random.randint(*kind.features.nodes)):
            self.draws.add_node(self.world, f"n{number:02}")
        self.draws.add_roaming(self.world)
        self.world.flavors = self.draws.flavors()
        self.world.queues = self.draws.queues(self.world.flavors)
        self.world.reserve_after_s = random.choice((600.0, 30.0, 5.0) if kind.features.deadlines else (600.0, 1e9))
        self.world.budgets = (
            DisruptionBudget(namespace="ml", name="safe", allowed=random.randint(0, 2)),
            DisruptionBudget(namespace="ml", name="calm", allowed=random.randint(0, 1)),
        )

    def step(self) -> None:
        world, random = self.world, self.random
        world.now += random.choice(PAUSES_S)
        if random.random() < 0.7:
            self._gone()
        self._ends()
        self._changes()
        self._arrivals()
        self.waiting = [self.current(entry) for entry in self.waiting]
        self._carry_out(world.decide(*self.waiting))
        if random.random() < 0.3:
            world.decide(*self.waiting)
        match random.randrange(12):
            case 0:
                world.afresh().decide(*self.waiting)
            case 1:
                world.decide(*reversed(self.waiting))
            case 2:  # settings that a World does not have
                steps, weight = random.choice((3, 40, 400)), random.choice((0.0, 0.5, 2.0))
                snapshot = replace(world.snapshot(*self.waiting), search_steps=steps, usage_weight=weight)
                world.engine.decide(snapshot, world.now, share_ids=lambda claim, request, device: f"{claim}/{request}")
            case 3:
                world.engine = Engine()

    # ---------------------------------------------------------------------------------------------- what happens

    def _gone(self) -> None:
        """Pods that were leaving are gone; gangs that lost members of their surplus may ask for them again."""
        for gang_id, running in list(self.world.running.items()):
            if any(member.leaving for member in running.members):
                self._keep_shared(gang_id)
        back = self.world.gone()
        stopped = {entry.id for entry in back}
        self.waiting = [entry for entry in self.waiting if entry.id not in stopped]
        self.waiting += [self.growing.pop(entry.id, entry) for entry in back]
        asked = {entry.id for entry in self.waiting}
        for gang_id, running in sorted(self.world.running.items()):
            request = self.growing.get(gang_id) or self.world.requests.get(gang_id)
            if (
                request is None
                or gang_id in asked
                or not running.members
                or len(running.members) >= len(request.members)
            ):
                continue
            if self.random.random() < 0.5:
                self.growing[gang_id] = request
                self.waiting.append(self._growth(request, running))

    def _growth(self, request: GangRequest, running: RunningGang) -> GangRequest:
        """The members that are missing, with their claims; a claim that others still hold is allocated already."""
        there = {member.pod for member in running.members}
        missing = tuple(member for member in request.members if member.pod not in there)
        keys = {key for member in missing for key in member.claims}
        claims = tuple(claim for claim in request.claims if claim.key in keys)
        nodes = tuple(member.node for member in running.members)
        return replace(request, members=missing, claims=claims, placed_nodes=nodes, preemptor=False)

    def current(self, entry: GangRequest) -> GangRequest:
        """The request with the allocations that its claims have now: other gangs may hold them."""
        answers = self.world.answers
        if all((claim.key in answers) == (claim.allocation is not None) for claim in entry.claims):
            return entry
        claims = tuple(
            replace(
                claim,
                allocation=msgspec.convert(answers[claim.key][2], resource.AllocationResult)
                if claim.key in answers
                else None,
            )
            for claim in entry.claims
        )
        return replace(entry, claims=claims)

    def _end(self, gang_id: str) -> None:
        self._keep_shared(gang_id)
        self.world.end(gang_id)
        self._forget(gang_id)

    def _forget(self, gang_id: str) -> None:
        """What would grow is no more."""
        self.growing.pop(gang_id, None)
        self.waiting = [entry for entry in self.waiting if entry.id != gang_id]

    def _keep_shared(self, gang_id: str) -> None:
        """Claims that other gangs hold, too, stay when this one goes."""
        running = self.world.running[gang_id]
        others = {key for other in self.world.running.values() if other.id != gang_id for key in other.claims}
        if others.intersection(running.claims):
            left = tuple(key for key in running.claims if key not in others)
            self.world.running[gang_id] = replace(running, claims=left)

    def _ends(self) -> None:
        for gang_id in sorted(self.world.running):
            running = self.world.running[gang_id]
            promised = running.ends_by is not None and running.ends_by <= self.world.now
            if promised or self.random.random() < 0.04:
                self._end(gang_id)
        for entry in list(self.waiting):
            patience = 0.02 if self.world.now - entry.created < PATIENCE_S else 0.3
            if entry.id not in self.growing and self.random.random() < patience:
                self.waiting.remove(entry)

    def _changes(self) -> None:
        world, random = self.world, self.random
        nodes = sorted(world.node_json)
        match random.randrange(40):
            case 0 if len(nodes) > 1:
                world.drop_node(random.choice(nodes))
            case 1 | 2 if len(nodes) < self.kind.features.nodes[1]:
                self.draws.add_node(world, f"m{random.randrange(1000):03}")
            case 3 | 4:
                world.cordon(random.choice(nodes), random.random() < 0.5)
            case 5 | 6 if self.kind.features.taints and world.slice_json:
                self.draws.taint(world, random.choice(sorted(world.slice_json)))
            case 7:
                world.queues = tuple(self.draws.changed(queue, world.flavors) for queue in world.queues)
            case 8:
                world.queues = tuple(
                    replace(queue, past_usage=self.draws.past(world.flavors)) for queue in world.queues
                )
            case 9 if world.running:  # claims that belong to no gang any more
                gang_id = random.choice(sorted(world.running))
                del world.running[gang_id]
                self._forget(gang_id)
            case 10 | 11:
                world.budgets = tuple(replace(budget, allowed=random.randint(0, 2)) for budget in world.budgets)

    def _arrivals(self) -> None:
        for _ in range(self.random.randint(0, self.kind.arrivals)):
            if len(self.waiting) >= self.kind.backlog:
                return
            entry = self.draws.gang(self.world)
            if self.kind.features.claims and self.random.random() < 0.15:
                entry = self._sharing(entry)
            if self.learner is not None:
                self.learner.note(entry)
                self.world.workload = self.learner.workload()
            self.waiting.append(entry)

    def _sharing(self, entry: GangRequest) -> GangRequest:
        """The gang with a claim of another one, running or waiting, in the place of its own."""
        others = [*self.waiting, *(self.world.requests[key] for key in sorted(self.world.running))]
        claims = [claim for other in others if other.namespace == entry.namespace for claim in other.claims]
        if not claims:
            return entry
        claim = self.random.choice(claims)
        members = tuple(replace(member, claims=(claim.key,)) for member in entry.members)
        return replace(entry, members=members, claims=(claim,))

    def _carry_out(self, plan: Plan) -> None:
        world = self.world
        before = {admission.id: world.running.get(admission.id) for admission in plan.admissions}
        self.waiting = world.carry_out(plan, self.waiting)
        for gang_id, known in before.items():
            running = self._settled(world.running[gang_id])
            if known is not None:  # it grew
                running = replace(
                    running,
                    members=(*known.members, *running.members),
                    claims=tuple(dict.fromkeys((*known.claims, *running.claims))),
                    started=known.started,
                )
                world.requests[gang_id] = self.growing.pop(gang_id, world.requests[gang_id])
            world.running[gang_id] = running

    def _settled(self, running: RunningGang) -> RunningGang:
        """What an admission does not say of a running gang."""
        random = self.random
        if self.kind.features.flawed and random.random() < 0.3:
            return replace(running, members=())
        guards: Sequence[str] = random.choice(((), (), (), ("safe",), ("safe", "calm")))
        return replace(
            running,
            min_runtime_s=random.choice((None, None, None, 0.0, 20.0)),
            checkpoint_grace_s=random.choice((None, None, 30.0)),
            members=tuple(replace(member, guarded_by=tuple(guards)) for member in running.members),
        )
