"""A tenant with the role `edit` in one namespace floods, forges, bombs and nests for MINUTES; another namespace's pods start as before.

Not part of `make test`: it takes minutes. `make hostile MINUTES=5` runs it on a cluster as `make demo` has it. Asserted: no forged write is
accepted, other pods start at most a second later than without the tenant (p99), no program ends or exceeds its memory limit, and a moment after the
tenant's namespace is gone nothing of it is left: objects, connections, files.

The apiserver, the kubelets and the attackers share one process here, so the attackers' rates are those that leave it time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead.api import names
from fairlead.kube import errors, resources
from fairlead.kube.client import Client, Patch
from fairlead.kube.informer import Change, Informer
from fairlead.kube.resources import GANGS, NAMESPACES, PODS, RESOURCE_CLAIMS, Raw, Resource, raw
from fairlead.sandbox.cluster import Cluster, NodeSpec
from fairlead.sandbox.objects import Obj, phase_of
from tests.support.sandbox import FOREVER, View, cluster, gang_of, ledger, pod, template, until

MINUTES = float(os.environ.get("MINUTES", "5"))
BASELINE_PODS = 40
TENANT, OTHERS = "red", "blue"
LIMITS_MIB = {"webhook": 512, "controller": 4096}  # of manifests/base
WAITING = 200  # pods of which no two are alike
TEMPLATES = resources.RESOURCE_CLAIM_TEMPLATES


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


# -- what the tenant does ------------------------------------------------------------------------------------------


class Tenant:
    """`answers` counts what the apiserver said; `forged` are writes that were accepted and must not be."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.answers: Counter[str] = Counter()
        self.forged: list[str] = []
        self.number = 0

    def name(self) -> str:
        self.number += 1
        return f"x-{self.number}"

    async def tries(self, what: str, write: Awaitable[object], *, forbidden: bool = False) -> bool:
        try:
            await write
        except errors.ApiError as error:
            self.answers[f"{what}: {error.status}"] += 1
            return False
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            self.answers[f"{what}: {type(error).__name__}"] += 1
            return False
        self.answers[f"{what}: accepted"] += 1
        if forbidden:
            self.forged.append(what)
        return True

    async def bombs(self) -> None:
        """Selectors that take long to compile and much memory, each time others."""
        while True:
            name = self.name()
            long = " || ".join(f"device.driver == '{name}-{number}'" for number in range(300))
            deep = "(" * 300 + "true" + ")" * 300
            wide = "[" + ",".join(str(number) for number in range(2_000)) + f"].exists(x, x == {self.number})"
            for text in (long, deep, wide):
                requests = [
                    {"name": f"r{number}", "exactly": {"deviceClassName": names.GPU_CLASS, "selectors": [
                        {"cel": {"expression": f"{text} || {number} == {each}"}} for each in range(4)]}}
                    for number in range(8)
                ]  # fmt: skip
                body = template(name, namespace=TENANT)
                body["spec"]["spec"]["devices"]["requests"] = requests
                await self.tries("bomb", create(self.client, TEMPLATES, body))
                await asyncio.sleep(0.1)

    async def nests(self) -> None:
        """Deep parameters, quantities and durations without end, objects with everything many times."""
        while True:
            deep: Any = 1
            for _ in range(400):
                deep = {"a": deep}
            body = template(
                self.name(),
                namespace=TENANT,
                config=[{"opaque": {"driver": "d.example.com", "parameters": {"a": deep}}}],
            )
            await self.tries("nest", create(self.client, TEMPLATES, body))
            body = template(self.name(), namespace=TENANT)
            exactly = body["spec"]["spec"]["devices"]["requests"][0]["exactly"]
            exactly["capacity"] = {"requests": {"memory": "1e999999999"}}
            await self.tries("quantity", create(self.client, TEMPLATES, body))
            made = pod(self.name(), claim="wide", namespace=TENANT, annotations={names.MIN_RUNTIME: "9999999999d"})
            await self.tries("duration", create(self.client, PODS, made), forbidden=True)
            made = pod(self.name(), namespace=TENANT)
            made["spec"]["containers"] = [
                {"name": f"c{n}", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}} for n in range(5_000)
            ]
            await self.tries("large", create(self.client, PODS, made), forbidden=True)
            await asyncio.sleep(0.5)

    async def forges(self) -> None:
        """What only the controller may write."""
        while True:
            for key in (names.EVICT_AT, names.EVICTION, names.TAKEN_OVER):
                made = pod(self.name(), claim="wide", namespace=TENANT, annotations={key: '{"at":0,"for":"red/x"}'})
                if await self.tries("mark", create(self.client, PODS, made)):
                    stored = await self.client.get(raw(PODS), made["metadata"]["name"], TENANT)
                    if key in stored["metadata"].get("annotations", {}):
                        self.forged.append(f"annotation {key}")
                    gate = {"spec": {"schedulingGates": None}}
                    write = self.client.patch(
                        raw(PODS), made["metadata"]["name"], gate, namespace=TENANT, kind=Patch.MERGE
                    )
                    await self.tries("gate", write, forbidden=True)
                    await self.tries(
                        "delete", self.client.delete(PODS, made["metadata"]["name"], TENANT, grace_period_s=0)
                    )
            name = self.name()
            claim = template(name, namespace=TENANT)
            claim = claim | {"kind": "ResourceClaim", "spec": claim["spec"]["spec"]}
            if await self.tries("claim", create(self.client, RESOURCE_CLAIMS, claim)):
                result = {"request": "gpu", "driver": names.DRIVER, "pool": "n0", "device": "gpu-0"}
                status = {"status": {"allocation": {"devices": {"results": [result]}}}}
                write = self.client.patch(
                    raw(RESOURCE_CLAIMS), name, status, namespace=TENANT, subresource="status", kind=Patch.MERGE
                )
                await self.tries("allocation", write, forbidden=True)
                await self.tries("delete", self.client.delete(RESOURCE_CLAIMS, name, TENANT))
            await asyncio.sleep(0.2)

    async def waits(self) -> None:
        """Pods that never fit, of which no two are alike; they come and go."""
        while True:
            made = [self.name() for _ in range(WAITING)]
            for number, name in enumerate(made):
                body = pod(name, claim="wide", namespace=TENANT, annotations=gang_of(name, 1), command=FOREVER)
                body["spec"]["containers"][0]["resources"]["requests"] = {"cpu": f"{1_000 + number}m"}
                body["spec"]["terminationGracePeriodSeconds"] = 500
                await self.tries("unlike", create(self.client, PODS, body))
                await asyncio.sleep(0.02)
            await asyncio.sleep(10)
            for name in made:
                await self.tries("delete", self.client.delete(PODS, name, TENANT))
                await asyncio.sleep(0.02)

    async def floods(self, host: str, port: int) -> None:
        """The webhook's port, without a credential: connections that say nothing, half handshakes, idle ones, and large bodies."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
        open_now: list[asyncio.StreamWriter] = []

        async def once(number: int) -> None:
            secure = number % 4 > 1
            try:
                async with asyncio.timeout(5):
                    _, writer = await asyncio.open_connection(host, port, ssl=context if secure else None)
                    open_now.append(writer)
                    if number % 4 == 1:
                        writer.write(hello)
                    elif number % 4 == 3:
                        writer.write(
                            b"POST /validate HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 8000000\r\n\r\n"
                        )
                        writer.write(b" " * 500_000)
                self.answers["connection: made"] += 1
            except (TimeoutError, OSError, ssl.SSLError):
                self.answers["connection: refused"] += 1

        number = 0
        try:
            while True:
                await asyncio.gather(*(once(number + each) for each in range(8)))
                number += 8
                while len(open_now) > 400:
                    open_now.pop(0).transport.abort()
                await asyncio.sleep(0.2)
        finally:
            for writer in open_now:
                writer.transport.abort()


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


async def prepare(made: Cluster) -> None:
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "mallory", "namespace": TENANT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "mallory"}],
    }
    spaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in (TENANT, OTHERS)]
    wide = template("wide", count=64, namespace=TENANT)  # no node has as many
    await made.apply([*spaces, template("one", namespace=OTHERS), wide, binding])


@pytest.mark.scale
@pytest.mark.timeout(7200)
async def test_a_hostile_tenant_gets_nothing_and_stops_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = tuple(NodeSpec(f"n{number}", "hgx-h100") for number in range(2))
    async with (
        cluster(*nodes) as made,
        made.client() as client,
        made.client("mallory") as hostile,
        ledger(client) as seen,
    ):
        await prepare(made)
        starts, view, tenant = Starts(client), View(client), Tenant(hostile)
        programs: dict[str, Any] = {"webhook": made.webhook, "controller": made.controller}
        pids = {name: program.pid for name, program in programs.items()}
        async with starts.running():
            before = [await starts.one() for _ in range(BASELINE_PODS)]
            open_before = descriptors(pids["webhook"])
            attacks: list[Callable[[], Awaitable[None]]] = [tenant.bombs, tenant.nests, tenant.forges, tenant.waits]
            host, port = await webhook_address(made)
            tasks = [asyncio.ensure_future(each()) for each in attacks]
            tasks.append(asyncio.ensure_future(tenant.floods(host, port)))
            ends, during = time.monotonic() + 60 * MINUTES, []
            while time.monotonic() < ends:
                during.append(await starts.one())
                await asyncio.sleep(0.5)
                ended = [task for task in tasks if task.done()]
                assert not ended, [task.exception() for task in ended]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        peaks = {name: peak_mib(pid) for name, pid in pids.items()}
        with capsys.disabled():
            print(f"\nbefore: median {sorted(before)[len(before) // 2]:.2f} s, p99 {p99(before):.2f} s")
            print(
                f"meanwhile: {len(during)} pods, median {sorted(during)[len(during) // 2]:.2f} s, p99 {p99(during):.2f} s"
            )
            print(f"peaks: {', '.join(f'{name} {mib:.0f} MiB' for name, mib in peaks.items())}")
            print(json.dumps(dict(sorted(tenant.answers.items())), indent=1))
        assert tenant.forged == []
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
