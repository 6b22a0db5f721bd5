"""Floods by clients without a credential: reviews are answered meanwhile, memory is bounded, and nothing is left afterwards."""

import asyncio
import contextlib
import datetime as dt
import errno
import logging
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from fairlead.webhook.certificates import authority
from fairlead.webhook.certificates.served import tls_context
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.serve import sockets
from fairlead.webhook.serve.limits import SHARES_S, WINDOW_S, LimitedLog, Limits, Turns
from fairlead.webhook.serve.metrics import Metrics
from fairlead.webhook.serve.server import Server
from fairlead.webhook.serve.sockets import Listener, places
from tests.support.webhook import decoded_answer, facts
from tests.webhook.test_server import envelope

CLIENTS = 60
"""Three times the places."""
LIMITS = Limits(connections=20, body_bytes=256 * 1024, buffered_bytes=1024 * 1024)
BODY = envelope()
POST = b"POST /mutate HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
PATIENCE_S = 30
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Site:
    """A running server; `attackers` and their streams are closed by `end`."""

    port: int
    trust: ssl.SSLContext
    registry: CollectorRegistry
    attackers: list[asyncio.Task[None]] = field(default_factory=list)

    def value(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"fairlead_webhook_{name}", labels) or 0.0

    def open(self) -> float:
        states = ("handshake", "unproven", "proven", "lingering")
        return sum(self.value("connections", state=state) for state in states)

    async def connect(self, *, tls: bool = True) -> Streams:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.trust if tls else None)

    async def review(self, streams: Streams) -> None:
        reader, writer = streams
        writer.write(POST % len(BODY) + BODY)
        async with asyncio.timeout(PATIENCE_S):
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 "), head
            length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
            assert decoded_answer(await reader.readexactly(length))["allowed"]

    async def get(self, path: str) -> bytes:
        reader, writer = await self.connect()
        writer.write(b"GET %s HTTP/1.1\r\nConnection: close\r\n\r\n" % path.encode())
        async with asyncio.timeout(PATIENCE_S):
            answer = await reader.read()
        writer.close()
        return answer

    def attack(self, client: Callable[["Site"], Awaitable[None]], clients: int = CLIENTS) -> None:
        async def play() -> None:
            with contextlib.suppress(OSError, EOFError):
                await client(self)

        self.attackers += [asyncio.create_task(play()) for _ in range(clients)]

    async def end(self) -> None:
        for task in self.attackers:
            task.cancel()
        await asyncio.gather(*self.attackers, return_exceptions=True)

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not reached():  # noqa: ASYNC110 - counters of the server, which no event tells
                await asyncio.sleep(0.01)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def known(review: Review) -> Facts:
    return facts()


@contextlib.asynccontextmanager
async def serving(limits: Limits = LIMITS, load_facts: Any = known, **options: Any) -> AsyncIterator[Site]:
    material = authority.new_material(("127.0.0.1",), dt.datetime.now(dt.UTC))
    registry = CollectorRegistry()
    server = Server(load_facts, Metrics(registry), limits=limits, **options)
    async with server.serve("127.0.0.1", 0, tls_context(material)) as port:
        site = Site(port, ssl.create_default_context(cadata=material.bundle), registry)
        try:
            yield site
        finally:
            await site.end()


# -- floods ----------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def connected(site: Site, *, tls: bool) -> AsyncIterator[Streams]:
    streams = await site.connect(tls=tls)
    try:
        yield streams
    finally:
        streams[1].transport.abort()


async def closes(site: Site) -> None:
    async with connected(site, tls=False):
        pass


async def is_silent(site: Site) -> None:
    async with connected(site, tls=False) as (reader, _):
        await reader.read()


async def begins_a_handshake(site: Site) -> None:
    to_us, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        site.trust.wrap_bio(to_us, to_server, server_hostname="127.0.0.1").do_handshake()
    async with connected(site, tls=False) as (reader, writer):
        writer.write(to_server.read())
        while await reader.read(1024):
            pass


async def is_idle(site: Site) -> None:
    async with connected(site, tls=True) as (reader, _):
        await reader.read()


