"""Live pages: what changed and nothing else, once for all viewers, from where the page ended; limits, slow readers, sessions that end."""

import asyncio
import contextlib
import gzip
import re
import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from fairlead.kube.resources import Raw
from fairlead.ui.model.scope import EVERYTHING, Scope
from fairlead.ui.pages.fragments import tree
from fairlead.ui.reading.watched import NEWER_S
from fairlead.ui.serve import live, pages, views
from fairlead.ui.serve.answers import Shown
from fairlead.ui.serve.app import application
from fairlead.ui.serve.channel import Channel, Chunk, Stream
from fairlead.ui.serve.viewers import Everyone, LoginNeededError, Viewer
from tests.support import ui
from tests.support.kube import VirtualTime

from .markup import check


class Cluster:
    """A cluster that is watched, and a server of its pages."""

    def __init__(self, apiserver: ui.Apiserver, time: VirtualTime, reader: ui.Reader) -> None:
        self.apiserver, self.time, self.reader = apiserver, time, reader

    async def change(self, plural: str, raw: Raw) -> None:
        self.apiserver.put(plural, raw)
        await self.time.advance(NEWER_S)

    async def page(self, path: str) -> tuple[str, str]:
        """And the address of its stream."""
        status, _, text = await self.reader.get(path)
        assert status == 200
        return text, ui.stream_of(text)


@contextlib.asynccontextmanager
async def served(apiserver: ui.Apiserver | None = None) -> AsyncIterator[Cluster]:
    given, time = apiserver or ui.Apiserver(ui.a_cluster(6)), VirtualTime(ui.NOW)
    async with ui.watched(given, time) as source, ui.reader(source) as reader:
        yield Cluster(given, time, reader)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((live, "EVERY_S"), (views, "EVERY_S"), (views, "LEDGER_EVERY_S")):
        monkeypatch.setattr(module, name, 0.05)


async def test_only_what_changed_is_sent():
    async with served() as made:
        text, stream = await made.page("/map")
        async with made.reader.follow(stream) as following:
            await made.change("nodes", ui.node("node-002", ready=False))
            told = await following.next()
        (node,) = [name for name in told.parts if name.startswith("n-")]
        counts = {name for name in told.parts if name.startswith("m-")}
        assert (len(counts), told.parts.keys() - counts) == (1, {"as-of", "gpus", node}), (
            "and what is free of its model"
        )
        assert "the node is not ready" in told.parts[node]
        assert f'id="{node}"' in text
        now, _ = await made.page("/map")
        assert all(part in now for part in told.parts.values())


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/map",
        "/map?node=node-001",
        "/queues",
        "/queues/queue-1",
        "/gangs",
        "/gangs?phase=Waiting",
        "/gangs/team-0/wait-00000",
        "/time",
        "/time?by=node&window=1h",
    ],
)
async def test_a_page_that_takes_what_is_sent_is_the_page_of_now(path):
    lists = ui.a_cluster(6)
    async with served(ui.Apiserver(lists)) as made:
        text, stream = await made.page(path)
        async with made.reader.follow(stream) as following:
            for plural, raw in (
                ("gangs", ui.gang("wait-00000", "team-0", queue="queue-3", position=7, why={"message": "other"})),
                ("queues", ui.queue("queue-1", parent="all", used=17)),
                ("gangs", ui.gang("newest", "team-2", position=1)),
                ("nodes", ui.node("node-001", ready=False)),
            ):
                await made.change(plural, raw)
                text = replaced(text, (await following.next()).parts)
            status, _, now = await made.reader.get(path)
        assert status == 200
        assert without_stream(text) == without_stream(now)
        check(text)


def replaced(page: str, parts: dict[str, str]) -> str:
    for name, text in parts.items():
        before = element(page, name)
        assert before, f"no element is called {name}"
        page = page.replace(before, text)
    return page


