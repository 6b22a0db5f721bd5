"""What may happen in a step, each with its weight: work that comes, faults that begin and end, tenants that misbehave.

An action draws from the step's own random numbers, so that a step does the same whichever others are left out (shrinking). It returns
what it did, for the log; None where there was nothing to do it to. A fault ends after a while by itself, or at the end of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from fairlead.api import names
from fairlead.driver.backend.simulated import fault_file
from fairlead.kube.client import Patch
from fairlead.kube.resources import JOBS, NODES, PODS, RESOURCE_CLAIMS, raw
from fairlead.sandbox.apiserver.lag import WatchLag
from fairlead.sandbox.objects import key_of, name_of, namespace_of, status_of, uid_of
from tests.chaos.cluster import APISERVERS, CONTROLLERS, ChaosNode, Program
from tests.chaos.world import GPUS, TEAMS, World

Act = Callable[[World, Random], str | None]
_JOBS, _PODS, _CLAIMS = raw(JOBS), raw(PODS), raw(RESOURCE_CLAIMS)
JOBS_AT_ONCE = 6
XIDS = (13, 31, 48, 63, 79, 94, 119)


@dataclass(frozen=True)
class Action:
    name: str
    weight: float
    act: Act


ACTIONS: list[Action] = []


def action(weight: float) -> Callable[[Act], Act]:
    def add(act: Act) -> Act:
        ACTIONS.append(Action(act.__name__.strip("_"), weight, act))
        return act

    return add


def _later(world: World, random: Random, mean_s: float, work: Callable[[], object]) -> float:
    after_s = min(random.expovariate(1 / mean_s), 4 * mean_s)
    world.cluster.admin.call(after_s, work)
    return after_s


def _pods(world: World) -> list[dict[str, Any]]:
    return [pod for pod in world.objects("", "pods") if namespace_of(pod) in TEAMS]


def _claims(world: World) -> list[dict[str, Any]]:
    return [claim for claim in world.objects("resource.k8s.io", "resourceclaims") if namespace_of(claim) in TEAMS]


# -- work ------------------------------------------------------------------------------------------------------------


@action(10)
def submit(world: World, random: Random) -> str | None:
    unfinished = [job for job in world.objects("batch", "jobs") if not status_of(job).get("completionTime")]
    if len(unfinished) >= JOBS_AT_ONCE:
        return None
    return world.submit(random)


@action(0.5)
def submit_impossible(world: World, random: Random) -> str | None:
    return None if world.impossible else world.submit_impossible(random)


@action(2)
def delete_job(world: World, random: Random) -> str | None:
    jobs = world.objects("batch", "jobs")
    if not jobs:
        return None
    job = random.choice(jobs)
    namespace, name = namespace_of(job), name_of(job)
    world.in_background(
        f"delete job {namespace}/{name}",
        lambda: world.client.delete(_JOBS, name, namespace, propagation=random.choice(("Background", "Foreground"))),
    )
    return f"delete job {namespace}/{name}"


@action(3)
def delete_pod(world: World, random: Random) -> str | None:
    pods = _pods(world)
    if not pods:
        return None
    pod, grace_s = random.choice(pods), random.choice((0, 1, 30, None))
    world.in_background(
        f"delete pod {key_of(pod)}",
        lambda: world.client.delete(_PODS, name_of(pod), namespace_of(pod), grace_period_s=grace_s, uid=uid_of(pod)),
    )
    return f"delete pod {key_of(pod)} with a grace of {grace_s} s"


@action(2)
def plain_pod(world: World, random: Random) -> str | None:
    """A pod without devices is created whatever the webhook is doing."""
    name = f"plain-{random.getrandbits(32):08x}"
    if not world.running_servers():
        return None
    pod = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox", "command": ["true"]}]},
    }
    world.in_background(f"pod default/{name}", lambda: world.client.create(_PODS, pod, namespace="default"), tries=20)
    return f"pod default/{name} without devices"


# -- processes -------------------------------------------------------------------------------------------------------


def _some_program(world: World, random: Random) -> Program:
    favourites = (*CONTROLLERS, *CONTROLLERS, "webhook", "webhook")
    names_ = (*favourites, *(name for name, each in sorted(world.cluster.programs.items()) if each.wanted))
    return world.cluster.programs[random.choice(names_)]


@action(8)
def kill(world: World, random: Random) -> str | None:
    program = _some_program(world, random)
    if not program.alive:
        return None
    program.kill()
    away_s = _later(world, random, 4.0, lambda: _start_again(world, program))
    return f"kill -9 {program.name} for {away_s:.1f} s"


def _start_again(world: World, program: Program) -> None:
    """Unless it belongs to a node without power, which starts it itself."""
    if all(node.powered or not program.name.endswith(f"-{node.name}") for node in world.cluster.nodes.values()):
        program.start()


@action(8)
def pause(world: World, random: Random) -> str | None:
    program = _some_program(world, random)
    if not program.runs:
        return None
    program.pause()
    paused = program.process
    assert paused is not None
    for_s = _later(world, random, random.choice((0.5, 8.0, 25.0)), paused.resume)
    return f"pause {program.name} for {for_s:.1f} s"


@action(2)
def slow_threads(world: World, random: Random) -> str | None:
    program = _some_program(world, random)
    if program.process is None:
        return None
    program.slow(random.choice((0.05, 1.0, 10.0)))
    for_s = _later(world, random, 10.0, lambda: program.slow(0.0))
    return f"threads of {program.name} take up to {program.thread_s} s, for {for_s:.1f} s"


@action(2)
def clock_jump(world: World, random: Random) -> str | None:
    program = _some_program(world, random)
    skew_s = random.choice((-120.0, -30.0, -2.0, 2.0, 30.0, 120.0))
    program.skew(skew_s)
    for_s = _later(world, random, 20.0, lambda: program.skew(0.0))
    return f"clock of {program.name} jumps by {skew_s:+.0f} s, for {for_s:.1f} s"


# -- the network -----------------------------------------------------------------------------------------------------


def _some_paths(world: World, random: Random) -> tuple[str, list[Any]]:
    client = _some_program(world, random).name
    if client in APISERVERS:
        server = "webhook"
    else:
        server = random.choice(APISERVERS)
    network, which = world.cluster.network, random.choice(("both", "there", "back"))
    there, back = network.path(client, server), network.path(server, client)
    arrow, paths = {"both": ("<->", [there, back]), "there": ("->", [there]), "back": ("<-", [back])}[which]
    return f"{client} {arrow} {server}", paths


def _network_fault(begin: Callable[[World, Random, Any], str], mean_s: float) -> Act:
    def act(world: World, random: Random) -> str | None:
        where, paths = _some_paths(world, random)
        told = [begin(world, random, path) for path in paths]
        for_s = _later(world, random, mean_s, lambda: _heal(world, paths))
        return f"{where} {told[0]} for {for_s:.1f} s"

    return act


def _heal(world: World, paths: list[Any]) -> None:
    for path in paths:
        world.cluster.network.heal(path)


def _begin_held(world: World, random: Random, path: Any) -> str:
    world.cluster.network.hold(path)
    return "is silent"


def _begin_cut(world: World, random: Random, path: Any) -> str:
    world.cluster.network.cut(path)
    return "is cut"


def _begin_late(world: World, random: Random, path: Any) -> str:
    path.late_s = random.choice(((0.05, 0.3), (0.0, 3.0), (5.0, 12.0)))
    return f"is late by {path.late_s} s"


def _begin_lossy(world: World, random: Random, path: Any) -> str:
    path.lost = random.choice((0.02, 0.2, 0.6))
    return f"loses {path.lost:.0%}"


def _begin_doubled(world: World, random: Random, path: Any) -> str:
    path.doubled = 0.5
    return "doubles messages"


for _name, _begin, _weight, _mean_s in (
    ("silent", _begin_held, 5, 10.0),
    ("cut", _begin_cut, 4, 6.0),
    ("late", _begin_late, 5, 10.0),
    ("lossy", _begin_lossy, 4, 10.0),
    ("doubled", _begin_doubled, 3, 20.0),
):
    ACTIONS.append(Action(_name, _weight, _network_fault(_begin, _mean_s)))


@action(3)
def lagging_apiserver(world: World, random: Random) -> str | None:
    """One replica's watch caches show changes later than the other's, each resource by itself."""
    at = random.randrange(len(APISERVERS))
    state, most_s = world.cluster.states[at], random.choice((0.5, 3.0, 15.0))
    state.lag = WatchLag(most_s, random=Random(random.getrandbits(32)))

    def end() -> None:
        state.lag = None
        state.wake_watchers()

    for_s = _later(world, random, 15.0, end)
    return f"{APISERVERS[at]} lags by up to {most_s} s, for {for_s:.1f} s"


@action(1)
def compact(world: World, random: Random) -> str | None:
    world.cluster.store.compact()
    return "etcd is compacted: old watches get 410"


# -- nodes -----------------------------------------------------------------------------------------------------------


def _some_node(world: World, random: Random) -> ChaosNode:
    return world.cluster.nodes[random.choice(sorted(world.cluster.nodes))]


@action(2)
def power_loss(world: World, random: Random) -> str | None:
    node = _some_node(world, random)
    if not node.powered:
        return None
    node.power_off()
    removed = random.random() < 0.3
    if removed:
        world.in_background(f"delete node {node.name}", lambda: world.client.delete(NODES, node.name))
    off_s = _later(world, random, 15.0, node.power_on)
    return f"{node.name} loses power for {off_s:.1f} s{', and its Node is deleted' if removed else ''}"


@action(4)
def disk_fault(world: World, random: Random) -> str | None:
    node, kind = _some_node(world, random), random.choice(("full", "failing", "lying", "dies"))
    match kind:
        case "full":
            node.disk.full = True
        case "failing":
            node.disk.failing = 0.3
        case "lying":
            node.disk.lying = True
        case _:
            node.disk.dies_in = random.randrange(20)
            driver = node.driver
            _later(world, random, 4.0, lambda: _start_again(world, driver))
    for_s = _later(world, random, 10.0, node.disk.repair)
    told = f"disk of {node.name}: {kind} for {for_s:.1f} s"
    return f"{told}; {_recording_fault(world, random)}" if random.random() < 0.5 else told


def _recording_fault(world: World, random: Random) -> str:
    """Of the volume into which the controllers record."""
    disk, kind = world.cluster.recordings.disk, random.choice(("full", "failing", "dies", "power"))
    controllers = [world.cluster.programs[name] for name in CONTROLLERS]
    match kind:
        case "full":
            disk.full = True
        case "failing":
            disk.failing = 0.3
        case "dies":
            disk.dies_in = random.randrange(20)
        case _:
            for each in controllers:
                each.kill()
            disk.lose_power()
    for each in controllers:
        _later(world, random, 4.0, lambda each=each: _start_again(world, each))  # type: ignore[misc]
    return f"of the recording: {kind} for {_later(world, random, 10.0, disk.repair):.1f} s"


@action(2)
def gpu_fault(world: World, random: Random) -> str | None:
    node, minor = _some_node(world, random), random.randrange(GPUS)
    path = node.data_dir / fault_file.NAME
    if not path.parent.exists():
        return None
    lost, xid = random.random() < 0.3, random.choice(XIDS)
    fault_file.inject(path, minor, xid=None if lost else xid, lost=lost)
    world.faulty.add(node.name)
    return f"{node.name}: gpu-{minor} {'falls off the bus' if lost else f'reports Xid {xid}'}"


@action(1)
def gpu_repaired(world: World, random: Random) -> str | None:
    node = _some_node(world, random)
    path = node.data_dir / fault_file.NAME
    if not path.exists():
        return None
    fault_file.clear(path)
    return f"{node.name}: its GPUs are well again"


@action(1)
def node_deleted(world: World, random: Random) -> str | None:
    """By hand or by a cloud provider's mistake: the machine still runs."""
    node = _some_node(world, random)
    world.in_background(f"delete node {node.name}", lambda: world.client.delete(NODES, node.name))
    _later(world, random, 10.0, lambda: _reboot_kubelet(node))
    return f"Node {node.name} is deleted, and the machine runs on"


