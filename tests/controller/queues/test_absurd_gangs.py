"""A tenant writes every field of a Gang, to absurd values, by each door: no other namespace, queue or administrator notices.

On the sandbox with the shipped roles and policies, as a user with all rights in the namespace. Each write may be
refused or accepted; asserted is what follows of it.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

from fairlead.api import names
from fairlead.kube import errors, resources
from fairlead.kube.client import Client, Patch
from fairlead.kube.resources import GANGS, QUEUES, raw
from tests.controller.conftest import NAMESPACE, Bench
from tests.support.teams import OTHER, standing, teams
from tests.support.tenants import OWNER, bind_tenants

Json = dict[str, Any]
FAR = "2099-01-01T00:00:00Z"
HOLD = {"by": "admin", "since": "2026-11-24T08:00:00Z", "reason": "no more today"}


def record(owner: str) -> Json:
    """An eviction that never was: a place of all devices of both nodes, long ago and for long."""
    place: list[Json] = [
        {"node": node, "devices": [f"{names.DRIVER}/{node}/gpu-{number}" for number in range(8)], "requests": {}}
        for node in ("h1", "h2")
    ]
    refused = [{"node": "h2", "until": FAR, "times": 32, "why": "x"}]
    return {
        "at": FAR, "since": "1970-01-01T00:00:00Z", "what": "moved", "why": "x", "until": FAR, "owner": owner, "maker": "Job",
        "place": place, "held": FAR, "refused": refused,
    }  # fmt: skip


async def absurd(tenant: Client, name: str, owner: str) -> None:
    """All that can be written of a Gang, by CREATE, UPDATE, the patches and server-side apply, and of its status."""
    spec = {
        "size": 1, "queue": OTHER, "topology": "required:kubernetes.io/hostname", "subgroupSize": 99_999,
        "subgroupTopology": "required:kubernetes.io/hostname", "minRuntime": "99999d",
    }  # fmt: skip
    for at in (FAR, "2026-01-01T00:00:00Z"):
        forged = {**record(owner), "at": at}
        notes = {"fairlead.dev/evicted": json.dumps(forged), names.EVICT_AT: FAR, names.RELEASED_AT: FAR}
        condition = {
            "type": "AwaitingNodes", "status": "True", "reason": "x", "lastTransitionTime": "1970-01-01T00:00:00Z",
        }  # fmt: skip
        status = {
            "lastEviction": forged, "queue": OTHER, "phase": "Waiting", "position": 1, "reservedNodes": ["h1", "h2"],
            "conditions": [condition | {"type": kind} for kind in ("AwaitingNodes", "Idle", "Reserved")],
        }  # fmt: skip
        meta: Json = {"name": name, "namespace": NAMESPACE}
        marked = {**meta, "annotations": notes, "labels": {names.QUEUE: OTHER}}
        hold = {"reason": "mine", "evict": False}
        bodies: tuple[Json, ...] = (
            {"metadata": marked, "spec": {**spec, "hold": hold}, "status": status},
            {"metadata": marked, "spec": spec},
            {"metadata": marked, "spec": {"size": 1}},
            {"metadata": meta, "spec": {**spec}},
            {"metadata": meta, "spec": {"size": 1, "hold": hold}, "status": status},
        )
        for body in bodies:
            with contextlib.suppress(errors.ApiError):
                await tenant.create(raw(GANGS), body)
            for kind in (Patch.MERGE, Patch.APPLY):
                more: Json = {"field_manager": "x", "force": True} if kind is Patch.APPLY else {}
                for subresource in (None, "status"):
                    with contextlib.suppress(errors.ApiError):
                        await tenant.patch(
                            raw(GANGS), name, body, namespace=NAMESPACE, kind=kind, subresource=subresource, **more
                        )
        with contextlib.suppress(errors.ApiError):
            await tenant.patch(raw(GANGS), name, {"spec": {"hold": None}}, namespace=NAMESPACE)


@pytest.mark.core
async def test_absurd_gangs_lock_nothing_pass_no_hold_and_jump_no_queue(bench: Bench) -> None:
    await teams(bench)
    await bind_tenants(bench.client)
    async with bench.cluster.client(OWNER) as tenant:
        await absurd(tenant, "ghost", "u")  # without pods
        await absurd(tenant, "greedy", "u")
        stored = {"spec": {"queue": OTHER, "minRuntime": "99999d"}}  # from before there was a policy
        async with bench.cluster.client(names.CONTROLLER_USER) as unhindered:
            await unhindered.patch(raw(GANGS), "greedy", stored, namespace=NAMESPACE)
        await bench.client.patch(QUEUES, NAMESPACE, {"spec": {"hold": HOLD}})
        await bench.pod("greedy", template="eight")
        async with bench.controller():
            for name in ("first", "second"):
                await bench.pod(name, template="eight", namespace=OTHER)
            await bench.until(lambda: standing(bench, OTHER, "first") == "Running", "the other namespace's pod")
            await absurd(tenant, "greedy", "u")
            await bench.until(lambda: standing(bench, OTHER, "second") == "Running", "and the second, that borrows")
            await bench.until(lambda: bench.status("greedy").get("reason") == "OnHold", "the tenant's waits")
            assert bench.gated(["greedy"])
            (own,) = [each for each in bench.gangs.all() if each["metadata"]["name"] == "greedy"]
            assert own["spec"].get("queue") is None
            assert own["spec"].get("minRuntime") is None
            assert own["status"]["queue"] == NAMESPACE
            assert "lastEviction" not in own["status"]
            assert own["status"]["waitSeconds"] < 3600, "it is as old as its pod"
        async with bench.controller():  # another leader reads the same
            await bench.client.delete(resources.PODS, "first", OTHER, grace_period_s=0)
            await bench.pod("third", template="eight", namespace=OTHER)
            await bench.until(lambda: standing(bench, OTHER, "third") == "Running", "after a change of leaders")
            assert bench.gated(["greedy"])
