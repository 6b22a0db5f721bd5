"""Tenants that attack others through what they may write, and what they may not: Gangs, holds, owners, claims that cannot be computed.

What is refused by right must be refused at every moment, also while apiservers come and go: one write that is accepted is a violation.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from fairlead.api import names
from fairlead.kube import errors
from fairlead.kube.client import Client, Patch
from fairlead.kube.resources import GANGS, PODS, RESOURCE_CLAIMS, raw
from fairlead.sandbox.objects import key_of, name_of, namespace_of, uid_of
from tests.chaos.actions.registry import ODD, action, claims_of_teams, later
from tests.chaos.world import JOB_TRIES, TEAMS, World

_GANGS, _PODS, _CLAIMS = raw(GANGS), raw(PODS), raw(RESOURCE_CLAIMS)
FAR = "2099-01-01T00:00:00Z"
ESCAPES = "\x1b]0;owned\x07\x1b[2J"

Json = dict[str, Any]


@action(2)
def forge_gang(world: World, random: Random) -> str | None:
    """A Gang that holds every device until 2099, is the oldest, of another queue, or that the garbage collector may delete."""
    team = random.choice(TEAMS)
    gangs = [gang for gang in world.objects("fairlead.dev", "gangs") if namespace_of(gang) == team]
    what, change, subresource = random.choice(_forged(world, random))
    tenant = world.tenants[team]
    if gangs and (subresource or random.random() < 0.7):
        name = name_of(random.choice(gangs))

        async def write() -> None:
            await tenant.patch(_GANGS, name, change, namespace=team, subresource=subresource, kind=Patch.MERGE)
    else:
        name = f"forged-{random.getrandbits(32):08x}"
        if subresource:
            return None
        body = {"metadata": {"name": name, **change.get("metadata", {})}, "spec": {"size": 1, **change.get("spec", {})}}

        async def write() -> None:
            await tenant.create(_GANGS, body, namespace=team)

    refused(world, f"{what} of gang {team}/{name}", write)
    return f"tenant of {team} writes {what} of gang {name}"


def _forged(world: World, random: Random) -> list[tuple[str, Json, str | None]]:
    """Each with what it is, the change, and the subresource."""
    place = [
        {"node": node, "devices": [f"{names.DRIVER}/{node}/gpu-{n}" for n in range(8)]} for node in world.cluster.nodes
    ]
    jobs = world.objects("batch", "jobs")
    owner = uid_of(random.choice(jobs)) if jobs else "00000000-0000-0000-0000-000000000000"  # another namespace's, too
    record = {
        "at": FAR, "since": "1970-01-01T00:00:00Z", "what": "moved", "why": ESCAPES, "until": FAR, "held": FAR, "owner": owner,
        "maker": "Job", "place": place,
    }  # fmt: skip
    absent = {"apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": owner}
    return [
        ("its last eviction", {"metadata": {"annotations": {"fairlead.dev/evicted": json.dumps(record)}}}, None),
        ("a mark", {"metadata": {"annotations": {names.EVICTION: "{}", names.EVICT_AT: FAR}}}, None),
        ("an absent owner", {"metadata": {"ownerReferences": [absent]}}, None),
        ("a finalizer", {"metadata": {"finalizers": ["example.com/never"]}}, None),
        ("its queue", {"spec": {"queue": random.choice((*TEAMS, "unknown"))}}, None),
        ("its size", {"spec": {"size": 99_999}}, None),
        ("its min-runtime", {"spec": {"minRuntime": "99999d"}}, None),
        ("its status", {"status": {"lastEviction": record, "message": ESCAPES}}, "status"),
    ]


@action(1)
def attack_hold(world: World, random: Random) -> str | None:
    """An administrator holds a gang; its tenant tries every way to be rid of that."""
    team, name = random.choice(TEAMS), f"kept-{random.getrandbits(32):08x}"
    tenant, made, released = world.tenants[team], False, False
    absent = {"apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": "11111111-1111-1111-1111-111111111111"}
    changes: list[Json] = [
        {"spec": {"hold": None}},
        {"spec": {"hold": {"protected": False}}},
        {"metadata": {"ownerReferences": [absent]}},
        {"metadata": {"finalizers": ["example.com/never"]}},
    ]
    random.shuffle(changes)

    async def hold() -> None:
        nonlocal made
        body = {"metadata": {"name": name}, "spec": {"size": 1, "hold": {"protected": True, "reason": "by the book"}}}
        await world.client.create(_GANGS, body, namespace=team)
        made = True
        for change in changes:
            await _must_fail(world, f"{change} of held gang {team}/{name}", _patching(tenant, team, name, change))
        await _must_fail(world, f"deletion of held gang {team}/{name}", lambda: tenant.delete(_GANGS, name, team))

    async def release() -> None:
        nonlocal released
        # A deletion that was sent once may be carried out at any time after, also behind a creation that came late.
        first, released = not released, True
        if (
            made
            and first
            and (team, name)
            not in {(namespace_of(each), name_of(each)) for each in world.objects("fairlead.dev", "gangs")}
        ):
            world.invariants.fail(f"gang {team}/{name} was on a protected hold and is gone")
        await world.client.delete(_GANGS, name, team)

    world.in_background(f"hold {team}/{name}", hold)
    _undo_later(world, random, f"release {team}/{name}", release)
    return f"tenant of {team} attacks the hold of gang {name}"


def _patching(tenant: Client, team: str, name: str, change: Json) -> Callable[[], Awaitable[object]]:
    return lambda: tenant.patch(_GANGS, name, change, namespace=team, kind=Patch.MERGE)


@action(1)
def forge_usage(world: World, random: Random) -> str | None:
    """What drivers say of a claim's devices, of a pool and a device that are another's or absurd."""
    claims = claims_of_teams(world)
    if not claims:
        return None
    claim = random.choice(claims)
    pool, device = random.choice((("n1", "gpu-0"), ("n99", "gpu-7"), (ESCAPES, "../../etc"), ("n0", "x" * 300)))
    said = {"driver": names.DRIVER, "pool": pool, "device": device, "data": {"busy": 1e308, "at": FAR}}
    tenant = world.tenants[namespace_of(claim)]
    refused(
        world,
        f"status.devices of claim {key_of(claim)}",
        lambda: tenant.patch(
            _CLAIMS,
            name_of(claim),
            {"status": {"devices": [said]}},
            namespace=namespace_of(claim),
            subresource="status",
        ),
    )
    return f"tenant writes what drivers say of claim {key_of(claim)}"


@action(1)
def odd_claim(world: World, random: Random) -> str | None:
    """A pod that waits for a claim which is hard to compute (dicts in its spec, escapes in a selector's message, absurd amounts, 32 alternatives
    that only a search tells apart), or is given devices that nobody binds it to.
    """
    team, name = random.choice(TEAMS), f"{ODD}{random.getrandbits(32):08x}"
    tenant = world.tenants[team]
    parameters = {"apiVersion": f"{names.DRIVER}/v1alpha1", "kind": "GpuConfig", "sharing": {"strategy": "TimeSlicing"}}
    selectors = [{"cel": {"expression": f"device.attributes[{json.dumps(ESCAPES)}].x == 1 || 1 / 0 > 0"}}]
    exactly: Json = random.choice(
        (
            {"count": 1},
            {"count": 1, "selectors": selectors},
            {"count": 1, "capacity": {"requests": {"memory": "9223372036854775807"}}},
            {"allocationMode": "All"},
        )
    )
    asks: list[Json] = [{"name": "gpus", "exactly": {"deviceClassName": names.GPU_CLASS, **exactly}}]
    if random.random() < 0.3:
        alternatives = [{"name": f"a{n}", "deviceClassName": names.GPU_CLASS, "count": 8} for n in range(8)]
        asks = [{"name": f"gpus-{n}", "firstAvailable": alternatives} for n in range(4)]
    claim: Json = {
        "metadata": {"name": name},
        "spec": {
            "devices": {
                "requests": asks,
                "config": [
                    {"requests": [asks[0]["name"]], "opaque": {"driver": names.DRIVER, "parameters": parameters}}
                ],
            }
        },
    }
    pod: Json = {
        "metadata": {"name": name, "annotations": {names.QUEUE: random.choice(("", ESCAPES, "unknown", team))}},
        "spec": {
            "restartPolicy": "Never",
            "schedulerName": random.choice(("default-scheduler", "default-scheduler", "nobody")),
            "tolerations": [{"key": name, "operator": "Exists"}],
            "resourceClaims": [{"name": "gpus", "resourceClaimName": name}],
            "containers": [
                {
                    "name": "worker",
                    "image": "busybox:1.37",
                    "command": ["sleep", "1"],
                    "resources": {"claims": [{"name": "gpus"}]},
                }
            ],
        },
    }

    async def ask() -> None:
        await tenant.create(_CLAIMS, claim, namespace=team)
        await tenant.create(_PODS, pod, namespace=team)

    async def withdraw() -> None:
        for resource in (_PODS, _CLAIMS):
            try:
                await tenant.delete(resource, name, team)
            except errors.NotFound:
                continue

    world.in_background(f"ask {team}/{name}", ask)
    _undo_later(world, random, f"withdraw {team}/{name}", withdraw)
    return f"tenant of {team} asks for odd claim {name}"


def _undo_later(world: World, random: Random, what: str, undo: Callable[[], Awaitable[object]]) -> None:
    """Twice: a request whose answer was lost may arrive after the first."""
    for mean_s in (30.0, 120.0):
        later(world, random, mean_s, lambda: world.in_background(what, undo, tries=JOB_TRIES))


def refused(world: World, what: str, write: Callable[[], Awaitable[object]]) -> None:
    """A write that no moment may let through."""
    world.in_background(what, lambda: _must_fail(world, what, write))


async def _must_fail(world: World, what: str, write: Callable[[], Awaitable[object]]) -> None:
    try:
        await write()
    except errors.ApiError:
        return
    world.invariants.fail(f"a tenant wrote {what}")