def element(page: str, name: str) -> str:
    """From its opening to its closing tag."""
    begins = re.search(rf'<([a-z]+)[^<>]*\bid="{name}"', page)
    if begins is None:
        return ""
    depth = 0
    for tag in re.finditer(rf"<(/?){begins[1]}\b", page[begins.start() :]):
        depth += -1 if tag[1] else 1
        if not depth:
            return page[begins.start() : begins.start() + page[begins.start() + tag.end() :].index(">") + tag.end() + 1]
    raise AssertionError(name)


def without_stream(page: str) -> str:
    return re.sub(r'hx-sse:connect="[^"]+"|\s+', " ", page)


async def test_a_viewer_that_comes_back_gets_what_it_missed_and_one_from_another_server_the_whole_page():
    async with served() as made:
        _, stream = await made.page("/gangs")
        async with made.reader.follow(stream) as following:
            await made.change("gangs", ui.gang("wait-00000", "team-0", position=1, message="x"))
            told = await following.next()
        await made.change("gangs", ui.gang("wait-00001", "team-1", position=2, message="missed"))
        async with made.reader.follow(stream, Last_Event_ID=told.revision) as following:
            again = await following.next()
            assert "missed" in again.text
            assert "main" not in again.parts
        async with made.reader.follow(stream, Last_Event_ID="0000-4") as following:
            whole = await following.next()
            assert whole.parts.keys() == {"as-of", "notices", "main"}


async def test_nothing_is_sent_while_nothing_changes_but_a_sign_of_life(monkeypatch):
    monkeypatch.setattr(live, "HEARTBEAT_S", 0.1)
    async with served() as made:
        _, stream = await made.page("/queues")
        async with made.reader.follow(stream) as following:
            with pytest.raises(TimeoutError):
                await following.next(0.8)
            assert following.heartbeats >= 4


@pytest.mark.slow
async def test_a_picture_of_the_ledger_is_sent_less_often_than_lists_and_misses_nothing(monkeypatch):
    monkeypatch.setattr(views, "LEDGER_EVERY_S", 3.0)
    async with served() as made:
        _, stream = await made.page("/time")
        async with made.reader.follow(stream) as following:
            for number in range(3):
                await made.change("gangs", ui.gang(f"newest-{number}", "team-2", position=1 + number))
            with pytest.raises(TimeoutError):
                await following.next(0.5)
            told = await following.next()
        assert {"as-of", "picture", "rows"} == told.parts.keys()
        assert all(f"newest-{number}" in told.parts["rows"] for number in range(3))


async def test_a_page_is_rendered_once_for_all_who_look_at_it(monkeypatch):
    rendered = []
    whole = pages.gangs

    def counted(*args, **named):
        rendered.append(args)
        return whole(*args, **named)

    monkeypatch.setattr(pages, "gangs", counted)
    async with served() as made:
        _, stream = await made.page("/gangs")
        async with contextlib.AsyncExitStack() as stack:
            following = [await stack.enter_async_context(made.reader.follow(stream)) for _ in range(20)]
            await made.change("gangs", ui.gang("wait-00000", "team-0", position=1, message="x"))
            told = [await each.next() for each in following]
            await made.page("/gangs")
        assert {each.text for each in told} == {told[0].text}
        assert len(rendered) == 2, "the page, and the change"


async def test_a_cluster_that_goes_away_and_comes_back_is_said_on_open_pages():
    async with served() as made:
        _, stream = await made.page("/gangs")
        async with made.reader.follow(stream) as following:
            await made.time.advance(10)
            await following.next()
            made.apiserver.go()
            await made.time.advance(20)
            said = await following.next()
            assert "the cluster does not answer" in said.parts["notices"]
            assert "main" not in said.parts
            made.apiserver.away = False
            await made.time.advance(20)
            said = await following.next()
            assert said.parts["notices"] == '<div id="notices" role="status"></div>'


