"""A browser's requests to a server of pages, and the streams of live ones."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import html
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp

from fairlead.ui.reading.cluster import Source
from fairlead.ui.reading.ledger import Ledger
from fairlead.ui.serve.app import serve
from fairlead.ui.serve.what_if import Computing
from tests.support.ui.apiserver import Apiserver, source
from tests.support.ui.objects import Lists, a_cluster


class Reader:
    """What a browser gets: status, headers, text."""

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self.session = session
        self.address = address

    async def post(self, path: str, fields: Mapping[str, str], **headers: str) -> tuple[int, Mapping[str, str], str]:
        """As a form of this server's own page sends it."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        own = {"Origin": self.address.rstrip("/"), "Sec-Fetch-Site": "same-origin", **named}
        async with self.session.post(self.address.rstrip("/") + path, data=fields, headers=own) as answer:
            return answer.status, answer.headers, await answer.text()

    async def get(self, path: str, *, method: str = "GET", **headers: str) -> tuple[int, Mapping[str, str], str]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.request(
            method, self.address.rstrip("/") + path, headers=named, allow_redirects=False
        ) as answer:
            return answer.status, answer.headers, await answer.text()

    @contextlib.asynccontextmanager
    async def follow(self, stream: str, **headers: str) -> AsyncIterator[Following]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.get(self.address.rstrip("/") + stream, headers=named) as answer:
            assert answer.status == 200, await answer.text()
            assert answer.content_type == "text/event-stream"
            yield Following(answer)


@dataclasses.dataclass
class Told:
    """An event of a stream. `parts`: what takes the place of which element, by id."""

    revision: str
    retry: str
    parts: dict[str, str]
    text: str


class Following:
    """A live page's stream, as a browser reads it."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer
        self.heartbeats = 0
        self._rest = ""

    async def next(self, timeout_s: float = 10.0) -> Told:
        async with asyncio.timeout(timeout_s):
            while True:
                block, found, rest = self._rest.partition("\n\n")
                if not found:
                    data = await self.answer.content.readany()
                    if not data:
                        raise EOFError
                    self._rest += data.decode()
                    continue
                self._rest = rest
                if block.startswith(":"):
                    self.heartbeats += 1
                    continue
                return _told(block)

    async def ended(self, timeout_s: float = 10.0) -> None:
        with contextlib.suppress(EOFError):
            while True:
                await self.next(timeout_s)


def _told(block: str) -> Told:
    fields: dict[str, list[str]] = {}
    for line in block.split("\n"):
        name, _, value = line.partition(": ")
        fields.setdefault(name, []).append(value)
    text = "\n".join(fields.get("data", []))
    parts = re.findall(
        r'<hx-partial hx-target="#([a-z0-9-]+)" hx-swap="outerMorph">(.*?)</hx-partial>', text, re.DOTALL
    )
    return Told("".join(fields.get("id", [])), "".join(fields.get("retry", [])), dict(parts), text)


def stream_of(page: str) -> str:
    """The address of a page's stream."""
    found = re.search(r'hx-sse:connect="([^"]+)"', page)
    assert found is not None, "the page is not live"
    return html.unescape(found[1])


@contextlib.asynccontextmanager
async def reader(
    given: Source, ledger: Ledger | None = None, computing: Computing | None = None
) -> AsyncIterator[Reader]:
    async with serve(given, port=0, ledger=ledger, computing=computing) as address, aiohttp.ClientSession() as session:
        yield Reader(session, address)


def pages(lists: Lists | None = None, **options: Any) -> contextlib.AbstractAsyncContextManager[Reader]:
    """Of a cluster with these objects, or of `a_cluster()`; `options` of the apiserver."""
    return reader(source(Apiserver(a_cluster() if lists is None else lists, **options)))
