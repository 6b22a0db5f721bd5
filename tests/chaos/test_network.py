"""What may happen to a message, and what TCP promises all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import pytest

from fairlead.sandbox.apiserver.wire.exchange import Request, Response, Stream
from tests.chaos.loop import Process, VirtualLoop
from tests.chaos.network import MemoryWire, Network, Reset
from tests.chaos.virtual import CLOCK


class Site:
    """A client and a server that counts what it was asked."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.network = Network(loop)
        self.client = Process("client", loop)
        self.process = Process("server", loop)
        self.asked: list[str] = []
        self.refusals = 0
        self.there = self.network.path("client", "server")
        self.back = self.network.path("server", "client")
        self.wire = MemoryWire(self.network, self, "test")

    def server_of(self, client: Process) -> Site:
        return self

    def refused(self, client: Process) -> None:
        self.refusals += 1

    async def answer(self, request: Request) -> Response | Stream:
        self.asked.append(f"{request.method} {request.path}")
        return Stream(self.counting()) if "watch" in request.query else Response(200, request.path.encode())

    async def counting(self) -> AsyncGenerator[bytes, None]:
        for number in range(100):
            yield f"{number}\n".encode()
            await asyncio.sleep(1.0)

    async def get(self, path: str = "/a", *, method: str = "GET", timeout_s: float = 10.0) -> bytes:
        return (await self.wire.request(method, path, params={}, headers={}, body=None, timeout_s=timeout_s)).body

    def run(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.loop.run_until_complete(self.client.spawn(main()))


KEPT: list[object] = []
"""Nothing of a process that was killed may run: were its tasks collected, their `finally` would."""


@pytest.fixture
def site() -> Site:
    CLOCK.now = 0.0
    made = Site(VirtualLoop())
    KEPT.append(made)
    return made


def test_a_path_that_is_cut_refuses_in_both_directions(site: Site):
    async def main() -> None:
        for path in (site.there, site.back):
            site.network.cut(path)
            with pytest.raises(Reset):
                await site.get()
            site.network.heal(path)
        await site.get()

    site.run(main)
    assert site.asked == ["GET /a"]
    assert site.refusals == 2


def test_a_held_answer_arrives_when_the_partition_ends_and_the_work_was_done_before(site: Site):
    async def main() -> None:
        site.network.hold(site.back)
        asking = asyncio.create_task(site.get())
        await asyncio.sleep(5.0)
        assert site.asked == ["GET /a"]
        assert not asking.done()
        site.network.heal(site.back)
        assert await asking == b"/a"

    site.run(main)


def test_a_request_that_is_held_too_long_times_out_and_arrives_later(site: Site):
    async def main() -> None:
        site.network.hold(site.there)
        with pytest.raises(TimeoutError):
            await site.get(method="PATCH", timeout_s=2.0)
        assert not site.asked
        site.network.heal(site.there)
        await asyncio.sleep(1.0)
        assert site.asked == ["PATCH /a"]

    site.run(main)


def test_only_what_may_be_sent_again_arrives_twice(site: Site):
    async def main() -> None:
        site.there.doubled = 1.0
        await site.get()
        await site.get(method="PATCH")
        await asyncio.sleep(1.0)

    site.run(main)
    assert site.asked == ["GET /a", "GET /a", "PATCH /a"]


def test_a_watch_keeps_its_order_however_late_its_messages_are(site: Site):
    async def main() -> None:
        site.back.late_s = (0.0, 3.0)
        opened = await site.wire.open("/a", params={"watch": "true"}, headers={}, silence_max_s=60.0)
        got = b""
        async for chunk in opened.chunks():
            got += chunk
            if got.count(b"\n") == 20:
                break
        await opened.aclose()
        assert got == b"".join(b"%d\n" % number for number in range(20))

    site.run(main)


def test_connections_break_when_the_server_is_killed(site: Site):
    async def main() -> None:
        opened = await site.wire.open("/a", params={"watch": "true"}, headers={}, silence_max_s=60.0)
        site.client.call(3.5, site.process.kill)
        with pytest.raises(Reset):
            await opened.read()
        with pytest.raises(Reset):
            await site.get()

    site.run(main)
    assert CLOCK.now < 4.0
