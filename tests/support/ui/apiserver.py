"""A client that answers lists and watches from tables; also refused, or not at all. The two sources of pages that read it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fairlead.kube import errors
from fairlead.kube.listing import Listing
from fairlead.kube.nulls import convert
from fairlead.kube.resources import Raw, Resource
from fairlead.kube.watching import WatchEvent
from fairlead.ui.model.facts import Facts
from fairlead.ui.reading.live import LiveSource
from fairlead.ui.reading.watched import WatchedSource
from tests.support.kube import VirtualTime, settle
from tests.support.ui.objects import NOW, Lists


class Apiserver:
    """A client that answers lists and watches. `refused`: plurals that may not be listed; `away`: nothing answers. Counts the lists.

    `rules`: the version in which DeviceTaintRules are served; "": in none.
    """

    def __init__(self, lists: Lists, *, refused: Sequence[str] = (), own: str | None = None, rules: str = "") -> None:
        self.lists = lists
        self.version = 1
        for number, raw in enumerate((raw for found in lists.values() for raw in found), 2):
            raw["metadata"]["resourceVersion"] = str(number)
            raw["metadata"].setdefault("uid", f"uid-{number}")
            self.version = number
        self._watches: dict[str, list[asyncio.Queue[tuple[str, Raw] | None]]] = {}
        self.refused = set(refused)
        self.own = own  # the namespace in which everything may be listed
        self.away = False
        self.asked = 0
        self.rules = rules

    async def list(
        self, resource: Resource[Any], namespace: str | None = None, *, each: Any = None, **_: Any
    ) -> Listing[Any]:
        self.asked += 1
        if self.away:
            raise errors.Unreachable("connection refused")
        if resource.plural in self.refused and (namespace is None or namespace != self.own):
            raise errors.Forbidden("forbidden")
        items = [
            raw if resource.type is dict else convert(raw, resource.type)
            for raw in self.lists[resource.plural]
            if namespace is None or raw["metadata"].get("namespace") == namespace
        ]
        for item in items if each is not None else ():
            each(item)
        return Listing(items=[] if each is not None else items, resource_version=str(self.version))

    async def watch(
        self, resource: Resource[Any], namespace: str | None = None, **_: Any
    ) -> AsyncIterator[WatchEvent[Any]]:
        if self.away:
            raise errors.Unreachable("connection refused")
        changes: asyncio.Queue[tuple[str, Raw] | None] = asyncio.Queue()
        self._watches.setdefault(resource.plural, []).append(changes)
        try:
            while (change := await changes.get()) is not None:
                kind, raw = change
                yield WatchEvent(kind, raw if resource.type is dict else convert(raw, resource.type))
            raise errors.Unreachable("connection reset")
        finally:
            self._watches[resource.plural].remove(changes)

    async def request(self, method: str, path: str, **_: Any) -> bytes:
        if self.away:
            raise errors.Unreachable("connection refused")
        if self.rules and path == "/apis/resource.k8s.io":
            return json.dumps({"versions": [{"version": "v1"}, {"version": self.rules}]}).encode()
        if self.rules and path == f"/apis/resource.k8s.io/{self.rules}":
            return b'{"resources": [{"name": "devicetaintrules"}]}'
        return b"{}"

    def put(self, plural: str, raw: Raw) -> Raw:
        """Writes an object, new or changed; watches see it."""
        self.version += 1
        meta = raw["metadata"] | {"resourceVersion": str(self.version)}
        meta.setdefault("uid", f"uid-{self.version}")
        written = {**raw, "metadata": meta}
        found = self.lists[plural]
        at = next((at for at, each in enumerate(found) if _key(each) == _key(raw)), None)
        if at is None:
            found.append(written)
        else:
            found[at] = written
        self._tell(plural, "ADDED" if at is None else "MODIFIED", written)
        return written

    def delete(self, plural: str, raw: Raw) -> None:
        self.version += 1
        self.lists[plural] = [each for each in self.lists[plural] if _key(each) != _key(raw)]
        self._tell(plural, "DELETED", {**raw, "metadata": raw["metadata"] | {"resourceVersion": str(self.version)}})

    def go(self) -> None:
        """Away, with every watch that is open."""
        self.away = True
        for watches in self._watches.values():
            for each in watches:
                each.put_nowait(None)

    def _tell(self, plural: str, kind: str, raw: Raw) -> None:
        for each in self._watches.get(plural, ()):
            each.put_nowait((kind, raw))


def _key(raw: Raw) -> tuple[str, str]:
    return raw["metadata"].get("namespace", ""), raw["metadata"]["name"]


class Times:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@contextlib.asynccontextmanager
async def watched(apiserver: Apiserver, time: VirtualTime | None = None) -> AsyncIterator[WatchedSource]:
    """Runs inside the block, in virtual time, which begins at `NOW`."""
    at = time or VirtualTime(NOW)
    client: Any = apiserver
    made = WatchedSource(client, clock=at.clock, wall=at.clock, sleep=at.sleep)
    task = asyncio.create_task(made.run())
    try:
        await settle()
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def source(apiserver: Apiserver, times: Times | None = None) -> LiveSource:
    at = times or Times()
    client: Any = apiserver
    return LiveSource(client, namespace=apiserver.own or "default", clock=at, wall=at)


async def facts(lists: Lists, **options: Any) -> Facts:
    """What pages are made of; `options` of the apiserver."""
    return await source(Apiserver(lists, **options)).facts()