async def drips_a_head(site: Site) -> None:
    async with connected(site, tls=True) as (_, writer):
        writer.write(b"POST /mutate HTTP/1.1\r\n")
        while not writer.is_closing():
            writer.write(b"X-A: b\r\n")
            await writer.drain()
            await asyncio.sleep(0.05)


async def drips_a_body(site: Site) -> None:
    async with connected(site, tls=True) as (_, writer):
        writer.write(POST % 100_000)
        while not writer.is_closing():
            writer.write(b"[")
            await writer.drain()
            await asyncio.sleep(0.05)


async def carries_a_review_and_is_idle(site: Site) -> None:
    async with connected(site, tls=True) as streams:
        await site.review(streams)
        await streams[0].read()


FLOODS = [
    closes,
    is_silent,
    begins_a_handshake,
    is_idle,
    drips_a_head,
    drips_a_body,
    carries_a_review_and_is_idle,
]


@pytest.mark.parametrize("client", FLOODS, ids=lambda client: client.__name__)
async def test_reviews_and_probes_are_answered_while_others_hold_every_place(client: Any) -> None:
    """By the connection that was there, by new ones, and without anything left when the flood is over."""
    async with serving() as site:
        kept = await site.connect()
        for _ in range(3):
            await site.review(kept)
        tasks, files = len(asyncio.all_tasks()), descriptors()
        site.attack(client)
        for _ in range(5):
            await asyncio.sleep(0.02)
            await site.review(kept)
            fresh = await site.connect()
            await site.review(fresh)
            fresh[1].close()
            assert (await site.get("/healthz")).startswith(b"HTTP/1.1 200 ")
            assert site.open() <= LIMITS.connections
        await site.end()
        await site.until(lambda: site.open() == 1)
        assert site.value("buffered_bytes") == 0
        await site.until(lambda: len(asyncio.all_tasks()) <= tasks)
        await site.until(lambda: descriptors() <= files)
        await site.review(kept)
        kept[1].close()


async def test_large_bodies_of_many_clients_do_not_fill_the_memory() -> None:
    async def sends_a_large_body(site: Site) -> None:
        async with connected(site, tls=True) as (reader, writer):
            writer.write(POST % LIMITS.body_bytes + b"[" * (LIMITS.body_bytes - 1))
            answers.append(await reader.read())

    answers: list[bytes] = []
    held: list[float] = []
    limits = Limits(connections=100, body_bytes=LIMITS.body_bytes, buffered_bytes=LIMITS.buffered_bytes)
    async with serving(limits) as site:
        kept = await site.connect()
        await site.review(kept)
        site.attack(sends_a_large_body, 20)  # five times the limit
        for _ in range(20):
            await asyncio.sleep(0.02)
            held.append(site.value("buffered_bytes"))
            await site.review(kept)
        await site.until(lambda: any(b" 503 " in answer for answer in answers))
        held.append(site.value("buffered_bytes"))
        assert max(held) <= limits.buffered_bytes + 64 * 1024
        assert any(b"\r\nRetry-After: 1\r\n" in answer for answer in answers), "an apiserver tries again"
        await site.end()
        await site.until(lambda: site.open() == 1 and site.value("buffered_bytes") == 0)
        kept[1].close()


@pytest.mark.slow
async def test_a_client_that_reads_no_answers_gets_no_more_of_them() -> None:
    """Requests without end, and not one answer read: the answers are not piled up."""
    limits = Limits(connections=20, body_bytes=256 * 1024, body_s=0.5)
    async with serving(limits) as site:
        _, writer = await site.connect()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        largest = 0.0
        with contextlib.suppress(OSError):
            while not writer.is_closing() and site.value("connections_ended_total", reason="late") == 0:
                for _ in range(100):
                    writer.write(POST % len(BODY) + BODY)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await writer.drain()
                largest = max(largest, site.value("buffered_bytes"))
        assert largest < 2 * limits.body_bytes
        writer.transport.abort()