def _reboot_kubelet(node: ChaosNode) -> None:
    """A kubelet registers its Node when it starts."""
    if node.powered:
        node.kubelet.kill()
        node.kubelet.start()


# -- tenants with the role edit --------------------------------------------------------------------------------------


@action(2)
def forge(world: World, random: Random) -> str | None:
    """Annotations that are the controller's or that settle a gang."""
    pods = _pods(world)
    if not pods:
        return None
    pod = random.choice(pods)
    key, value = random.choice(
        (
            (names.GANG_SIZE, "1"),
            (names.GANG, "another"),
            (names.QUEUE, "language"),
            (names.EVICT_AT, "2020-01-01T00:00:00Z"),
            (names.HOLDS_UNTIL, "2099-01-01T00:00:00Z"),
            (names.TAKEN_OVER, "x"),
            (names.CLAIM_SOURCES, "{}"),
            (names.MIN_RUNTIME, "99999999h"),
        )
    )
    _as_tenant(
        world, pod, f"forge {key}", [{"op": "add", "path": f"/metadata/annotations/{_escaped(key)}", "value": value}]
    )
    return f"tenant of {namespace_of(pod)} sets {key}={value} on pod {name_of(pod)}"


@action(1)
def ungate(world: World, random: Random) -> str | None:
    """The gate is taken off by somebody else."""
    gated = [pod for pod in _pods(world) if pod["spec"].get("schedulingGates")]
    if not gated:
        return None
    pod = random.choice(gated)
    _as_tenant(world, pod, "ungate", [{"op": "remove", "path": "/spec/schedulingGates/0"}])
    return f"tenant of {namespace_of(pod)} takes the gate off pod {name_of(pod)}"


