"""As much of an apiserver as `fairlead ui` asks, over real sockets: lists, watches, TokenReviews and SubjectAccessReviews.

Users are called after what they may see: `all-7` everything, `team-3-12` nodes, queues and the gangs of namespace team-3.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from aiohttp import web

from fairlead.kube.resources import Raw
from tests.support.ui import Lists

_KINDS = {
    "gangs": "fairlead.dev/v1alpha1",
    "queues": "fairlead.dev/v1alpha1",
    "resourceclaims": "resource.k8s.io/v1",
    "resourceslices": "resource.k8s.io/v1",
    "deviceclasses": "resource.k8s.io/v1",
    "pods": "v1",
    "nodes": "v1",
    "events": "v1",
}


class Apiserver:
    def __init__(self, lists: Lists) -> None:
        self.lists = lists
        self.version = 0
        self._watches: dict[str, set[asyncio.Queue[bytes]]] = {kind: set() for kind in _KINDS}
        for kind, found in lists.items():
            for raw in found:
                self._stamp(kind, raw)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Yields its address."""
        app = web.Application()
        app.router.add_get("/version", self._version)
        for kind, api in _KINDS.items():
            app.router.add_get(f"/{'apis' if '/' in api else 'api'}/{api}/{kind}", self._objects)
        app.router.add_post("/apis/authentication.k8s.io/v1/tokenreviews", self._token)
        app.router.add_post("/apis/authorization.k8s.io/v1/subjectaccessreviews", self._access)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    def put(self, kind: str, raw: Raw) -> None:
        """Replace an object that is in the lists already."""
        self._stamp(kind, raw)
        line = msgspec.json.encode({"type": "MODIFIED", "object": raw}) + b"\n"
        for each in self._watches[kind]:
            each.put_nowait(line)

    def _stamp(self, kind: str, raw: Raw) -> None:
        self.version += 1
        raw["metadata"]["resourceVersion"] = str(self.version)
        raw["metadata"].setdefault("uid", f"uid-{kind}-{self.version}")

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"gitVersion": "v1.36.2"})

    async def _objects(self, request: web.Request) -> web.StreamResponse:
        kind = request.path.rpartition("/")[2]
        if request.query.get("watch") != "true":
            found = {"metadata": {"resourceVersion": str(self.version)}, "items": self.lists[kind]}
            return web.Response(body=msgspec.json.encode(found), content_type="application/json")
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._watches[kind].add(lines)
        try:
            while True:
                await answer.write(await lines.get())
        finally:
            self._watches[kind].discard(lines)

    async def _token(self, request: web.Request) -> web.Response:
        asked = (await request.json())["spec"]
        user: dict[str, Any] = {
            "username": str(asked["token"]).partition(".")[2].partition(".")[0] or asked["token"],
            "groups": [],
        }
        status: dict[str, Any] = {"authenticated": True, "user": user, "audiences": asked.get("audiences") or []}
        return web.json_response({"status": status}, status=201)

    async def _access(self, request: web.Request) -> web.Response:
        asked = (await request.json())["spec"]
        wanted = asked.get("resourceAttributes") or {}
        everything = asked["user"].startswith("all-") or wanted.get("resource") != "gangs"
        own = "-".join(asked["user"].split("-")[:2])
        return web.json_response({"status": {"allowed": everything or wanted.get("namespace") == own}}, status=201)
