"""The sandbox's apiserver asks a webhook what a real 1.36.2 one asked: every scenario of every `admission*.jsonl.gz`.

A webhook that answers as the recorded one did stands before the server; the client's exchange and the reviews that the
webhook got are compared. What the controller-manager did beside the client is done here by its user, from the recording:
the requests are the loops' business, what the server makes of them is ours. Reviews that came more than once for one
deletion (the real one asks again on each internal retry) count once, and their order across users is left open.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import pytest

from fairlead.sandbox.apiserver.server import ApiServer
from tests.support.apiserver.webhooks import TestWebhook

_GENERATED = re.compile(r"(?<=-)[bcdfghjklmnpqrstvwxz2456789]{5}\b")  # what generateName appends
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|<uid>")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_PORT = re.compile(r"127\.0\.0\.1:\d+")
_NOT_SENT = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")


@dataclass
class Result:
    """What one scenario gave."""

    answers: list[dict[str, Any]] = field(default_factory=list)
    reviews: list[dict[str, Any]] = field(default_factory=list)


def _load(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    directory: Path = metafunc.config.getoption("--vectors")
    files = sorted(directory.glob("admission*.jsonl.gz")) if directory.is_dir() else []
    cases = [
        pytest.param(path, index, id=f"{path.name.removesuffix('.jsonl.gz')}-apiserver-{one['scenario']}")
        for path in files
        for index, one in enumerate(_load(path))
    ]
    if not cases:
        reason = f"no admission*.jsonl.gz in {directory}"
        cases = [pytest.param(None, 0, id="absent", marks=pytest.mark.skip(reason=reason))]
    metafunc.parametrize(("path", "index"), cases)


_results: dict[Path, list[Result]] = {}


def result_of(path: Path, index: int) -> tuple[dict[str, Any], Result]:
    scenarios = _load(path)
    if path not in _results:
        _results[path] = asyncio.run(_replay(scenarios))
    return scenarios[index], _results[path][index]


async def _replay(scenarios: list[dict[str, Any]]) -> list[Result]:
    with tempfile.TemporaryDirectory() as directory:
        workdir = Path(directory)
        (workdir / "hook").mkdir()
        async with (
            ApiServer(workdir=workdir, random=Random(1)) as server,
            TestWebhook(workdir / "hook") as hook,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session,
        ):
            replay = Replay(server, hook, session)
            await replay.prepare(_registered(scenarios))
            return [await replay.run(scenario) for scenario in scenarios]


def _registered(scenarios: list[dict[str, Any]]) -> list[str]:
    """The resources that the recorded webhook was registered for: those that it was asked about."""
    requests = [one["review"]["request"] for scenario in scenarios for one in scenario["reviews"]]
    return sorted({"/".join(filter(None, (r["resource"]["resource"], r.get("subResource", "")))) for r in requests})


class Replay:
    def __init__(self, server: ApiServer, hook: TestWebhook, session: aiohttp.ClientSession) -> None:
        self.server, self.hook, self.session = server, hook, session
        self.names: dict[str, str] = {}

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        user: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        name, groups = (user["username"], user.get("groups", [])) if user else ("admin", ["system:masters"])
        extra = user.get("extra") if user else None
        token = self.server.state.tokens.issue(name, groups, extra, uid=f"uid-{name}")
        headers = {"Authorization": f"Bearer {token}"}
        data = None
        if body is not None:
            headers["Content-Type"] = content_type
            data = self.renamed(json.dumps(body)).encode()
        async with self.session.request(
            method, self.server.url + self.renamed(path), data=data, headers=headers
        ) as response:
            found = {"status": response.status, "body": await response.json(content_type=None)}
            if response.headers.getall("Warning", []):
                found["warning"] = ", ".join(response.headers.getall("Warning"))
            return found

    def renamed(self, text: str) -> str:
        for recorded, ours in self.names.items():
            text = text.replace(recorded, ours)
        return text.replace("<uid>", "6f3c1a52-9f0b-4a8e-8d5b-3f8f0f4c2e11").replace("<time>", "2026-11-20T10:00:00Z")

    async def prepare(self, resources: list[str]) -> None:
        namespace = {"metadata": {"name": "adm", "labels": {"adm": "y", "tenant": "a"}}}
        assert (await self.send("POST", "/api/v1/namespaces", namespace))["status"] == 201
        for kind, path in (("Mutating", "/mutate"), ("Validating", "/validate")):
            rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": resources}
            webhook = {
                "name": "rec.example.com",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "timeoutSeconds": 1,
                "clientConfig": {"url": self.hook.url + path, "caBundle": self.hook.ca_bundle},
                "namespaceSelector": {"matchLabels": {"adm": "y"}},
                "rules": [rule],
            }
            configuration = {"metadata": {"name": "rec"}, "webhooks": [webhook]}
            plural = f"{kind.lower()}webhookconfigurations"
            made = await self.send("POST", f"/apis/admissionregistration.k8s.io/v1/{plural}", configuration)
            assert made["status"] == 201, made

    async def run(self, scenario: dict[str, Any]) -> Result:
        self.hook.seen.clear()
        self.hook.mode(scenario["webhookMode"])
        result = Result()
        for exchange in scenario["exchanges"]:
            request = exchange["request"]
            answer = await self.send(
                request["method"],
                request["path"],
                request.get("body"),
                content_type=request.get("contentType", "application/json"),
            )
            result.answers.append(answer)
        for recorded in scenario["reviews"]:
            request = recorded["review"]["request"]
            if request["userInfo"]["username"] != "admin":
                if recorded["path"].startswith("/mutate"):
                    await self.manage(request)
                self.learn(request)
        result.reviews = [
            {"path": seen.path, "headers": seen.headers, "review": seen.review} for seen in self.hook.seen
        ]
        return result

    async def manage(self, request: dict[str, Any]) -> None:
        """Make the request behind a recorded review, as the controller-manager (or the scheduler) did."""
        user = request["userInfo"]
        group, version, resource = (request["resource"][key] for key in ("group", "version", "resource"))
        root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        path = (
            f"{root}/namespaces/{request['namespace']}/{resource}" if request.get("namespace") else f"{root}/{resource}"
        )
        sub = f"/{request['subResource']}" if request.get("subResource") else ""
        if request["operation"] == "CREATE":
            body = {key: value for key, value in request["object"].items() if key != "status"}
            target = f"{path}/{request['name']}{sub}" if sub else path
            answer = await self.send("POST", target, body, user=user)
        elif request["operation"] == "DELETE":
            options = {key: request["options"][key] for key in ("gracePeriodSeconds",) if key in request["options"]}
            answer = await self.send("DELETE", f"{path}/{request['name']}", options, user=user)
        else:
            answer = await self.send(
                "PATCH",
                f"{path}/{request['name']}{sub}{_manager(request)}",
                _change(request["oldObject"], request["object"]),
                content_type="application/merge-patch+json",
                user=user,
            )
        assert answer["status"] < 300, json.dumps(answer["body"])

    def learn(self, request: dict[str, Any]) -> None:
        """The recorded generated name of what was made last is ours by another name."""
        if request["operation"] != "CREATE" or not request.get("name") or request["name"] in self.names:
            return
        prefix = request["object"]["metadata"].get("generateName")
        if prefix is None:
            return
        ours = [
            name
            for seen in self.hook.seen
            if (name := seen.review["request"].get("name", "")).startswith(self.renamed(prefix))
            and name not in self.names.values()
        ]
        self.names[request["name"]] = ours[0]


def _change(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The merge patch that leads from one recorded object to the other."""
    patch: dict[str, Any] = {}
    for key in [key for key in {**old, **new} if key not in _NOT_SENT]:
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            inner = _change(before, after)
            if inner:
                patch[key] = inner
        elif before != after:
            patch[key] = after
    return patch