@action(2)
def delete_claim(world: World, random: Random) -> str | None:
    claims = _claims(world)
    if not claims:
        return None
    claim = random.choice(claims)
    tenant = world.tenants[namespace_of(claim)]
    world.in_background(
        f"delete claim {key_of(claim)}", lambda: tenant.delete(_CLAIMS, name_of(claim), namespace_of(claim))
    )
    return f"tenant deletes claim {key_of(claim)}"


@action(1)
def strip_claim(world: World, random: Random) -> str | None:
    """Without its finalizer a claim goes while it is in use."""
    claims = [each for each in _claims(world) if each["metadata"].get("finalizers")]
    if not claims:
        return None
    claim = random.choice(claims)
    tenant, body = world.tenants[namespace_of(claim)], {"metadata": {"finalizers": None}}

    async def strip() -> None:
        await tenant.patch(_CLAIMS, name_of(claim), body, namespace=namespace_of(claim))
        await tenant.delete(_CLAIMS, name_of(claim), namespace_of(claim))

    world.in_background(f"strip claim {key_of(claim)}", strip)
    return f"tenant takes the finalizers off claim {key_of(claim)} and deletes it"


@action(1)
def allocate(world: World, random: Random) -> str | None:
    """A tenant gives itself devices, or takes them from another."""
    claims = _claims(world)
    if not claims:
        return None
    claim = random.choice(claims)
    tenant, status = world.tenants[namespace_of(claim)], random.choice(({"allocation": None}, _stolen()))
    world.in_background(
        f"allocate {key_of(claim)}",
        lambda: tenant.patch(
            _CLAIMS, name_of(claim), {"status": status}, namespace=namespace_of(claim), subresource="status"
        ),
    )
    return f"tenant writes the status of claim {key_of(claim)}"


