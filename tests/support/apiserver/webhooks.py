"""A webhook server for tests: HTTPS with a CA of its own, answering every review as scripted.

Keeps the reviews it got. The modes are those of the recorded admission scenarios; a callable decides freely.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.server import utc_now
from fairlead.sandbox.apiserver.wire import tls

Answer = Callable[[str, Json], Any]
"""(path, request) → the response's fields beyond uid, or a whole body (str), or an int status."""


@dataclass
class Seen:
    path: str  # with its query
    headers: dict[str, str]
    review: Json


@dataclass
class TestWebhook:
    """`async with TestWebhook(workdir) as hook:` serves; set `hook.answer` between requests."""

    __test__ = False  # not a test case

    workdir: Path
    host: str = "127.0.0.1"
    answer: Answer = field(default=lambda _path, _request: {"allowed": True})
    seen: list[Seen] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        self._authority = tls.make_authority(utc_now())
        self._released = asyncio.Event()
        await self._listen(0)
        return self

    async def _listen(self, port: int) -> None:
        self._runner = web.ServerRunner(web.Server(self._serve, handler_cancellation=True), shutdown_timeout=0.1)
        await self._runner.setup()
        context = tls.server_context(self._authority, self.host, self.workdir, utc_now())
        await web.TCPSite(self._runner, self.host, port, ssl_context=context).start()
        self.port: int = self._runner.addresses[0][1]

    async def restart(self) -> None:
        """Close all connections and listen again in the same place."""
        await self._runner.cleanup()
        await self._listen(self.port)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._released.set()
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        return f"https://{self.host}:{self.port}"

    @property
    def ca_bundle(self) -> str:
        """For `clientConfig.caBundle`."""
        return base64.b64encode(self._authority.pem).decode()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        review = json.loads(await request.read())
        self.seen.append(Seen(request.path_qs, dict(request.headers), review))
        said = self.answer(request.path, review["request"])
        if asyncio.iscoroutine(said):
            said = await said
        if isinstance(said, int):
            return web.Response(status=said)
        if isinstance(said, str):
            return web.Response(text=said, content_type="application/json")
        response = {"uid": review["request"]["uid"], **said}
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        return web.json_response(body)

    def mode(self, name: str) -> None:
        """Answer as the recorded webhook did in this mode."""
        self.answer = lambda path, _request: self._recorded(name, path)

    def _recorded(self, name: str, path: str) -> Any:
        mutating = path == "/mutate"
        match name:
            case "patch" if mutating:
                return patch([{"op": "add", "path": "/metadata/annotations", "value": {"example.com/seen": "1"}}])
            case "badpatch":
                return patch([{"op": "remove", "path": "/spec/nope"}])
            case "deny" if not mutating:
                return deny({"code": 403, "reason": "Forbidden", "message": "tenant a may not use whole GPUs"})
            case "deny-bare" if not mutating:
                return {"allowed": False}
            case "deny-422" if not mutating:
                causes = [{"reason": "FieldValueInvalid", "message": "m", "field": "spec.x"}]
                return deny({"code": 422, "reason": "Invalid", "message": "bad", "details": {"causes": causes}})
            case "warn":
                return {"allowed": True, "warnings": ["gang-size defaulted to 4"]}
            case "wronguid":
                return {"allowed": True, "uid": "x"}
            case "500":
                return 500
            case "garbage":
                return '"not a review"'
            case "slow":
                return self._slow()
            case _:
                return {"allowed": True}

    async def _slow(self) -> Json:
        await self._released.wait()  # until the test is over: the caller gives up first
        return {"allowed": True}


def patch(operations: list[Json]) -> Json:
    encoded = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": encoded}


def deny(status: Json) -> Json:
    return {"allowed": False, "status": status}
