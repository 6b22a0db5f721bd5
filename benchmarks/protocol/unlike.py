"""Thousands of pods of which no two are alike wait for a full cluster: how late the leader's lease is renewed meanwhile.

The pods differ by a thousandth of a core, and lie in the store before the controller sees the first. `lease-late-s` is the longest
time between two renewals beyond the interval that the leader means to keep: what decisions, reports and all else hold it up for.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.protocol import objects
from benchmarks.protocol.cluster import apiserver, idle, until
from fairlead.api import names
from fairlead.kube.resources import PODS, RESOURCE_CLAIMS, raw
from fairlead.sandbox.apiserver.assembly import put
from fairlead.sandbox.apiserver.state import Completed

RENEWALS = 8  # in the duration of a lease
FILL_S = 300.0


@dataclass(frozen=True, kw_only=True)
class Unlike:
    nodes: int
    pods: int
    lease_s: float
    seconds: float
    bar_s: float | None


class _Renewals:
    """When the lease was renewed, and how many claims were allocated."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self.allocated = 0

    def see(self, request: Completed) -> None:
        if request.code < 400 and request.verb in {"patch", "update", "apply"}:
            if request.resource == "leases":
                self.at.append(time.monotonic())
            self.allocated += (request.resource, request.subresource) == ("resourceclaims", "status")


async def unlike_figures(wanted: Unlike) -> list[dict[str, Any]]:
    async with apiserver() as world:
        state, seen = world.server.state, _Renewals()
        objects.add_nodes(state, wanted.nodes)
        state.on_completed = seen.see
        controller = await world.start("controller", f"--lease-duration={wanted.lease_s:g}")
        for number in range(wanted.nodes):
            metadata = {"name": f"full-{number}", "namespace": objects.NAMESPACE}
            claim = {"metadata": metadata, "spec": objects.claim_spec(objects.GPUS)}
            await world.admin.create(raw(RESOURCE_CLAIMS), claim)
            await world.admin.create(raw(PODS), {"metadata": metadata, "spec": _waiting(metadata["name"])})
        await until(lambda: seen.allocated >= wanted.nodes, controller, "the cluster is full", FILL_S)
        await idle(controller)
        seen.at.clear()
        for number in range(wanted.pods):
            name = f"unlike-{number}"
            metadata = {"name": name, "namespace": objects.NAMESPACE}
            put(
                state,
                objects.RESOURCE,
                "v1",
                "resourceclaims",
                {"metadata": dict(metadata), "spec": objects.claim_spec()},
            )
            spec = _waiting(name)
            spec["containers"][0].setdefault("resources", {})["requests"] = {"cpu": f"{1_000 + number}m"}
            put(state, "", "v1", "pods", {"metadata": dict(metadata), "spec": spec, "status": {"phase": "Pending"}})
            if number % 100 == 0:
                await asyncio.sleep(0)  # the apiserver answers from the same loop
        await asyncio.sleep(wanted.seconds)
        gaps = [later - earlier for earlier, later in zip(seen.at, seen.at[1:], strict=False)]
    late_s = max(gaps, default=wanted.seconds) - wanted.lease_s / RENEWALS
    figure = f"protocol/lease-late-s/{wanted.pods}-unlike"
    return [{"figure": figure, "value": round(late_s, 3), "unit": "s", "bar": wanted.bar_s, "renewals": len(gaps)}]


def _waiting(claim: str) -> dict[str, Any]:
    return {**objects.pod_spec(claim=claim), "schedulingGates": [{"name": names.ADMISSION_GATE}]}
