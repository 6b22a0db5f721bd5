"""A queue gets what it deserves within the sum of the bounds, whatever the tenants of another write: in virtual time.

`red` holds everything, with any min-runtime, checkpoint grace, budget and grace period, deletes pods of its own, and asks again
for what it loses; some of its deleted pods never end. `blue` asks for what it deserves. The controller's part is played: notice,
refusals by budgets, pods that end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.api import names
from fairlead.api.bounds import DEFAULTS, NO_BOUNDS, Bound, Bounds, tightest
from fairlead.engine.types.gangs import GangRequest, RunningGang
from fairlead.engine.types.plan import Eviction
from fairlead.engine.types.reasons import Code
from fairlead.engine.types.settings import DisruptionBudget, FlavorQuota, FlavorSpec, QueueSpec
from tests.support.engine.examples import examples
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World

RELAXED = settings(
    max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck), report_multiple_bugs=False
)
ONE = claim_spec(device_request())
FOREVER = float(3650 * 86400)
NEVER = float("inf")
Asks = tuple[float | None, float | None, tuple[str, ...], Bounds]
hostile = st.sampled_from([None, 0.0, 5.0, 700.0, 86400.0, FOREVER])


def bounds(draw: Any) -> Bounds:
    if draw(st.booleans()):
        return NO_BOUNDS
    bound = st.sampled_from([0.0, 1.0, 30.0, 900.0]).map(lambda seconds: Bound(seconds, "a test"))
    return Bounds(min_runtime=draw(bound), checkpoint_grace=draw(bound), termination_grace=draw(bound))


@dataclass
class Play:
    world: World
    waiting: list[GangRequest]
    limits: Bounds  # in force for red
    asks: dict[str, tuple[float | None, float | None, tuple[str, ...], Bounds]]  # by gang of red: what it asks for
    graces: dict[str, float]  # by gang of red: of its pods
    stuck: set[str] = field(default_factory=set)  # UIDs of pods that never end
    evict_at: dict[str, tuple[float, float, set[str]]] = field(default_factory=dict)  # gang: refusals end, due, pods
    ends: dict[str, float] = field(default_factory=dict)  # by pod

    def cycle(self) -> float:
        """One decision, carried out; when the next one is due."""
        world = self.world
        self._evict()
        self._end()
        plan = world.decide(*self.waiting)
        self.waiting = world.carry_out(plan, self.waiting)
        for eviction in plan.evictions:
            self._begin(eviction)
        for key, running in world.running.items():
            if running.queue == "red" and running.name in self.asks:
                world.running[key] = dressed(running, self.asks[running.name])
        again = [at for at in (plan.due, *self.ends.values(), *(due for _, due, _ in self.evict_at.values())) if at]
        return max(min((at for at in again if at < NEVER), default=NEVER), world.now + 0.01)

    def _begin(self, eviction: Eviction) -> None:
        due = self.world.now + eviction.checkpoint_grace_s
        refusals = NEVER if eviction.refusable_s is None else due + min(eviction.refusable_s, 300.0)
        self.evict_at[eviction.id] = (refusals, due, {pod.uid for pod in eviction.pods})

    def _evict(self) -> None:
        """Pods whose time has come are deleted; while a budget refuses, they are tried again."""
        now = self.world.now
        for gang_id, (refusals, due, pods) in list(self.evict_at.items()):
            running = self.world.running.get(gang_id)
            if running is None or due > now:
                continue
            guarded = any(member.guarded_by for member in running.members if member.pod.uid in pods)
            if guarded and now < refusals:
                assert refusals < NEVER, "a victim of guaranteed reclaim may be refused for good"
                self.evict_at[gang_id] = (refusals, refusals, pods)
                continue
            del self.evict_at[gang_id]
            grace_s = min(self.graces.get(running.name, 30.0), self.limits.termination_grace_s)
            self.delete(running, pods, grace_s)

    def delete(self, running: RunningGang, pods: set[str], grace_s: float) -> None:
        now = self.world.now
        members = tuple(
            replace(member, leaving=True, leaving_since=now) if member.pod.uid in pods else member
            for member in running.members
        )
        self.world.running[running.id] = replace(running, members=members)
        self.ends |= {uid: NEVER if uid in self.stuck else now + grace_s for uid in pods}

    def _end(self) -> None:
        """Pods whose grace is over are gone; those that leave for longer than their bound are told to end."""
        world, over = self.world, self.limits.termination_grace_s
        gone = {uid for uid, at in self.ends.items() if at <= world.now}
        for running in world.running.values():
            for member in running.members:
                since, uid = member.leaving_since, member.pod.uid
                if since is not None and uid not in self.stuck and since + over <= world.now:
                    gone.add(uid)
        before = dict(world.running)
        for key, running in before.items():
            members = tuple(replace(each, leaving=each.pod.uid in gone) for each in running.members)
            world.running[key] = replace(running, members=members)
        back = world.gone()
        for key, running in list(world.running.items()):
            was = {each.pod.uid: each for each in before[key].members}
            world.running[key] = replace(running, members=tuple(was[each.pod.uid] for each in running.members))
        self.waiting += [request for request in back if request.queue == "red"]
        for uid in gone:
            self.ends.pop(uid, None)


def dressed(running: RunningGang, asks: tuple[float | None, float | None, tuple[str, ...], Bounds]) -> RunningGang:
    min_runtime_s, grace_s, guards, of_namespace = asks
    return replace(
        running,
        min_runtime_s=min_runtime_s,
        checkpoint_grace_s=grace_s,
        bounds=of_namespace,
        members=tuple(replace(member, guarded_by=guards) for member in running.members),
    )


@given(st.data())
@RELAXED
def test_what_a_queue_deserves_comes_within_the_sum_of_the_bounds(data: st.DataObject) -> None:
    draw = data.draw
    nodes, total = draw(st.integers(1, 2)), 0
    world = World()
    for number in range(nodes):
        world.add_node(f"n{number}", [gpu(minor) for minor in range(4)])
        total += 4
    deserved = draw(st.integers(1, total))
    above, of_queue, of_namespace = (bounds(draw) for _ in range(3))
    limits = tightest((above, of_queue, of_namespace))
    world.flavors = (FlavorSpec(name="gpu", device_selector=f'device.driver == "{names.DRIVER}"'),)
    world.queues = (
        QueueSpec(name="blue", quotas=(FlavorQuota(flavor="gpu", deserved=deserved),)),
        QueueSpec(name="org", bounds=above),
        QueueSpec(
            name="red",
            parent="org",
            bounds=of_queue,
            quotas=(FlavorQuota(flavor="gpu", deserved=draw(st.integers(0, total - deserved))),),
        ),
    )
    world.budgets = tuple(DisruptionBudget(namespace="ml", name=name, allowed=0) for name in ("zero", "none"))
    world.now = 1_000_000.0
    pods, reds = total, list[GangRequest]()
    asks: dict[str, Asks] = {}
    graces: dict[str, float] = {}
    while pods:
        size = draw(st.integers(1, min(pods, 3)))
        name = f"red{len(reds)}"
        reds.append(gang(name, size, ONE, queue="red", created=world.now, priority=draw(st.integers(0, 9))))
        guards = draw(st.sampled_from([(), ("zero",), ("zero", "none")]))
        asks[name] = (draw(hostile), draw(hostile), guards, of_namespace)
        graces[name] = draw(hostile) or 0.0
        pods -= size
    play = Play(world, reds, limits, asks, graces)
    play.cycle()
    assert not play.waiting, "red holds all"
    world.now += draw(st.sampled_from([0.0, 10.0, 4000.0]))
    spare = total - deserved
    for running in list(world.running.values()):
        deleted = {each.pod.uid for each in running.members if draw(st.booleans())}
        for uid in sorted(deleted):
            if spare and draw(st.booleans()):
                play.stuck.add(uid)
                spare -= 1
        if deleted:
            play.delete(running, deleted, FOREVER)
    began = world.now
    play.waiting.append(gang("blue", deserved, ONE, queue="blue", created=began))
    runtime_s = DEFAULTS.min_runtime_s if limits.min_runtime is None else limits.min_runtime.seconds
    within_s = runtime_s + 3 * limits.checkpoint_grace_s + 2 * limits.termination_grace_s + 60.0
    for _ in range(300):
        due = play.cycle()
        if "ml/blue" in world.running:
            break
        (blue,) = (each for each in world.decide(*play.waiting).waiting if each.name == "blue")
        assert blue.reason.code is not Code.NEVER_FITS
        world.now = min(due, began + within_s + 1.0)
        assert world.now <= began + within_s, f"{limits}: {blue.reason}"
    assert "ml/blue" in world.running
    assert not world.faults()