def _stolen() -> dict[str, Any]:
    result = {"request": "gpus", "driver": names.DRIVER, "pool": "n1", "device": "gpu-0"}
    return {"allocation": {"devices": {"results": [result]}}}


@action(1)
def copy_pod(world: World, random: Random) -> str | None:
    """`kubectl debug --copy-to`: everything of a pod, under another name, without its owner."""
    pods = [pod for pod in _pods(world) if pod["spec"].get("resourceClaims")]
    if not pods:
        return None
    pod = random.choice(pods)
    copy = {
        "metadata": {
            "name": f"copy-{random.getrandbits(32):08x}",
            "namespace": namespace_of(pod),
            "annotations": {
                key: value
                for key, value in (pod["metadata"].get("annotations") or {}).items()
                if key not in {names.GANG, names.GANG_SIZE}
            },
        },
        "spec": {key: value for key, value in pod["spec"].items() if key != "nodeName"},
    }
    tenant = world.tenants[namespace_of(pod)]
    name = copy["metadata"]["name"]
    world.in_background(f"copy {key_of(pod)}", lambda: tenant.create(_PODS, copy, namespace=namespace_of(pod)))
    _later(
        world,
        random,
        30.0,
        lambda: world.in_background(f"delete {name}", lambda: tenant.delete(_PODS, name, namespace_of(pod))),
    )
    return f"tenant copies pod {key_of(pod)} as {name}"


def _as_tenant(world: World, pod: dict[str, Any], what: str, patch: list[dict[str, Any]]) -> None:
    tenant = world.tenants[namespace_of(pod)]

    async def write() -> None:
        await tenant.patch(_PODS, name_of(pod), patch, namespace=namespace_of(pod), kind=Patch.JSON)

    world.in_background(f"{what} of {key_of(pod)}", write)


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
