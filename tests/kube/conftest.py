"""A scripted apiserver over real HTTP: each test says what it answers. The contract suite uses the sandbox's."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from fairlead.kube import credentials
from fairlead.kube.client import Client
from tests.support.kube import VirtualTime

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Scripted:
    """Answers requests one by one from `script`; the last answer repeats. `seen` has what was asked."""

    def __init__(self) -> None:
        self.script: list[Handler] = []
        self.seen: list[tuple[str, str, dict[str, str], Any, dict[str, str]]] = []
        self.url = ""

    def answer(self, body: Any, status: int = 200, **headers: str) -> None:
        async def handler(request: web.Request) -> web.StreamResponse:
            return web.json_response(
                body, status=status, headers={key.replace("_", "-"): value for key, value in headers.items()}
            )

        self.script.append(handler)

    def refuse(self, status: int, reason: str, message: str = "", **headers: str) -> None:
        self.answer({"kind": "Status", "code": status, "reason": reason, "message": message}, status, **headers)

    def hang(self) -> None:
        async def handler(request: web.Request) -> web.StreamResponse:
            await asyncio.Event().wait()
            raise AssertionError

        self.script.append(handler)

    def stream(self, *chunks: bytes, cut: bool = False) -> None:
        async def handler(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            for chunk in chunks:
                await response.write(chunk)
            if cut:
                assert request.transport is not None
                request.transport.abort()
            return response

        self.script.append(handler)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        body = json.loads(text) if text else None
        self.seen.append((request.method, request.path, dict(request.query), body, dict(request.headers)))
        handler = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return await handler(request)


@pytest.fixture
async def server() -> AsyncIterator[Scripted]:
    scripted = Scripted()
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", scripted.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    scripted.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield scripted
    await runner.cleanup()


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def naps() -> list[float]:
    """The delays that the client slept."""
    return []


@pytest.fixture
async def client(server: Scripted, naps: list[float]) -> AsyncIterator[Client]:
    async def sleep(seconds: float) -> None:
        naps.append(seconds)

    async with Client(credentials.fixed(server.url, token="t"), sleep=sleep) as connected:
        yield connected


def pod(name: str, version: int = 1, **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": metadata | ({"labels": labels} if labels else {})}
