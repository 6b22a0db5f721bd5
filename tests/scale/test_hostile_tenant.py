"""A tenant with the role `edit` in one namespace floods, forges, bombs and nests for MINUTES; another namespace's pods start as before.

Not part of `make test`: it takes minutes. `make hostile MINUTES=1` runs it on a cluster as `make demo` has it. Asserted: no forged write is
accepted, other pods start at most a second later than without the tenant (p99), no program ends or exceeds its memory limit, and a moment after the
tenant's namespace is gone nothing of it is left: objects, connections, files. Beside pods that are hard to refuse, with the source at hand, they start
at most two seconds later.

The tenant is a process of its own (tests/scale/tenant.py). The apiserver and the kubelets share one here, which handles a request at a time: the
tenant's rates are those that leave others half of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from fairlead.kube import resources
from fairlead.kube.client import Client
from fairlead.kube.informer import Change, Informer
from fairlead.kube.resources import GANGS, NAMESPACES, PODS, RESOURCE_CLAIMS, Raw, Resource, raw
from fairlead.sandbox.cluster import Cluster, NodeSpec
from fairlead.sandbox.install.programs import Process
from fairlead.sandbox.objects import Obj, phase_of
from tests.support.engine.hard_claims import too_many, uncolourable
from tests.support.sandbox import FOREVER, View, cluster, ledger, pod, template, until

MINUTES = float(os.environ.get("MINUTES", "1"))
BASELINE_PODS = 40
TENANT, OTHERS = "red", "blue"
HARD_PODS = 230  # each with a claim that takes every way to refuse, and unlike all others
HARD_S = 2.0  # later than without them
LIMITS_MIB = {"webhook": 512, "controller": 4096}  # of manifests/base


class Starts:
    """How long pods of a namespace take from their creation to Running, by a watch."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: dict[str, asyncio.Event] = {}
        self._informer: Informer[Raw] = Informer(client, raw(PODS), namespace=OTHERS)
        self._informer.subscribe(self._note)
        self.number = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._informer.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _note(self, change: Change[Raw]) -> None:
        name = change.object["metadata"]["name"]
        if change.new is not None and phase_of(change.new) in {"Running", "Succeeded"} and name in self._waiting:
            self._waiting[name].set()

    async def one(self) -> float:
        """Seconds; the pod is deleted afterwards."""
        self.number += 1
        name = f"p-{self.number}"
        running = self._waiting[name] = asyncio.Event()
        began = time.monotonic()
        await create(self._client, PODS, pod(name, claim="one", command=FOREVER, namespace=OTHERS))
        async with asyncio.timeout(60):
            await running.wait()
        took = time.monotonic() - began
        del self._waiting[name]
        await self._client.delete(PODS, name, OTHERS, grace_period_s=0)
        return took


async def create(client: Client, resource: Resource[Any], obj: Obj) -> Raw:
    return await client.create(raw(resource), obj)


def p99(seconds: list[float]) -> float:
    return sorted(seconds)[min(len(seconds) - 1, int(len(seconds) * 0.99))]


# -- what is seen of the programs ----------------------------------------------------------------------------------


def peak_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"process {pid} has ended")


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def webhook_address(made: Cluster) -> tuple[str, int]:
    found = await made.admin.get(raw(resources.VALIDATING_WEBHOOKS), "fairlead")
    url = found["webhooks"][0]["clientConfig"]["url"]
    host, _, port = url.removeprefix("https://").partition("/")[0].partition(":")
    return host, int(port)


@contextlib.asynccontextmanager
async def attacking(made: Cluster) -> AsyncIterator[asyncio.subprocess.Process]:
    """The tenant's process, killed at the end if it is still there."""
    host, port = await webhook_address(made)
    command = ("-m", "tests.scale.tenant", str(made.kubeconfig("mallory")), TENANT, host, str(port))
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def prepare(made: Cluster) -> None:
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "mallory", "namespace": TENANT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "mallory"}],
    }
    spaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in (TENANT, OTHERS)]
    wide = template("wide", count=16, namespace=TENANT)  # no node has as many
    await made.apply([*spaces, template("one", namespace=OTHERS), wide, binding])


