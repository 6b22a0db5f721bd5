"""Quotas of what pods request: what is charged, for whom, and of how much in all. Cases of queues are in `scenarios/resources.yaml`."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fairlead.controller.gangs.evictions.moved import Held, Spot, with_place
from fairlead.engine.forecast.cluster import SimulatedCluster
from fairlead.engine.plan.decide import Engine
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from fairlead.engine.types.values import Amount
from fairlead.kube import core
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World

ONE = claim_spec(device_request())
GIB = 2**30


def resource(name: str, counted: str, **labels: str) -> FlavorSpec:
    return FlavorSpec(
        name=name,
        device_selector="",
        measure="Resource",
        resource_name=counted,
        node_selector=tuple(sorted(labels.items())),
    )


def queue(name: str, parent: str | None = None, **limits: Amount) -> QueueSpec:
    quotas = tuple(FlavorQuota(flavor=flavor, limit=limit) for flavor, limit in limits.items())
    return QueueSpec(name=name, parent=parent, quotas=quotas)


def world_of(*flavors: FlavorSpec, nodes: int = 1) -> World:
    world = World()
    for number in range(nodes):
        world.add_node(f"n{number}", [gpu(minor) for minor in range(8)])
    world.flavors = flavors
    world.queues = (queue("a"),)
    return world


def job(name: str, pods: int = 1, cpu: str = "4", **more: Any) -> GangRequest:
    return gang(name, pods, ONE, cpu=cpu, queue=more.pop("queue", "a"), **more)


def held(plan: Plan, name: str, flavor: str = "cpu") -> Amount:
    (found,) = [
        use.used for entry in plan.queues if entry.name == name for use in entry.flavors if use.flavor == flavor
    ]
    return found


def admitted(plan: Plan) -> list[str]:
    return [entry.name for entry in plan.admissions]


def pod(uid: str, cpu: str, node: str, **status: Any) -> core.Pod:
    body = {
        "metadata": {"name": uid, "namespace": "ml", "uid": uid},
        "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]},
        "status": status,
    }
    return msgspec.convert(body, core.Pod)


def test_what_can_be_divided_is_what_gangs_hold_and_what_is_free():
    """Not what daemons request, nor what is free on a cordoned node; what a gang holds there counts."""
    world = world_of(resource("cpu", "cpu"), nodes=2)
    world.nodes.set_pod(pod("daemon", "3", "n0"))
    world.queues = (QueueSpec(name="a", quotas=(FlavorQuota(flavor="cpu"),)), QueueSpec(name="b"))
    world.carry_out(world.decide(job("j", 4, cpu="10")), [job("j", 4, cpu="10")])
    asks = [job(f"{name}{number}", cpu="7", queue=name) for name in "ab" for number in range(20)]
    (flavor,) = world.decide().flavors
    assert (flavor.total, flavor.allocated) == (128, 40)
    assert sum(share(world.decide(*asks))) == 128 - 3
    assert {node for _, node in world.pods.values()} == {"n0"}
    world.cordon("n0", True)
    assert sum(share(world.decide(*asks))) == 40 + 64


def share(plan: Plan) -> list[Amount]:
    return [use.fair_share for entry in plan.queues for use in entry.flavors if use.flavor == "cpu"]


def test_a_pod_that_ended_or_was_resized_counts_as_it_is_now():
    """Though the gang is the same object: what pods request changes under it."""
    world = world_of(resource("cpu", "cpu"))
    world.queues = (queue("a", cpu=12),)
    one = job("one", 2)
    world.carry_out(world.decide(one), [one])
    next_one = job("next", cpu="5", created=1.0)
    assert held(world.decide(next_one), "a") == 8
    assert admitted(world.decide(next_one)) == []
    world.nodes.set_pod(pod("uid-one-0", "1500m", "n0"))
    plan = world.decide(next_one)
    assert (held(plan, "a"), admitted(plan)) == (Fraction(21, 2), ["next"])
    world.nodes.set_pod(pod("uid-one-1", "4", "n0", phase="Succeeded"))
    assert held(world.decide(), "a") == Fraction(3, 2)


def test_a_gang_whose_admission_is_being_written_is_charged():
    """It has no members to be evicted yet, and its pods are said beside them."""
    world = world_of(resource("cpu", "cpu"))
    world.queues = (queue("a", cpu=12),)
    one = job("one", 2)
    world.carry_out(world.decide(one), [one])
    running = world.running["ml/one"]
    world.running["ml/one"] = replace(running, members=(), pods=tuple(each.pod.uid for each in running.members))
    plan = world.decide(job("next", cpu="5", created=1.0))
    assert (held(plan, "a"), admitted(plan)) == (8, [])


def test_an_elastic_gang_grows_as_far_as_the_quota_goes():
    world = world_of(resource("cpu", "cpu"))
    world.queues = (queue("a", cpu=12),)
    one = job("one", 2)
    world.carry_out(world.decide(one), [one])
    for cpu, wanted in (("5", []), ("4", ["one"])):
        grown = replace(job("one", 3, cpu), size=2, placed_nodes=("n0", "n0"))
        grown = replace(grown, members=grown.members[2:], claims=grown.claims[2:])
        assert admitted(world.decide(grown)) == wanted


def test_init_containers_sidecars_and_overhead_are_charged():
    """As kube-scheduler counts them: the larger of what starts and what runs, and the overhead."""
    world = world_of(resource("cpu", "cpu"))
    world.queues = (queue("a", cpu=20),)
    containers = [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]
    init = [
        {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
        {"name": "fetch", "resources": {"requests": {"cpu": "6"}}},
    ]
    spec = {"containers": containers, "initContainers": init, "overhead": {"cpu": "250m"}}
    plan = world.decide(gang("j", 2, ONE, pod=spec, queue="a"))
    assert held(plan, "a") == 2 * (1 + 6 + Fraction(1, 4))


def test_a_gang_takes_back_what_its_queue_deserves_on_nodes_with_labels():
    """Its pods could run elsewhere, too, but there is nothing free: it is judged by what it would cost on either."""
    world = World()
    world.add_node("n0", [gpu(0), gpu(1)], labels={"pool": "fast"})
    world.add_node("n1", [gpu(0)], labels={"pool": "slow"})
    world.flavors = (resource("fast", "cpu", pool="fast"), resource("slow", "cpu", pool="slow"))
    quotas = (FlavorQuota(flavor="fast", deserved=8), FlavorQuota(flavor="slow"))
    world.queues = (QueueSpec(name="a", quotas=quotas), QueueSpec(name="b"))
    jobs = [job(f"b{number}", cpu="8", queue="b", created=float(number)) for number in range(3)]
    left = world.carry_out(world.decide(*jobs), jobs)
    assert not left
    plan = world.decide(job("mine", cpu="8", created=9.0))
    (eviction,) = plan.evictions
    assert eviction.kind == "Reclaim"
    assert world.pods[eviction.pods[0].uid][1] == "n0"


def test_pods_count_by_the_labels_that_their_node_has_now():
    world = world_of(resource("fast", "cpu", pool="fast"))
    one = job("one")
    world.carry_out(world.decide(one), [one])
    waiting = job("next", created=1.0)
    for pool, wanted in (("slow", 0), ("fast", 4)):
        world.node_json["n0"]["metadata"]["labels"]["pool"] = pool
        world.nodes.set_node(msgspec.convert(world.node_json["n0"], core.Node))
        plan = world.decide(waiting)
        (flavor,) = plan.flavors
        assert (flavor.allocated, flavor.total) == (2 * wanted, 16 * wanted), "with what the gang that starts is given"


def test_a_place_that_is_held_for_a_move_is_charged_for_its_pods():
    """As for its devices: the gang cannot start there if others of the queue take the quota meanwhile."""
    world = world_of(resource("cpu", "cpu"))
    held_place = Held(("ml", "moved"), (Spot(node="n0", devices=(), requests=(("cpu", 4000), ("pods", 1000))),))
    for uid, node, needs in held_place.pods:
        world.nodes.set_needs(uid, node, needs)
    world.running["ml/moved"] = with_place(None, held_place, "a")
    assert held(world.decide(), "a") == 4


def test_a_simulated_start_of_unseen_members_is_charged_and_undone():
    """Members that join a gang whose pods the controller has not seen are no victims, and count."""
    world = world_of(resource("cpu", "cpu"))
    one = job("one")
    world.carry_out(world.decide(one), [one])
    running = world.running["ml/one"]
    world.running["ml/one"] = replace(running, members=(), pods=(running.members[0].pod.uid,))
    grown = replace(job("one", 2), size=1, placed_nodes=("n0",))
    grown = replace(grown, members=grown.members[1:], claims=grown.claims[1:])
    (admission,) = world.decide(grown).admissions
    snapshot = world.snapshot()
    cluster = SimulatedCluster(snapshot)
    cluster.start(admission, grown, 0.0)
    assert held(Engine().decide(replace(snapshot, running=cluster.sequence()), 0.0), "a") == 8
    cluster.restore()
    assert held(world.decide(), "a") == 4


def test_without_such_flavors_no_pod_is_looked_at():
    world = world_of(FlavorSpec(name="gpu", device_selector='device.driver == "gpu.fairlead.dev"'))
    one = job("one", 2)
    world.carry_out(world.decide(one), [one])

    def fail(uid: str) -> None:
        raise AssertionError(f"pod {uid} is looked up")

    world.nodes.pod = fail  # type: ignore[method-assign]
    assert held(world.decide(), "a", "gpu") == 2


REQUESTS = ("cpu", "memory", "pods")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(25))
def test_no_queue_holds_more_than_a_limit_of_any_measure(seed: int):
    """Whatever comes and goes; and what queues hold is what their pods request, counted one by one."""
    random = Random(seed)
    world = World()
    for number in range(3):
        world.add_node(f"n{number}", [gpu(minor) for minor in range(8)], labels={"pool": random.choice("xy")})
    world.flavors = (
        FlavorSpec(name="gpu", device_selector='device.driver == "gpu.fairlead.dev"'),
        *(resource(name, name) for name in REQUESTS),
        resource("cpu-x", "cpu", pool="x"),
    )
    most = {"gpu": 16, "cpu": 60, "memory": 64 * GIB, "pods": 14, "cpu-x": 30}

    def quotas() -> tuple[FlavorQuota, ...]:
        chosen = [name for name in most if random.random() < 0.6]
        return tuple(
            FlavorQuota(flavor=name, limit=(limit := random.randint(most[name] // 3, most[name])), deserved=limit // 3)
            for name in chosen
        )

    world.queues = (
        QueueSpec(name="top", quotas=quotas()),
        QueueSpec(name="a", parent="top", quotas=quotas()),
        QueueSpec(name="b", parent="top", quotas=quotas()),
        QueueSpec(name="c", quotas=quotas()),
    )
    waiting: list[GangRequest] = []
    for step in range(8):
        world.now = float(step * 10)
        waiting += world.gone()
        for name in [name for name in world.running if random.random() < 0.2]:
            world.end(name)
        for number in range(random.randrange(4)):
            requests = {"cpu": f"{random.randint(1, 40) * 250}m", "memory": f"{random.randint(1, 24)}Gi"}
            body = {"containers": [{"name": "main", "resources": {"requests": requests}}]}
            waiting.append(
                gang(
                    f"g{step}-{number}",
                    random.randint(1, 4),
                    ONE,
                    pod=body,
                    queue=random.choice("abc"),
                    priority=random.randrange(2),
                    created=world.now + number,
                )
            )
        plan = world.decide(*waiting)
        assert world.afresh().decide(*waiting) == plan, f"seed {seed}, step {step}: a fresh engine decides otherwise"
        waiting = world.carry_out(plan, waiting)
        counted = _counted(world)
        for use in world.decide(*waiting).queues:
            spec = next(each for each in world.queues if each.name == use.name)
            for quota in spec.quotas:
                found = counted.get((use.name, quota.flavor), 0)
                shown = next(each.used for each in use.flavors if each.flavor == quota.flavor)
                assert shown == found, f"seed {seed}, step {step}: {use.name} {quota.flavor}"
                assert quota.limit is not None
                assert found <= quota.limit, f"seed {seed}, step {step}: {use.name} {quota.flavor}"


def _counted(world: World) -> dict[tuple[str, str], Fraction]:
    """By queue and flavor, from the pods as they were written."""
    found: dict[tuple[str, str], Fraction] = {}
    for running in world.running.values():
        for member in running.members:
            body, node = world.pods[member.pod.uid]
            requests = body["spec"]["containers"][0]["resources"]["requests"]
            cpu, memory = (Fraction(int(requests[name].removesuffix("m")), 1000) for name in ("cpu", "memory"))
            held = {"cpu": cpu, "memory": memory, "pods": Fraction(1), "gpu": Fraction(1)}
            if world.node_json[node]["metadata"]["labels"]["pool"] == "x":
                held["cpu-x"] = cpu
            for name in (running.queue, "top" if running.queue in {"a", "b"} else ""):
                for flavor, value in held.items():
                    found[name or "", flavor] = found.get((name or "", flavor), Fraction(0)) + value
    return found