def _manager(request: dict[str, Any]) -> str:
    manager = request["options"].get("fieldManager")
    return f"?fieldManager={manager}" if manager else ""


def _plain(value: Any) -> Any:
    """Without what is different each time."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items() if key not in {"managedFields", "resourceVersion"}}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, str):
        value = _TIME.sub("<time>", _PORT.sub("127.0.0.1:<port>", _UUID.sub("<uid>", value)))
        return _GENERATED.sub("<gen>", value)
    return value


def _sorted_once(reviews: list[dict[str, Any]], user: str) -> list[dict[str, Any]]:
    """The reviews of one user, without repeats, in an order that does not depend on chance."""
    found: dict[str, dict[str, Any]] = {}
    for one in reviews:
        request = _plain(one["review"]["request"])
        if request["userInfo"]["username"] == user:
            assert request["userInfo"].pop("uid")
            plain = {"path": one["path"], "request": request}
            found.setdefault(json.dumps(plain, sort_keys=True), plain)
    if user == "admin":
        return list(found.values())
    return [found[key] for key in sorted(found)]


def test_a_client_gets_what_it_got_from_a_real_apiserver(path: Path, index: int) -> None:
    scenario, result = result_of(path, index)
    for exchange, answer in zip(scenario["exchanges"], result.answers, strict=True):
        wanted = exchange["response"]
        assert answer["status"] == wanted["status"], answer
        assert _plain(answer["body"]) == _plain(wanted["body"])
        assert answer.get("warning") == wanted.get("warning")


def test_a_webhook_is_asked_what_a_real_apiserver_asked(path: Path, index: int) -> None:
    scenario, result = result_of(path, index)
    users = dict.fromkeys(one["review"]["request"]["userInfo"]["username"] for one in scenario["reviews"])
    for user in users:
        wanted, asked = _sorted_once(scenario["reviews"], user), _sorted_once(result.reviews, user)
        assert [_title(one) for one in asked] == [_title(one) for one in wanted]
        for ours, real in zip(asked, wanted, strict=True):
            assert not _differences(ours, real, "")
    for one in result.reviews:
        assert one["review"]["apiVersion"] == "admission.k8s.io/v1"
        assert one["review"]["kind"] == "AdmissionReview"
        assert one["headers"]["User-Agent"] == "kube-apiserver-admission"
        assert one["headers"]["Accept"] == "application/json, */*"
        assert one["headers"]["Content-Type"] == "application/json"


def _differences(ours: Any, real: Any, path: str) -> list[str]:
    """Where two plain values differ."""
    if isinstance(ours, dict) and isinstance(real, dict):
        absent = object()
        pairs = [(f"{path}.{key}", ours.get(key, absent), real.get(key, absent)) for key in {**real, **ours}]
        return [
            problem
            for where, left, right in pairs
            for problem in (
                [f"{where}: {'absent' if left is absent else left!r}, real: {'absent' if right is absent else right!r}"]
                if left is absent or right is absent
                else _differences(left, right, where)
            )
        ]
    if isinstance(ours, list) and isinstance(real, list) and len(ours) == len(real):
        pairs = [(f"{path}[{index}]", *pair) for index, pair in enumerate(zip(ours, real, strict=True))]
        return [problem for where, left, right in pairs for problem in _differences(left, right, where)]
    return [] if ours == real else [f"{path}: {ours!r}, real: {real!r}"]


def _title(one: dict[str, Any]) -> tuple[str, ...]:
    request = one["request"]
    return (one["path"], request["operation"], request["resource"]["resource"], request.get("subResource", ""))
