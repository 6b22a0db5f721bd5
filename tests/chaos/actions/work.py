"""Work that comes: jobs, pods without an owner, and those that are deleted."""

from __future__ import annotations

from random import Random

from fairlead.kube.resources import JOBS, PODS, raw
from fairlead.sandbox.objects import key_of, name_of, namespace_of, status_of, uid_of
from tests.chaos.actions.registry import action, pods_of_teams
from tests.chaos.world import World

_JOBS = raw(JOBS)
_PODS = raw(PODS)
JOBS_AT_ONCE = 6


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
    pods = pods_of_teams(world)
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