async def test_reviews_that_wait_for_the_apiserver_are_bounded_in_number_and_bytes() -> None:
    """Clients that prove nothing ask for lookups: so many at once, and what they hold decoded counts."""
    waiting = 0
    most = 0

    async def slow(review: Review) -> Facts:
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        try:
            await asyncio.Event().wait()
        finally:
            waiting -= 1
        raise AssertionError

    async def asks(site: Site) -> None:
        body = envelope({"metadata": {"annotations": {"a": "x" * 100_000}}, "spec": {"containers": []}})
        async with connected(site, tls=True) as (reader, writer):
            writer.write(POST % len(body) + body)
            await reader.read()

    limits = Limits(connections=100, lookups=3, buffered_bytes=1024 * 1024, facts_s=60.0)
    async with serving(limits, load_facts=slow) as site:
        site.attack(asks, 12)
        await site.until(lambda: site.value("connections_ended_total", reason="no memory") > 0)
        assert most <= 3
        assert site.value("buffered_bytes") <= limits.buffered_bytes + 400_000
        await site.end()
        await site.until(lambda: site.open() == 0 and waiting == 0)


async def test_requests_that_a_client_has_left_behind_are_not_judged() -> None:
    judged = 0

    def cached(review: Review) -> Facts:
        nonlocal judged
        judged += 1
        return facts()

    async with serving(cached_facts=cached) as site:
        for _ in range(5):
            _, writer = await site.connect()
            writer.write(POST % len(BODY) + BODY)
            writer.transport.abort()
        await site.until(lambda: site.open() == 0)
    assert judged == 0


# -- descriptors, log, turns -----------------------------------------------------------------------------------------


async def test_without_descriptors_accepting_goes_on_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """No loop of failures, no end: a connection is given up, and the next one is accepted."""
    monkeypatch.setattr(sockets, "PAUSE_S", 0.05)
    fails = 3
    tries = 0

    class Scarce(socket.socket):
        def accept(self) -> Any:
            nonlocal tries
            tries += 1
            if tries <= fails:
                raise OSError(errno.EMFILE, "Too many open files")
            return super().accept()

    made = Scarce()
    made.setblocking(False)
    made.bind(("127.0.0.1", 0))
    made.listen()
    accepted: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    given_up: list[int] = []

    def take(raw: socket.socket, address: str) -> None:
        raw.close()
        accepted.set_result(address)

    accepting = Listener([made], asyncio.get_running_loop(), take, lambda: given_up.append(tries))
    accepting.start()
    _, writer = await asyncio.open_connection("127.0.0.1", accepting.port)
    async with asyncio.timeout(PATIENCE_S):
        assert await accepted == "127.0.0.1"
    assert given_up == [1, 2, 3]
    writer.close()
    accepting.close()


def test_connections_leave_descriptors_to_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = [(256, 256)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limit[0])
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: limit.__setitem__(0, wanted))
    assert places(1024) == 128
    limit[0] = (1024, 524_288)
    assert places(1024) == 1024
    assert limit[0] == (sockets.WANTED, 524_288), "the soft limit is raised"


def test_a_flood_of_requests_makes_no_flood_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    log = LimitedLog(logging.getLogger("flood"), logging.WARNING, 3, lambda: now)
    for number in range(1_000):
        log("refused %d: %s", number, "x" * 100_000)
    now = WINDOW_S
    log("refused %s", "again")
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 5
    assert max(map(len, lines)) < 3_000
    assert lines[3] == "997 more lines like the last one were left out"


async def test_neither_lane_of_turns_starves_the_other() -> None:
    clock = 0.0
    order: list[str] = []
    done = asyncio.Event()

    def work(name: str) -> Callable[[], None]:
        def run() -> None:
            nonlocal clock
            clock += SHARES_S[0]
            order.append(name)
            if order.count("new") == 3:
                done.set()
            elif name == "proven":
                turns.add(run, (0.0,), proven=True)  # always more to do

        return run

    turns = Turns(asyncio.get_running_loop(), lambda: clock)
    turns.add(work("proven"), (0.0,), proven=True)
    for _ in range(3):
        turns.add(work("new"), (9.0,), proven=False)
    async with asyncio.timeout(PATIENCE_S):
        await done.wait()
    assert order == ["proven", "new"] * 3