@pytest.mark.scale
@pytest.mark.timeout(7200)
async def test_a_hostile_tenant_gets_nothing_and_stops_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = tuple(NodeSpec(f"n{number}", "hgx-h100") for number in range(2))
    async with (
        cluster(*nodes) as made,
        made.client() as client,
        ledger(client) as seen,
    ):
        await prepare(made)
        starts, view = Starts(client), View(client)
        programs: dict[str, Any] = {"webhook": made.webhook, "controller": made.controller}
        pids = {name: program.pid for name, program in programs.items()}
        async with starts.running():
            before = [await starts.one() for _ in range(BASELINE_PODS)]
            open_before = descriptors(pids["webhook"])
            during: list[float] = []
            async with attacking(made) as tenant:
                ends = time.monotonic() + 60 * MINUTES
                while time.monotonic() < ends:
                    during.append(await starts.one())
                    await asyncio.sleep(0.5)
                    assert tenant.returncode is None, "the tenant's process ended early"
                tenant.terminate()
                printed = json.loads((await tenant.communicate())[0])
        peaks = {name: peak_mib(pid) for name, pid in pids.items()}
        with capsys.disabled():
            print(f"\nbefore: median {sorted(before)[len(before) // 2]:.2f} s, p99 {p99(before):.2f} s")
            print(
                f"meanwhile: {len(during)} pods, median {sorted(during)[len(during) // 2]:.2f} s, p99 {p99(during):.2f} s"
            )
            print(f"peaks: {', '.join(f'{name} {mib:.0f} MiB' for name, mib in peaks.items())}")
            print(json.dumps(printed["answers"], indent=1))
        assert printed["forged"] == []
        assert seen.doubles == []
        assert {name: program.pid for name, program in programs.items() if not program.exited.is_set()} == pids
        assert {name: mib for name, mib in peaks.items() if mib > LIMITS_MIB[name]} == {}
        assert p99(during) <= p99(before) + 1.0
        await client.delete(NAMESPACES, TENANT)
        await view.gone(NAMESPACES, TENANT)
        for resource in (PODS, RESOURCE_CLAIMS, GANGS):
            assert await view.all(resource, TENANT) == []
        await view.no_claims()
        await until(lambda: descriptors(pids["webhook"]) <= open_before + 8, what="the webhook's connections are gone")
        await until(lambda: not any(list(node.leftovers()) for node in made.nodes.values()), what="nodes are clean")


@pytest.mark.scale
@pytest.mark.timeout(1800)
async def test_pods_that_are_hard_to_refuse_delay_no_start_of_others(capsys: pytest.CaptureFixture[str]) -> None:
    """The figure with a bar: how much later, at worst, another namespace's pod starts beside HARD_PODS of a tenant."""
    nodes = tuple(NodeSpec(f"n{number}", "hgx-h100") for number in range(2))
    async with cluster(*nodes) as made, made.client() as client:
        await prepare(made)
        await made.apply([claim_template("many", too_many()), claim_template("colours", uncolourable())])
        starts = Starts(client)
        async with starts.running():
            before = [await starts.one() for _ in range(BASELINE_PODS)]
            for number in range(HARD_PODS):
                body = pod(f"hard-{number}", claim=("many", "colours")[number % 2], command=FOREVER, namespace=TENANT)
                body["spec"]["tolerations"] = [{"key": f"k{number}", "operator": "Exists"}]
                await create(client, PODS, body)
            during = [await starts.one() for _ in range(BASELINE_PODS)]
        assert isinstance(made.controller, Process)
        assert not made.controller.exited.is_set()
        with capsys.disabled():
            print(
                f"\nbefore: p99 {p99(before):.2f} s; beside {HARD_PODS} pods: median {median(during):.2f} s, p99 {p99(during):.2f} s"
            )
        assert p99(during) <= p99(before) + HARD_S


def claim_template(name: str, spec: Obj) -> Obj:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": TENANT},
        "spec": {"spec": spec},
    }
