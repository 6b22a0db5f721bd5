"""What a hostile tenant does, in a process of its own, until SIGTERM: `python -m tests.scale.tenant KUBECONFIG NAMESPACE HOST PORT`.

KUBECONFIG is of a user with the role `edit` in NAMESPACE, which has a ResourceClaimTemplate `wide` that no node satisfies; HOST and PORT are the
webhook's. Printed at the end, as JSON: `answers`, how often the apiserver gave each answer, and `forged`, the writes that were accepted and must
not be. The rates are low because the sandbox's apiserver handles one request at a time and has no priority and fairness.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import ssl
import sys
from collections import Counter
from collections.abc import Awaitable
from typing import Any

import aiohttp

from fairlead.api import names
from fairlead.kube import errors, resources
from fairlead.kube.client import Client, Patch
from fairlead.kube.resources import GANGS, PODS, RESOURCE_CLAIMS, Raw, Resource, raw
from fairlead.sandbox.objects import Obj
from tests.support.sandbox import FOREVER, gang_of, pod, template

WAITING = 200  # pods of which no two are alike
CONNECTIONS = 400
LARGE = 2_000  # containers of one pod: twice what is allowed
FAR = "2099-01-01T00:00:00Z"
TEMPLATES = resources.RESOURCE_CLAIM_TEMPLATES


async def create(client: Client, resource: Resource[Any], obj: Obj) -> Raw:
    return await client.create(raw(resource), obj)


class Tenant:
    """`answers` counts what the apiserver said; `forged` are writes that were accepted and must not be."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
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
                body = template(name, namespace=self.namespace)
                body["spec"]["spec"]["devices"]["requests"] = requests
                await self.tries("bomb", create(self.client, TEMPLATES, body))
                await asyncio.sleep(1)

    async def nests(self) -> None:
        """Deep parameters, quantities and durations without end, objects with everything many times."""
        while True:
            deep: Any = 1
            for _ in range(400):
                deep = {"a": deep}
            body = template(
                self.name(),
                namespace=self.namespace,
                config=[{"opaque": {"driver": "d.example.com", "parameters": {"a": deep}}}],
            )
            await self.tries("nest", create(self.client, TEMPLATES, body))
            body = template(self.name(), namespace=self.namespace)
            exactly = body["spec"]["spec"]["devices"]["requests"][0]["exactly"]
            exactly["capacity"] = {"requests": {"memory": "1e999999999"}}
            await self.tries("quantity", create(self.client, TEMPLATES, body))
            made = pod(
                self.name(), claim="wide", namespace=self.namespace, annotations={names.MIN_RUNTIME: "9999999999d"}
            )
            await self.tries("duration", create(self.client, PODS, made))
            made = pod(self.name(), namespace=self.namespace)
            made["spec"]["containers"] = [
                {"name": f"c{n}", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}} for n in range(LARGE)
            ]
            await self.tries("large", create(self.client, PODS, made), forbidden=True)
            await asyncio.sleep(2)

    async def forges(self) -> None:
        """What only the controller may write."""
        while True:
            for key in (names.EVICT_AT, names.EVICTION, names.TAKEN_OVER):
                made = pod(
                    self.name(), claim="wide", namespace=self.namespace, annotations={key: '{"at":0,"for":"red/x"}'}
                )
                if await self.tries("mark", create(self.client, PODS, made)):
                    stored = await self.client.get(raw(PODS), made["metadata"]["name"], self.namespace)
                    if key in stored["metadata"].get("annotations", {}):
                        self.forged.append(f"annotation {key}")
                    gate = {"spec": {"schedulingGates": None}}
                    write = self.client.patch(
                        raw(PODS), made["metadata"]["name"], gate, namespace=self.namespace, kind=Patch.MERGE
                    )
                    await self.tries("gate", write, forbidden=True)
                    await self.tries(
                        "delete", self.client.delete(PODS, made["metadata"]["name"], self.namespace, grace_period_s=0)
                    )
            await self.absurd_gang()
            name = self.name()
            claim = template(name, namespace=self.namespace)
            claim = claim | {"kind": "ResourceClaim", "spec": claim["spec"]["spec"]}
            if await self.tries("claim", create(self.client, RESOURCE_CLAIMS, claim)):
                result = {"request": "gpu", "driver": names.DRIVER, "pool": "n0", "device": "gpu-0"}
                status = {"status": {"allocation": {"devices": {"results": [result]}}}}
                write = self.client.patch(
                    raw(RESOURCE_CLAIMS), name, status, namespace=self.namespace, subresource="status", kind=Patch.MERGE
                )
                await self.tries("allocation", write, forbidden=True)
                await self.tries("delete", self.client.delete(RESOURCE_CLAIMS, name, self.namespace))
            await asyncio.sleep(0.2)

    async def absurd_gang(self) -> None:
        """A Gang that would hold every device, be the oldest, and be of another queue; of a user only its hold may be stored."""
        name = self.name()
        devices = [f"{names.DRIVER}/{node}/gpu-{number}" for node in ("n0", "n1") for number in range(8)]
        record = {
            "at": "2026-01-01T00:00:00Z", "since": "1970-01-01T00:00:00Z", "what": "moved", "why": "x", "until": FAR, "held": FAR,
            "owner": "", "maker": "Job", "place": [{"node": "n0", "devices": devices}],
        }  # fmt: skip
        note = {"fairlead.dev/evicted": json.dumps(record)}
        meta = {"name": name, "namespace": self.namespace}
        for body in (
            {"metadata": {**meta, "annotations": note}, "spec": {"size": 1}},
            {"metadata": meta, "spec": {"size": 1, "queue": "blue"}},
            {"metadata": meta, "spec": {"size": 100_000}},
        ):
            await self.tries("gang", create(self.client, GANGS, body), forbidden=True)
        if not await self.tries(
            "gang on hold", create(self.client, GANGS, {"metadata": meta, "spec": {"size": 1, "hold": {}}})
        ):
            return
        for change, subresource in (
            ({"metadata": {"annotations": note}}, None),
            ({"spec": {"queue": "blue"}}, None),
            ({"spec": {"minRuntime": "99999d"}}, None),
            ({"status": {"lastEviction": record}}, "status"),
        ):
            write = self.client.patch(
                raw(GANGS), name, change, namespace=self.namespace, subresource=subresource, kind=Patch.MERGE
            )
            await self.tries("gang", write, forbidden=True)

    async def waits(self) -> None:
        """Pods that never fit, of which no two are alike; they come and go."""
        while True:
            made = [self.name() for _ in range(WAITING)]
            for number, name in enumerate(made):
                body = pod(name, claim="wide", namespace=self.namespace, annotations=gang_of(name, 1), command=FOREVER)
                body["spec"]["containers"][0]["resources"]["requests"] = {"cpu": f"{1_000 + number}m"}
                body["spec"]["terminationGracePeriodSeconds"] = 500
                await self.tries("unlike", create(self.client, PODS, body))
                await asyncio.sleep(0.02)
            await asyncio.sleep(10)
            for name in made:
                await self.tries("delete", self.client.delete(PODS, name, self.namespace))
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
                while len(open_now) > CONNECTIONS:
                    open_now.pop(0).transport.abort()
                await asyncio.sleep(0.2)
        finally:
            for writer in open_now:
                writer.transport.abort()


async def attack(tenant: Tenant, host: str, port: int) -> None:
    """Until SIGTERM. Raises what ended an attack early."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with asyncio.TaskGroup() as group:
        for each in (tenant.bombs(), tenant.nests(), tenant.forges(), tenant.waits(), tenant.floods(host, port)):
            group.create_task(each)


async def main(kubeconfig: str, namespace: str, host: str, port: str) -> None:
    async with Client.connect(kubeconfig, user_agent="tenant") as client:
        tenant = Tenant(client, namespace)
        with contextlib.suppress(asyncio.CancelledError):
            await attack(tenant, host, int(port))
        print(json.dumps({"answers": dict(sorted(tenant.answers.items())), "forged": tenant.forged}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
