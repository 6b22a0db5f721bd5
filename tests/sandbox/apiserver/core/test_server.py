"""The apiserver over its socket: TLS, tokens, watches that break, faults, and the stop."""

import asyncio
import gc
import io
import json
import socket
import ssl

import aiohttp
import pytest

from fairlead.sandbox.apiserver.faults import Fault
from fairlead.sandbox.apiserver.server import ApiServer

CM = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
async def server(tmp_path):
    async with ApiServer(workdir=tmp_path) as found:
        yield found


@pytest.fixture
async def http(server):
    context = ssl.create_default_context(cadata=server.ca_pem.decode())
    headers = {"Authorization": f"Bearer {server.token()}", "Content-Type": "application/json"}
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(server.url, headers=headers, connector=connector) as session:
        yield session


async def send(http, method, path, body=None):
    data = None if body is None else json.dumps(body)
    async with http.request(method, path, data=data) as answer:
        return answer.status, await answer.json(content_type=None), answer.headers


async def test_a_client_that_trusts_the_ca_is_served_and_another_is_not(server, http):
    assert (await send(http, "GET", "/version"))[0] == 200
    stranger = ssl.create_default_context()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=stranger)) as other:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await other.get(f"{server.url}/version")


async def test_a_body_that_is_too_large_is_413(http):
    big = io.BytesIO(json.dumps({"metadata": {"name": "big"}, "data": {"x": "y" * 3_200_000}}).encode())
    async with http.post(CM, data=big) as answer:
        assert (answer.status, (await answer.json())["reason"]) == (413, "RequestEntityTooLarge")


async def test_a_hundred_watchers_see_every_event(server, http):
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=server.ca_pem.decode()), limit=0)
    headers = {"Authorization": f"Bearer {server.token()}"}
    async with aiohttp.ClientSession(server.url, headers=headers, connector=connector) as session:
        opened = asyncio.Semaphore(0)

        async def watch():
            async with session.get(f"{CM}?watch=true") as answer:
                opened.release()
                return [json.loads(await answer.content.readline())["type"] for _ in range(20)]

        watchers = [asyncio.create_task(watch()) for _ in range(100)]
        for _ in watchers:
            await opened.acquire()
        for index in range(10):
            await send(http, "POST", CM, {"metadata": {"name": f"c{index}"}})
            await send(http, "DELETE", f"{CM}/c{index}")
        for seen in await asyncio.gather(*watchers):
            assert seen == ["ADDED", "DELETED"] * 10


async def test_a_watch_ends_cleanly_when_the_server_stops(tmp_path):
    server = ApiServer(workdir=tmp_path)
    await server.start()
    context = ssl.create_default_context(cadata=server.ca_pem.decode())
    headers = {"Authorization": f"Bearer {server.token()}"}
    async with (
        aiohttp.ClientSession(server.url, headers=headers, connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.get(f"{CM}?watch=true") as answer,
    ):
        reading = asyncio.create_task(answer.content.read())
        await asyncio.sleep(0)
        await server.stop()
        assert await reading == b""


async def test_a_connection_whose_client_is_silent_is_closed_by_the_stop(tmp_path):
    """asyncio waits 30 s for the client's part of TLS's end; a client that is stopped never plays it."""
    server = ApiServer(workdir=tmp_path)
    await server.start()
    context = ssl.create_default_context(cadata=server.ca_pem.decode())

    def connected() -> ssl.SSLSocket:
        raw = socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])))
        return context.wrap_socket(raw, server_hostname="127.0.0.1")

    client = await asyncio.to_thread(connected)
    with client:
        await asyncio.sleep(0.05)
        await server.stop()
        await asyncio.sleep(0)
        gc.collect()
        server_side = [o for o in gc.get_objects() if isinstance(o, socket.socket) and _is_to(o, client.getsockname())]
        assert server_side == []


def _is_to(each: socket.socket, address: object) -> bool:
    try:
        return each.fileno() != -1 and each.getpeername() == address
    except OSError:
        return False


async def test_a_server_that_starts_again_has_its_objects_and_not_its_past(tmp_path):
    server = ApiServer(workdir=tmp_path)
    await server.start()
    port, then = int(server.url.rsplit(":", 1)[1]), server.state.store.revision
    context = ssl.create_default_context(cadata=server.ca_pem.decode())
    headers = {"Authorization": f"Bearer {server.token()}", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(server.url, headers=headers, connector=aiohttp.TCPConnector(ssl=context)) as http:
        assert (await send(http, "POST", CM, {"metadata": {"name": "kept"}}))[0] == 201
        await server.stop()
        with pytest.raises(aiohttp.ClientError):
            await send(http, "POST", CM, {"metadata": {"name": "lost"}})
        await server.start(port=port)
        assert (await send(http, "GET", f"{CM}/kept"))[0] == 200
        async with http.get(f"{CM}?watch=true&resourceVersion={then}") as answer:
            assert json.loads(await answer.content.readline())["object"]["code"] == 410
    await server.stop()


async def test_open_watches_can_be_broken(server, http):
    async with http.get(f"{CM}?watch=true") as answer:
        assert server.faults.close_watches("pods") == 0
        assert server.faults.close_watches("configmaps") == 1
        with pytest.raises(aiohttp.ClientError):
            await answer.content.read()


async def test_a_fault_strikes_the_next_matching_requests_only(server, http):
    fault = server.faults.fail(429, verb="get", resource="namespaces", count=2, retry_after_s=3)
    for _ in range(2):
        status, body, headers = await send(http, "GET", "/api/v1/namespaces/default")
        assert (status, body["reason"], headers["Retry-After"]) == (429, "TooManyRequests", "3")
    assert (await send(http, "GET", "/api/v1/namespaces/default"))[0] == 200
    assert fault.hits == 2


async def test_a_fault_may_close_the_connection_or_wait(server, http):
    server.faults.add(Fault(verb="create", resource="configmaps", drop=True))
    with pytest.raises(aiohttp.ClientError):
        await send(http, "POST", CM, {"metadata": {"name": "lost"}})
    server.faults.delay(0.01, verb="get")
    assert (await send(http, "GET", f"{CM}/lost"))[0] == 404