@pytest.mark.slow
async def test_a_viewer_who_does_not_read_is_cut_off_and_the_others_are_served(monkeypatch):
    monkeypatch.setattr(live, "SLOW_S", 0.3)
    monkeypatch.setattr(Channel, "_lacking", lambda self, revision: list(self._page.inner))  # more than sockets hold
    async with served(ui.Apiserver(ui.a_cluster(60))) as made:
        _, stream = await made.page("/map")
        host, port = made.reader.address.removeprefix("http://").rstrip("/").split(":")
        deaf = socket.create_connection((host, int(port)))
        deaf.sendall(f"GET {stream} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        with deaf:
            async with made.reader.follow(stream) as following:
                for at in range(60):
                    await made.change("nodes", ui.node("node-002", ready=bool(at % 2)))
                    await following.next()
            await asyncio.sleep(0.5)
            deaf.settimeout(5)
            with contextlib.suppress(ConnectionError):  # and not TimeoutError: the stream is over
                while deaf.recv(1 << 20):
                    pass


class Sessions(Everyone):
    """One viewer, whose session the test ends, and whose rights it changes."""

    def __init__(self) -> None:
        self.ended = False
        self.scope = EVERYTHING
        self.name = "jane <b>"

    async def viewer(self, request: web.Request) -> Viewer:
        if self.ended:
            raise LoginNeededError("your session ended")
        return Viewer(name=self.name, scope=self.scope, leaves=True)

    def refused(self, request: web.Request, error: LoginNeededError, *, json: bool) -> web.Response:
        return web.Response(status=401, text=str(error))


@contextlib.asynccontextmanager
async def logged_in(viewers: Sessions) -> AsyncIterator[ui.Reader]:
    runner = web.AppRunner(application(ui.source(ui.Apiserver(ui.a_cluster())), None, viewers), shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with aiohttp.ClientSession() as session:
            yield ui.Reader(session, f"http://127.0.0.1:{runner.addresses[0][1]}/")
    finally:
        await runner.cleanup()


async def test_a_stream_ends_when_the_session_does_and_when_the_rights_change(monkeypatch):
    monkeypatch.setattr(live, "CHECKED_S", 0.2)
    monkeypatch.setattr(live, "HEARTBEAT_S", 0.1)
    viewers = Sessions()
    async with logged_in(viewers) as reader:
        _, _, text = await reader.get("/gangs")
        assert "jane &lt;b&gt;" in text
        async with reader.follow(ui.stream_of(text)) as following:
            viewers.scope = Scope(namespaces=frozenset({"team-1"}), cluster=False, queues=False)
            await following.ended(3)
        async with reader.follow(ui.stream_of(text)) as following:
            told = await following.next()
            assert "main" in told.parts, "of other rights: the whole page"
            assert "team-0/" not in told.text
            assert "team-1/" in told.text
            viewers.ended = True
            assert "you are logged out" in (await following.next(3)).parts["notices"]
            await following.ended(3)


@pytest.mark.parametrize(
    "page", ["", "https://evil.example/", "//evil.example/gangs", "/healthz", "/login", "/gangs/x", "x" * 5000]
)
async def test_only_pages_of_this_server_are_streamed(page):
    async with (
        ui.pages() as reader,
        reader.session.get(f"{reader.address}live", params={"page": page}) as answer,
    ):
        assert answer.status == 404
        assert "Content-Security-Policy" in answer.headers


async def test_a_stream_is_compressed_once_for_all_and_is_a_gzip_file_when_it_ends():
    chunks = [Chunk(text.encode() * 50) for text in ("data: a\n\n", "data: bb\n\n", "data: a\n\n")]
    for order in ([0, 1, 2], [2, 0], [1, 1, 0]):
        stream = Stream(gzip=True)
        sent = stream.head + b"".join(stream.add(chunks[at]) for at in order) + stream.end
        assert gzip.decompress(sent) == b"".join(chunks[at].plain for at in order)
    assert len(chunks[0].deflated) < len(chunks[0].plain) / 4


def test_the_revision_of_a_page_is_that_of_no_other():
    first, second = Channel(), Channel()
    for channel in (first, second):
        channel.update(Shown(200, "\x02main\x03<main id=main>a</main>\x04"), 1)
    assert first.since(first.revision) is None
    assert first.since(second.revision) is not None
    assert tree("\x02main\x03<main id=main>a</main>\x04").inner[0].text == "<main id=main>a</main>"
