"""/healthz, /livez, /readyz and /metrics over plain HTTP, the same for every program.

A check returns None when it passes, else the reason why not; the answer is 200, or 503 with the reason as text.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import MappingProxyType

import prometheus_client
from aiohttp import web
from prometheus_client import CollectorRegistry, Metric, exposition

Check = Callable[[], str | None]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _passing() -> str | None:
    return None


@dataclasses.dataclass(frozen=True)
class Served:
    host: str
    port: int

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


@contextlib.asynccontextmanager
async def serve(
    bind: str | None,
    *,
    health: Check = _passing,
    ready: Check = _passing,
    registry: CollectorRegistry | None = None,
    more: Mapping[str, Handler] = MappingProxyType({}),
) -> AsyncIterator[Served | None]:
    """Serves inside the context. `bind` is "host:port" or ":port"; port 0 means any free one; None serves nothing.

    `more`: what is got at other paths.
    """
    if bind is None:
        yield None
        return
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # a series more for each counter, which nothing reads
    host, port = parse_bind(bind)
    app = web.Application()
    app.router.add_get("/healthz", answer(health))
    app.router.add_get("/livez", answer(health))
    app.router.add_get("/readyz", answer(ready))
    app.router.add_get("/metrics", _metrics(registry or CollectorRegistry()))
    for path, handler in more.items():
        app.router.add_get(path, handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield Served(host if host != "0.0.0.0" else "127.0.0.1", runner.addresses[0][1])
    finally:
        await runner.cleanup()


def parse_bind(bind: str) -> tuple[str, int]:
    """("0.0.0.0", 8080) from ":8080". Raises ValueError with an example of a valid address."""
    host, colon, port = bind.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"bind address {bind!r}: use host:port, such as 0.0.0.0:8080 or 127.0.0.1:0")
    return host.strip("[]") or "0.0.0.0", int(port)


def answer(check: Check) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        problem = check()
        return web.Response(text=f"{problem or 'ok'}\n", status=503 if problem else 200)

    return handler


class _Collected(CollectorRegistry):
    """What a registry had at one moment."""

    def __init__(self, families: list[Metric]) -> None:
        super().__init__(auto_describe=False)
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def _metrics(registry: CollectorRegistry) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        encode, content_type = exposition.choose_encoder(request.headers.get("Accept", ""))
        # Collectors read what this loop changes, so they run in it; to write thousands of samples takes longer, and needs nothing else.
        collected = _Collected(list(registry.collect()))
        body = await asyncio.to_thread(encode, collected)
        return web.Response(body=body, headers={"Content-Type": content_type})

    return handler
