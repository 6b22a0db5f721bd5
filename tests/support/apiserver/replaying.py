"""Recorded exchanges, replayed on a server's inside.

A recording tells requests and answers, not what else went on: objects that were there before, and what the claim
controller and scheduler that ran beside it wrote. `Replay` does what they did, just before the step whose answer shows
it, and only where no request of the scenario could have: it seeds objects that no request created, plays the changes that a
watch saw, and writes the status that loops own. Everything else must come out by itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

from fairlead.sandbox.apiserver.call import Target, target_of
from fairlead.sandbox.apiserver.kinds.base import Kind
from fairlead.sandbox.apiserver.kinds.request import Json, clone
from fairlead.sandbox.apiserver.server import ApiServer
from fairlead.sandbox.apiserver.wire.exchange import Request, Response, Stream, warning_header
from tests.support.apiserver.implied import implied_by, namespaces_made_by
from tests.support.apiserver.recording import Exchange, Outcome, made_by_loops, node_of

_TIME = "2026-11-20T10:00:00Z"
_UID = "6f3c1a52-9f0b-4a8e-8d5b-3f8f0f4c2e11"
_FAR = 100_000_000  # revisions above are meant to be of the future, those below _OLD to be compacted
_OLD = 100


class Replay:
    """Replays recordings on one server, which it does not need to listen."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._state = server.state
        self._dispatch = server.dispatcher.handle
        self._names: dict[str, str] = {}  # recorded generated names → ours
        self._revisions: dict[int, int] = {}  # recorded revisions → ours
        self._made_namespaces: set[str] = set()  # by the scenario itself
        self._last: tuple[str, Any] = ("", None)  # path and body of the list before, for its next page

    async def run(self, exchanges: list[Exchange]) -> list[Outcome]:
        """One scenario's exchanges, in order."""
        implied = implied_by(exchanges)
        self._made_namespaces = namespaces_made_by(exchanges)
        outcomes = []
        for index, exchange in enumerate(exchanges):
            for one in implied:
                if one.since == index:
                    await self._seed_namespace(one.target)
                    self._seed(one.target, one.obj)
            if exchange.request is not None and not _misses_namespace(exchange):
                await self._seed_namespace(target_of(Request.of("GET", exchange.request["path"])))
            outcomes.append(await self._step(exchange))
        return outcomes

    # -- the world before
    async def _seed_namespace(self, target: Target) -> None:
        """Namespaces are taken for granted, unless the scenario makes them."""
        known = self._state.get("", "namespaces", target.namespace) is not None
        known = known or target.namespace in self._made_namespaces
        if target.namespace and target.resource != "namespaces" and not known:
            await self._send("POST", "/api/v1/namespaces", {"metadata": {"name": target.namespace}})

    def _seed(self, target: Target, shown: Json) -> None:
        """Store an object that the recording shows and no request created."""
        kind = self._kind(target)
        if kind is None:
            return
        obj = self._concrete(shown, None)
        key = (obj["metadata"].get("namespace", "") if kind.namespaced else "", obj["metadata"]["name"])
        if self._state.store.get(kind.storage, key) is not None:
            return
        obj |= {"apiVersion": kind.api_version, "kind": kind.kind}
        obj["metadata"]["uid"] = self._state.new_uid()
        kind.strategy.default(obj)
        self._state.store.put(kind.storage, key, obj, expect=None)

    # -- one step
    async def _step(self, exchange: Exchange) -> Outcome:
        request = exchange.request
        if request is None:
            return await self._next_page(exchange)
        path = self._path(request["path"])
        target = target_of(Request.of(request["method"], path))
        if request.get("watch"):
            await self._play(target, request["path"], exchange.response["events"])
            path = _briefly(self._path(request["path"]))
        self._catch_up(request["method"], target, exchange.response)
        body = self._request_body(request, target, exchange.response)
        served = self._serves(path, target)
        outcome = await self._exchange(exchange, request, path, body)
        outcome.served = served
        self._learn_name(request, exchange.response, outcome)
        if request["method"] == "GET" and "limit=" in path:
            self._last = (path, outcome.body)
        return outcome

    def _serves(self, path: str, target: Target) -> bool:
        """Whether the path is about a group that is served here."""
        parts = path.partition("?")[0].strip("/").split("/")
        group = target.group if target.is_resource else parts[1] if parts[0] == "apis" and len(parts) > 1 else ""
        return group in self._state.registry.groups()

    async def _next_page(self, exchange: Exchange) -> Outcome:
        path, body = self._last
        if not isinstance(body, dict):
            return Outcome(exchange, exchange.response["status"], served=False)  # of a list that was not recorded
        token = body["metadata"].get("continue", "")
        return await self._exchange(exchange, {"method": "GET"}, f"{path}&continue={token}", None)

    async def _exchange(self, exchange: Exchange, request: Json, path: str, body: Any) -> Outcome:
        headers = {"User-Agent": "recorder/1"}
        if "accept" in request:
            headers["Accept"] = request["accept"]
        if "contentType" in request:
            headers["Content-Type"] = request["contentType"]
        user = request.get("as", "admin")
        if user not in {"anonymous", "none"}:
            headers["Authorization"] = "Bearer " + ("wrong" if "token" in user else self._server.token(user))
        data = b"" if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        answer = await self._dispatch(Request.of(request["method"], path, headers, data))
        assert answer is not None
        if isinstance(answer, Stream):
            events = [json.loads(line) async for line in _lines(answer)]
            return Outcome(exchange, answer.status, answer.content_type, events=events)
        return Outcome(exchange, answer.status, answer.content_type, _decoded(answer), warning=_warning(answer))

    async def _send(self, method: str, path: str, body: Any, content_type: str = "application/json") -> Response:
        headers = {"Authorization": "Bearer " + self._server.token(), "Content-Type": content_type}
        data = b"" if body is None else json.dumps(body).encode()
        answer = await self._dispatch(Request.of(method, path, headers, data))
        assert isinstance(answer, Response)
        return answer

    # -- requests, with our names and revisions
    def _path(self, path: str) -> str:
        for recorded, ours in self._names.items():
            path = path.replace(recorded, ours)

        def ours_of(match: re.Match[str]) -> str:
            recorded = int(match.group(2))
            if recorded < _OLD or recorded > _FAR:
                return match.group(0)
            return match.group(1) + str(self._revisions.setdefault(recorded, self._state.store.revision))

        path = path.replace("%3Crv%3E", "<rv>").replace("<rv>", str(self._state.store.revision))
        return re.sub(r"(resourceVersion=)(\d+)", ours_of, path)

    def _request_body(self, request: Json, target: Target, response: Json) -> Any:
        body = request.get("body")
        if not isinstance(body, (dict, list)):
            return body
        return self._concrete(body, self._object(target), refused=response["status"] == 409)

    def _concrete(self, value: Any, current: Json | None, *, refused: bool = False, path: str = "") -> Any:
        """The recording's placeholders, filled in for the object as it is now."""
        if isinstance(value, dict):
            return {k: self._concrete(v, current, refused=refused, path=f"{path}.{k}") for k, v in value.items()}
        if isinstance(value, list):
            return [self._concrete(one, current, refused=refused, path=path) for one in value]
        metadata = current["metadata"] if current else {}
        if value == "<rv>":
            return metadata.get("resourceVersion", "")
        if value == "<stale>":
            return str(int(metadata.get("resourceVersion", "2")) - 1)
        if value == "<uid>":
            own = path in {".metadata.uid", ".preconditions.uid"} and not (refused and "preconditions" in path)
            return metadata.get("uid", _UID) if own else _UID
        if value == "<time>":
            return metadata.get("creationTimestamp", _TIME) if path == ".metadata.creationTimestamp" else _TIME
        return self._names.get(value, value) if isinstance(value, str) else value

    def _learn_name(self, request: Json, response: Json, outcome: Outcome) -> None:
        """A generated name is ours to choose; from here on the recorded one means ours."""
        body = request.get("body")
        if not isinstance(body, dict) or not (body.get("metadata") or {}).get("generateName"):
            return
        if 200 <= outcome.status < 300 and isinstance(outcome.body, dict):
            recorded = response["body"]["metadata"]["name"]
            self._names[recorded] = outcome.body["metadata"]["name"]

    # -- what the loops of the recorded cluster did
    def _kind(self, target: Target) -> Kind | None:
        return self._state.registry.find(target.group, target.version, target.resource)

    def _object(self, target: Target) -> Json | None:
        kind = self._kind(target)
        if kind is None or not target.name:
            return None
        stored = self._state.store.get(kind.storage, (target.namespace if kind.namespaced else "", target.name))
        return stored.obj if stored else None

    def _catch_up(self, method: str, target: Target, response: Json) -> None:
        """Bring in what controllers wrote between the steps: claims for pods, status, finalizers they let go."""
        kind = self._kind(target)
        if kind is None or target.subresource or response["status"] >= 300:
            return
        body = response.get("body")
        if method == "GET" and isinstance(body, dict) and body.get("kind") == "Table" and not target.name:
            if kind.plural == "nodes":
                for row in body["rows"]:
                    self._seed(target, node_of(row))
            self._catch_up_list(kind, target, [row["object"] for row in body["rows"]])
        elif method == "GET" and isinstance(body, dict) and body.get("kind", "").endswith("List") and not target.name:
            self._catch_up_list(kind, target, body.get("items") or [])
        elif isinstance(body, dict) and target.name and method != "POST":
            stored = self._state.store.get(kind.storage, (target.namespace if kind.namespaced else "", target.name))
            if stored is not None and "status" in body and kind.plural in {"pods", "resourceclaims"}:
                self._rewrite(kind, stored.key, body["status"])

    def _catch_up_list(self, kind: Kind, target: Target, items: list[Json]) -> None:
        listed = {self._names.get(item["metadata"]["name"], item["metadata"]["name"]) for item in items}
        for item in items:
            if made_by_loops(item) and "spec" in item:
                self._seed(target, item)
        for stored in self._state.store.entries(kind.storage, target.namespace):
            held = stored.obj["metadata"].get("deletionTimestamp") and stored.obj["metadata"].get("finalizers")
            if stored.key[1] not in listed and (held or made_by_loops(stored.obj)):
                self._state.store.remove(kind.storage, stored.key, expect=stored.revision)

    def _rewrite(self, kind: Kind, key: tuple[str, str], status: Json) -> None:
        stored = self._state.store.get(kind.storage, key)
        assert stored is not None
        wanted = self._concrete(status, stored.obj)
        if stored.obj.get("status") == wanted or "<uid>" in json.dumps(status):
            return
        new = clone(stored.obj)
        new["status"] = wanted
        self._state.store.put(kind.storage, key, new, expect=stored.revision)

    async def _play(self, target: Target, recorded_path: str, events: list[Json]) -> None:
        """Do what a watch from a recorded revision saw, once: the first watch from there starts it."""
        match = re.search(r"resourceVersion=(\d+)", recorded_path)
        if match is None or int(match.group(1)) in self._revisions or not _OLD <= int(match.group(1)) <= _FAR:
            match_known = match is not None and int(match.group(1)) in self._revisions
            if match is None or not match_known or not self._unplayed(target, events):
                return
        else:
            self._revisions[int(match.group(1))] = self._state.store.revision
        base = target.path
        for event in events:
            shown = event["object"]
            name = shown.get("metadata", {}).get("name")
            if not name:
                continue
            obj = self._concrete(shown, None)
            for server_set in ("uid", "resourceVersion", "creationTimestamp", "generation"):
                obj["metadata"].pop(server_set, None)
            exists = (await self._send("GET", f"{base}/{name}", None)).status == 200
            if event["type"] == "DELETED":
                await self._send("DELETE", f"{base}/{name}", None)
            elif exists:
                await self._send("PUT", f"{base}/{name}", obj)
            else:
                await self._send("POST", base, obj)

    def _unplayed(self, target: Target, events: list[Json]) -> bool:
        """Whether nothing has happened in this collection since the revision that the watch starts from."""
        kind = self._kind(target)
        if kind is None or not events:
            return False
        return not self._state.store.since(kind.storage, min(self._revisions.values()))


def _misses_namespace(exchange: Exchange) -> bool:
    """Whether the real one said that the request's namespace is not there."""
    return exchange.response["status"] == 404 and 'namespaces "' in str(exchange.response.get("body"))


def _briefly(path: str) -> str:
    """A watch that ends soon: all that it is to see has happened."""
    if "timeoutSeconds=" not in path:
        return f"{path}&timeoutSeconds=1"
    return re.sub(r"timeoutSeconds=\d+", "timeoutSeconds=1", path)


async def _lines(stream: Stream) -> AsyncIterator[bytes]:
    async for chunk in stream.chunks:
        for line in chunk.splitlines():
            yield line


def _decoded(answer: Response) -> Any:
    try:
        return json.loads(answer.body)
    except ValueError:
        return answer.body.decode()


def _warning(answer: Response) -> str:
    return ", ".join(filter(None, map(warning_header, answer.warnings)))
