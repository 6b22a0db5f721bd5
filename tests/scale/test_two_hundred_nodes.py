"""A cluster of two hundred nodes (NODES) fills to the last GPU: the real webhook, controller, drivers and apiserver, no error anywhere.

Not part of `make test`: it takes minutes. `make scale` runs it and prints how fast it went.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter

import pytest

from fairlead.kube.client import Client
from fairlead.kube.informer import Change, Informer
from fairlead.kube.resources import PODS, RESOURCE_CLAIM_TEMPLATES, Raw, raw
from fairlead.sandbox.cluster import NodeSpec, NodeTimes
from fairlead.sandbox.controllers.manager import ManagerOptions
from fairlead.sandbox.objects import phase_of, results_of
from tests.support import tasks
from tests.support.sandbox import FOREVER, View, cluster, ledger, pod, template

NODES, GPUS = int(os.environ.get("NODES", "200")), 8
AT_ONCE = 32
# One process plays two hundred machines, each that much slower than a real one; no node may count as gone for that. That the
# drivers' sockets answer is seen from the pods: their own checks would only say how slow this process is.
PATIENT = NodeTimes(lease_s=20.0)
DRIVERS = tasks.drivers(self_check_s=1800.0, self_check_timeout_s=60.0)
MANAGER = ManagerOptions(node_grace_s=120.0)


class Progress:
    """When all pods were bound, and when they ran."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._bound: set[str] = set()
        self._running: set[str] = set()
        self.bound_s = 0.0
        self.all_run = asyncio.Event()

    def note(self, change: Change[Raw]) -> None:
        if change.new is None:
            return
        if change.new["spec"].get("nodeName") and change.key not in self._bound:
            self._bound.add(change.key)
            if len(self._bound) == self._wanted:
                self.bound_s = time.monotonic()
        if phase_of(change.new) == "Running":
            self._running.add(change.key)
            if len(self._running) == self._wanted:
                self.all_run.set()


async def _create(client: Client, count: int) -> None:
    """As a user's program would: so many at once, and no second try but what the client does by itself."""
    few = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with few:
            await client.create(raw(PODS), pod(f"pod-{number:04d}", claim="gpu", command=FOREVER))

    await asyncio.gather(*(one(number) for number in range(count)))


@pytest.mark.scale
@pytest.mark.timeout(900)
async def test_all_nodes_fill_with_a_pod_for_each_gpu(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = NODES * GPUS
    nodes = [NodeSpec(f"node-{number:03d}", "hgx-h100") for number in range(NODES)]
    began = time.monotonic()
    caplog.set_level(logging.WARNING)
    async with (
        cluster(*nodes, drivers=DRIVERS, times=PATIENT, manager=MANAGER) as made,
        made.client() as client,
        ledger(client) as devices,
    ):
        up = time.monotonic()
        await client.create(raw(RESOURCE_CLAIM_TEMPLATES), template("gpu"))
        progress = Progress(wanted)
        pods = Informer(client, raw(PODS))
        pods.subscribe(progress.note)
        watching = asyncio.create_task(pods.run())
        await pods.synced.wait()
        start = time.monotonic()
        await _create(client, wanted)
        posted = time.monotonic()
        await progress.all_run.wait()
        done = time.monotonic()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

        assert not devices.doubles
        held = Counter(
            (each["pool"], each["device"]) for claim in await View(client).claims() for each in results_of(claim)
        )
        assert len(held) == wanted
        assert set(held.values()) == {1}
        containers = [each for node in made.nodes.values() for each in node.kubelet.containers.values()]
        assert len(containers) == wanted
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert not errors, f"{len(errors)} errors, the first: {errors[0]}"
    with capsys.disabled():
        print(
            f"\n{NODES} nodes up in {up - began:.0f} s; {wanted} pods posted in {posted - start:.0f} s, bound in "
            f"{progress.bound_s - start:.0f} s ({wanted / (progress.bound_s - start):.1f} pods/s), running in "
            f"{done - start:.0f} s ({wanted / (done - start):.1f} pods/s)"
        )
