"""The leading controller ends, by SIGTERM or by SIGKILL: seconds until the other one writes its first decision.

A decision is an allocation: a write of a claim's status by the other replica. Each probe is one gated pod with a claim of
its own, so nothing but the apiserver is needed. The standby is idle when the leader ends. Slices of the largest size have
every MIG placement, as large clusters have.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import dataclass, field
from typing import Any

from benchmarks.protocol import objects
from benchmarks.protocol.cluster import REPLICA, World, apiserver, idle, until
from fairlead.api import names
from fairlead.kube.resources import PODS, RESOURCE_CLAIMS, raw
from fairlead.sandbox.apiserver.state import Completed
from fairlead.sandbox.install.programs import Process

PROBE_S = 0.1
TIMEOUT_S = 300.0


@dataclass(frozen=True, kw_only=True)
class Failover:
    """`bar_s` is added to the lease's duration."""

    nodes: int
    lease_s: float
    mig: bool
    bar_s: float | None
    quiet_s: float = 2.0

    @property
    def flag(self) -> str:
        return f"--lease-duration={self.lease_s:g}"


@dataclass
class _Decisions:
    """When each replica last wrote a claim's status; and what the traffic counter would have seen."""

    first: dict[str, float] = field(default_factory=dict)

    def see(self, request: Completed) -> None:
        written = request.verb in {"patch", "update", "apply"} and request.code < 400
        if written and (request.resource, request.subresource) == ("resourceclaims", "status"):
            replica = (request.user.extra.get(REPLICA) or ("",))[0]
            self.first.setdefault(replica, time.monotonic())


async def failover_figures(wanted: Failover) -> list[dict[str, Any]]:
    handover_s, failover_s = await failover(wanted)
    kind = "MIG-capable GPUs" if wanted.mig else "GPUs"
    size = f"{wanted.nodes} nodes x {objects.GPUS} {kind}"
    more = {"lease_duration_s": wanted.lease_s, "size": size}
    bar = None if wanted.bar_s is None else wanted.lease_s + wanted.bar_s
    failed = {"figure": f"protocol/failover-s/{wanted.nodes}", "value": round(failover_s, 3), "unit": "s", "bar": bar}
    handed = {"figure": f"protocol/handover-s/{wanted.nodes}", "value": round(handover_s, 3), "unit": "s"}
    bar = None if wanted.bar_s is None else 1.0
    return [{**failed, "fixed": wanted.lease_s, **more}, {**handed, "bar": bar, **more}]


async def failover(wanted: Failover) -> tuple[float, float]:
    """Seconds of a hand-over and of a failover, one after the other on the same cluster."""
    async with apiserver() as world:
        objects.add_nodes(world.server.state, wanted.nodes, mig=wanted.mig)
        first = await world.start("controller", wanted.flag, name="first")
        second = await _standby(world, wanted, first, "second")
        handover_s = await _ended(world, first, second, signal.SIGTERM)
        third = await _standby(world, wanted, second, "third")
        return handover_s, await _ended(world, second, third, signal.SIGKILL)


async def _standby(world: World, wanted: Failover, leader: Process, name: str) -> Process:
    started = await world.start("controller", wanted.flag, name=name, wait=False)
    await until(lambda: started.pid is not None, leader, f"{name} is started", 30)
    await asyncio.sleep(wanted.quiet_s)
    for each in (started, leader):
        await idle(each, window_s=wanted.quiet_s)
    return started


async def _ended(world: World, leader: Process, standby: Process, number: signal.Signals) -> float:
    """From the signal to the standby's first decision. A pod comes every PROBE_S, as the leader may still decide some."""
    decisions = _Decisions()
    world.server.state.on_completed = decisions.see
    assert leader.pid is not None
    os.kill(leader.pid, number)
    began = time.monotonic()
    probing = asyncio.create_task(_probe(world, standby.name, leader))
    try:
        await until(lambda: standby.name in decisions.first, standby, f"{standby.name} decides", TIMEOUT_S)
    finally:
        probing.cancel()
        await asyncio.gather(probing, return_exceptions=True)
    return decisions.first[standby.name] - began


async def _probe(world: World, name: str, leader: Process) -> None:
    number = 0
    while True:
        last = leader.exited.is_set()
        await _ask(world, f"probe-{name}-{number}")
        number += 1
        if last:  # this one only the standby can decide
            return
        await asyncio.sleep(PROBE_S)


async def _ask(world: World, name: str) -> None:
    metadata = {"name": name, "namespace": objects.NAMESPACE}
    await world.admin.create(raw(RESOURCE_CLAIMS), {"metadata": metadata, "spec": objects.claim_spec()})
    spec = {**objects.pod_spec(claim=name), "schedulingGates": [{"name": names.ADMISSION_GATE}]}
    await world.admin.create(raw(PODS), {"metadata": metadata, "spec": spec})
