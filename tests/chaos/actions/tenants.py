"""Tenants with the role edit that write what is the webhook's or the controller's."""

from __future__ import annotations

from random import Random
from typing import Any

from fairlead.api import names
from fairlead.kube.client import Patch
from fairlead.kube.resources import PODS, RESOURCE_CLAIMS, raw
from fairlead.sandbox.objects import key_of, name_of, namespace_of
from tests.chaos.actions.registry import action, claims_of_teams, is_odd, later, pods_of_teams
from tests.chaos.world import JOB_TRIES, World

_PODS = raw(PODS)
_CLAIMS = raw(RESOURCE_CLAIMS)


@action(2)
def forge(world: World, random: Random) -> str | None:
    """Annotations that are the controller's or that settle a gang."""
    pods = pods_of_teams(world)
    if not pods:
        return None
    pod = random.choice(pods)
    key, value = random.choice(
        (
            (names.GANG_SIZE, "1"),
            (names.GANG, "another"),
            (names.QUEUE, "language"),
            (names.EVICT_AT, "2020-01-01T00:00:00Z"),
            (names.EVICTION, '{"kind": "Reclaim", "for": "vision/x", "whole": true, "why": ""}'),
            (names.TAKEN_OVER, "x"),
            (names.CLAIM_SOURCES, "{}"),
            (names.MIN_RUNTIME, "99999999h"),
            (names.MIN_RUNTIME, "1e999"),
            (names.CHECKPOINT_GRACE, "\x1b]0;owned\x07"),
            (names.EVICTION, '{"at":0,"for":"vision/x"}'),
            (names.USER, "system:admin"),
        )
    )
    _as_tenant(
        world, pod, f"forge {key}", [{"op": "add", "path": f"/metadata/annotations/{_escaped(key)}", "value": value}]
    )
    return f"tenant of {namespace_of(pod)} sets {key}={value} on pod {name_of(pod)}"


@action(1)
def ungate(world: World, random: Random) -> str | None:
    """The gate is taken off by somebody else."""
    gated = [pod for pod in pods_of_teams(world) if pod["spec"].get("schedulingGates")]
    if not gated:
        return None
    pod = random.choice(gated)
    _as_tenant(world, pod, "ungate", [{"op": "remove", "path": "/spec/schedulingGates/0"}])
    return f"tenant of {namespace_of(pod)} takes the gate off pod {name_of(pod)}"


@action(2)
def delete_claim(world: World, random: Random) -> str | None:
    claims = claims_of_teams(world)
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
    claims = [each for each in claims_of_teams(world) if each["metadata"].get("finalizers")]
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
    claims = claims_of_teams(world)
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
    pods = [pod for pod in pods_of_teams(world) if pod["spec"].get("resourceClaims") and not is_odd(pod)]
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
    later(
        world,
        random,
        30.0,
        lambda: world.in_background(
            f"delete {name}", lambda: tenant.delete(_PODS, name, namespace_of(pod)), tries=JOB_TRIES
        ),
    )
    return f"tenant copies pod {key_of(pod)} as {name}"


def _as_tenant(world: World, pod: dict[str, Any], what: str, patch: list[dict[str, Any]]) -> None:
    tenant = world.tenants[namespace_of(pod)]

    async def write() -> None:
        await tenant.patch(_PODS, name_of(pod), patch, namespace=namespace_of(pod), kind=Patch.JSON)

    world.in_background(f"{what} of {key_of(pod)}", write)


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
