"""Many of one viewer's: streams, sessions, connections and addresses that are never whole. They cost that viewer, and nobody else."""

import asyncio
import contextlib
import logging

from fairlead.kube import logs
from fairlead.ui.access.sessions import Sessions, heaviest, party
from fairlead.ui.serve import live, security
from fairlead.ui.serve.app import CONNECTIONS, application, listening
from fairlead.ui.serve.what_if import Computing
from tests.support import ui
from tests.support.ui_login import HOST, Login, alice, by_token

from .test_scope import shared

ROBOT = "system:serviceaccount:red:robot-{}"


def test_service_accounts_count_by_namespace_and_users_each():
    assert party("system:serviceaccount:red:a") == party("system:serviceaccount:red:b") != party("alice")
    assert party("system:serviceaccount:red:a") != party("system:serviceaccount:blue:a")
    assert heaviest(["a", "a", "b"], "b") == "b", "the newcomer's own, among equals"
    assert heaviest(["a", "a", "b"], "c") == "a"
    assert heaviest([], "a") == "a"


def test_many_logins_of_many_accounts_of_one_namespace_log_nobody_else_out():
    sessions = Sessions(clock=lambda: 0.0, most=40, each=5)
    kept = {user: sessions.begin(user, f"token of {user}") for user in ("alice", "bob")}
    for robot in range(30):
        for _ in range(5):
            last = sessions.begin(ROBOT.format(robot), "t")
    assert len(sessions) == 40
    for user, value in kept.items():
        assert sessions.token(value) == f"token of {user}"
    assert sessions.token(last) == "t"
    carol = sessions.begin("carol", "c")
    assert sessions.token(carol) == "c"
    assert len(sessions) == 40


@contextlib.asynccontextmanager
async def following(login: Login, token: str):
    headers = {"Host": HOST, "Authorization": f"Bearer {token}"}
    async with login.session.get(f"{login.address}/live?page=/queues", headers=headers) as answer:
        yield answer, (await answer.content.readuntil(b"\n\n")).decode()


async def test_streams_of_many_accounts_of_one_namespace_leave_room_for_others(monkeypatch):
    monkeypatch.setitem(live.Hub.__init__.__kwdefaults__, "viewers_max", 6)
    async with by_token(shared()) as login, contextlib.AsyncExitStack() as open_:
        mine = alice(login)
        robots = [login.reviewer.user(f"robot-{at}", ROBOT.format(at)) for at in range(8)]
        login.reviewer.rights |= {(ROBOT.format(at), "queues", "") for at in range(8)}
        first, _ = await open_.enter_async_context(following(login, robots[0]))
        for robot in robots[1:6]:
            await open_.enter_async_context(following(login, robot))
        _, said = await open_.enter_async_context(following(login, robots[6]))
        assert "live pages are open" in said, "a further one of that namespace has no room"
        _, said = await open_.enter_async_context(following(login, mine))
        assert "live pages are open" not in said
        told = (await asyncio.wait_for(first.content.read(), 20)).decode()
        assert "6 live pages are open" in told, "whoever has most loses the oldest, and is told"


async def test_who_may_see_nothing_has_no_stream():
    async with by_token(shared()) as login:
        nobody = login.reviewer.user("nobody", ROBOT.format(0))
        async with following(login, nobody) as (answer, said):
            assert "you may list them in no namespace" in said
            await answer.content.read()


async def half(port: int, text: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text)
    return reader, writer


async def test_requests_that_are_never_whole_are_ended_and_others_are_answered(monkeypatch):
    monkeypatch.setattr(security, "LOOK_S", 0.05)
    monkeypatch.setattr(security, "BODY_S", 0.2)
    app = application(ui.source(ui.Apiserver(ui.a_cluster())), None, computing=Computing(None))  # type: ignore[arg-type]
    app[CONNECTIONS]._head_s = 0.3
    head = b"POST /what-if HTTP/1.1\r\nHost: x\r\nSec-Fetch-Site: same-origin\r\n"
    form = b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 99\r\n\r\nadd"
    async with listening(app, "127.0.0.1", 0) as port:
        every = [
            await half(port, text) for text in (b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\n", head, head + form)
        ]
        for reader, writer in every:
            async with asyncio.timeout(30):
                with contextlib.suppress(ConnectionError):
                    found = await reader.read()
                    assert not found or b" 408 " in found
            writer.close()
        reader, writer = await half(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_a_request_that_comes_byte_by_byte_is_ended_all_the_same(monkeypatch):
    monkeypatch.setattr(security, "LOOK_S", 0.05)
    app = application(ui.source(ui.Apiserver(ui.a_cluster())), None)
    app[CONNECTIONS]._head_s = 0.3
    async with listening(app, "127.0.0.1", 0) as port:
        reader, writer = await half(port, b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: ")
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(30):
                while not reader.at_eof():
                    writer.write(b"x")
                    await writer.drain()
                    await asyncio.sleep(0.02)
        writer.close()


async def test_where_there_is_no_room_those_that_ask_for_nothing_end(monkeypatch):
    monkeypatch.setattr(security, "LOOK_S", 0.05)
    app = application(ui.source(ui.Apiserver(ui.a_cluster())), None)
    app[CONNECTIONS]._most = 10
    async with listening(app, "127.0.0.1", 0) as port:
        every = [await half(port, b"GET /") for _ in range(30)]
        async with asyncio.timeout(30):
            for reader, _ in every[:20]:
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
        assert not any(reader.at_eof() for reader, _ in every[20:]), "the oldest end first"
        for _, writer in every:
            writer.close()


async def test_what_cannot_be_read_as_a_request_is_a_line_now_and_then(caplog, monkeypatch):
    monkeypatch.setattr(logs.BRIEF, "_said", float("-inf"))
    app = application(ui.source(ui.Apiserver(ui.a_cluster())), None)
    async with listening(app, "127.0.0.1", 0) as port:
        for _ in range(20):
            reader, writer = await half(port, b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b" 400 " in (await reader.read()).partition(b"\r\n")[0] + b" "
            writer.close()
    lines = [record for record in caplog.records if record.name == "aiohttp.server"]
    assert [(each.levelno, each.exc_info) for each in lines] == [(logging.WARNING, None)]
