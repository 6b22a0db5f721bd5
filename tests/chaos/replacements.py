"""Where the campaign's network, threads and identities take the place of the machine's. Nothing that decides is replaced.

Each replacement stands at a rim of its program: the webhook's sockets and TLS, the apiserver's call to it, the driver's threads, gRPC,
the recorder's thread and files, the boot ID, the CPU's part in how long a wait takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from fairlead.driver import parts as driver_parts
from fairlead.driver.common import threads
from fairlead.driver.kubelet import server as driver_server
from fairlead.sandbox.apiserver.admission import calling
from fairlead.sandbox.kubelet import plugins
from fairlead.webhook import app as webhook_app
from fairlead.webhook.serve import server as webhook_server
from fairlead.webhook.serve.connection import Answer, Request
from fairlead.webhook.serve.limits import Turns
from tests.chaos import disk, recording, rpc, virtual
from tests.chaos.loop import Process
from tests.chaos.network import USUAL_S, Network, Reset
from tests.chaos.virtual import CHANCE, PROCESS

POLL_S = 1.0  # between kubelet's looks at the registry directory: 0.1 otherwise


class _Webhooks:
    """Which webhook process serves which port."""

    def __init__(self) -> None:
        self.ports: dict[int, WebhookServer] = {}
        self.network: Network | None = None


WEBHOOKS = _Webhooks()
boot_ids: dict[str, str] = {}
"""By the name of a driver's process."""


class _Guest:
    """A client that is not counted: the campaign's webhook has one apiserver or two."""

    proven = True
    socket: Any = None


class _Room:
    def count(self, guest: object) -> None: ...
    def worked(self, guest: object, seconds: float) -> None: ...
    def reviewed(self, guest: object) -> None: ...
    def rank(self, guest: object) -> tuple[float, ...]:
        return ()


class WebhookServer(webhook_server.Server):
    """The webhook's server, but for sockets and TLS."""

    process: Process

    @contextlib.asynccontextmanager
    async def serve(self, host: str, port: int, context: object) -> AsyncIterator[int]:
        process = PROCESS.get()
        assert process is not None
        self.process = process
        self._loop = asyncio.get_running_loop()
        room: Any = _Room()
        self._room = room
        self._turns = Turns(self._loop)
        self._lookups = asyncio.Semaphore(self._limits.lookups)
        WEBHOOKS.ports[port] = self
        try:
            yield port
        finally:
            if WEBHOOKS.ports.get(port) is self:
                del WEBHOOKS.ports[port]

    async def answered(self, path: str, body: bytes) -> Answer:
        guest: Any = _Guest()
        answer = self._handle(guest, Request("POST", path, "application/json", body, close=False))
        return answer if isinstance(answer, Answer) else await answer


async def _exchange(
    self: object, url: str, review: Any, headers: dict[str, str], client: Any, server_name: str
) -> tuple[int, str]:
    """calling.Caller._exchange: one review over the campaign's network."""
    parts = urlsplit(url)
    apiserver, network = PROCESS.get(), WEBHOOKS.network
    assert apiserver is not None
    assert network is not None
    server = WEBHOOKS.ports.get(parts.port or 443)
    there, back = (network.path(*each) for each in ((apiserver.name, "webhook"), ("webhook", apiserver.name)))
    if server is None or not server.process.alive or there.cut or back.cut:
        await asyncio.sleep(CHANCE.uniform(*USUAL_S))
        raise aiohttp.ClientOSError(111, "connect: connection refused")
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    forth, reply = network.connect(there), network.connect(back)

    def broke() -> None:
        if not answered.done():
            answered.set_exception(Reset("EOF"))

    def arrived(answer: Answer) -> None:
        if not answered.done():
            answered.set_result(answer)

    async def judge(body: bytes) -> None:
        network.send(back, reply, apiserver, arrived, await server.answered(parts.path, body))

    for each in (forth, reply):
        each.broken.append((apiserver, broke))

    def died() -> None:
        apiserver.call(CHANCE.uniform(*USUAL_S), broke)

    def arrive() -> None:
        server.process.spawn(judge(body), "review")

    server.process.on_kill.append(died)
    body = json.dumps(review, separators=(",", ":"), ensure_ascii=False).encode()
    try:
        network.send(there, forth, server.process, arrive)
        answer = await answered
        return answer.status, answer.body.decode(errors="replace")
    finally:
        if died in server.process.on_kill:
            server.process.on_kill.remove(died)
        network.close(there, forth, tell=False)
        network.close(back, reply, tell=False)


async def _in_place(self: object, work: Any, /, *args: Any, **more: Any) -> Any:
    """threads.Threads.run: done at once, as far as anybody can see; the answer takes as long as the process' threads do."""
    process = PROCESS.get()
    assert process is not None
    if process.thread_s:
        await asyncio.sleep(CHANCE.uniform(0, process.thread_s))
    try:
        return work(*args, **more)
    except disk.Killed:
        await asyncio.Event().wait()  # nothing of a dead process goes on
        raise


class _BootId:
    """Of the node whose driver asks."""

    def read_text(self) -> str:
        process = PROCESS.get()
        assert process is not None
        return boot_ids[process.name]


def install(network: Network) -> None:
    WEBHOOKS.network = network
    rpc.install()
    disk.install()
    recording.install()
    replaced: Any = webhook_app
    replaced.Server = WebhookServer
    replaced._now = virtual.now
    replaced = calling
    replaced.Caller._exchange = _exchange
    replaced = threads
    replaced.Threads.run = _in_place
    replaced = driver_parts
    replaced.BOOT_ID = _BootId()
    replaced = driver_server
    replaced._served = rpc.served
    replaced = plugins
    replaced.POLL_S = POLL_S
    replaced._sockets_in = rpc.sockets_in
