"""The sandbox's apiserver answers what a real 1.36.2 one answered: every exchange of every `apiserver*.jsonl.gz`.

One test per exchange. A file's scenarios run in order on one server, as they were recorded; a scenario runs when its first
test does. What is compared, and what is not, is in `differences` and its tables.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fairlead.sandbox.apiserver.server import ApiServer
from tests.support.apiserver.recording import Exchange, Outcome, load
from tests.support.apiserver.replaying import Replay

_VOLATILE = {"<uid>", "<rv>", "<time>"}
_AGE = re.compile(r"(\d+[smhdy])+|<unknown>")
# Fields that the project does not read: who prints them may differ.
_UNREAD = {"managedFields", "continue", "serverAddress", "hash", "description"}
# Wording that is not ours to copy: CEL's compiler, and the diffs and Go structs that some messages carry.
_COMPILER = re.compile(r"compilation failed: .*", re.DOTALL)
_GO_DIFF = re.compile(r"\n@@.*", re.DOTALL)
_GO_STRUCT = re.compile(r"Invalid value: \{\".*?\}: (?=field is immutable|must specify)", re.DOTALL)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One parameter per exchange, with the file it is from."""
    directory: Path = metafunc.config.getoption("--vectors")
    files = sorted(directory.glob("apiserver*.jsonl.gz")) if directory.is_dir() else []
    cases = [
        pytest.param(path, index, id=f"{path.name.removesuffix('.jsonl.gz')}-{exchange.scenario}-{exchange.step}")
        for path in files
        for index, exchange in enumerate(load(path))
    ]
    if not cases:
        reason = f"no apiserver*.jsonl.gz in {directory}"
        cases = [pytest.param(None, 0, id="absent", marks=pytest.mark.skip(reason=reason))]
    metafunc.parametrize(("path", "index"), cases)


_outcomes: dict[Path, list[Outcome]] = {}


def outcomes_of(path: Path) -> list[Outcome]:
    """All outcomes of a file, replayed once."""
    if path not in _outcomes:
        _outcomes[path] = asyncio.run(_replay(load(path)))
    return _outcomes[path]


async def _replay(exchanges: list[Exchange]) -> list[Outcome]:
    with tempfile.TemporaryDirectory() as directory:
        server = ApiServer(workdir=Path(directory), random=Random(1), clock=lambda: datetime.now(UTC))
        replay = Replay(server)
        outcomes: list[Outcome] = []
        for scenario in dict.fromkeys(exchange.scenario for exchange in exchanges):
            outcomes += await replay.run([one for one in exchanges if one.scenario == scenario])
        await server.stop()
    order = {id(exchange): position for position, exchange in enumerate(exchanges)}
    return sorted(outcomes, key=lambda outcome: order[id(outcome.exchange)])


def test_an_exchange_is_answered_as_by_a_real_apiserver(path: Path, index: int) -> None:
    outcome = outcomes_of(path)[index]
    wanted = outcome.exchange.response
    if not outcome.served and wanted["status"] < 300:
        pytest.skip("the sandbox does not serve this API group")
    problems = []
    if outcome.status != wanted["status"]:
        problems.append(f"status: {outcome.status}, real: {wanted['status']}")
    if outcome.content_type != wanted.get("contentType", outcome.content_type):
        problems.append(f"content type: {outcome.content_type}, real: {wanted['contentType']}")
    if wanted.get("warning", "") != outcome.warning:
        problems.append(f"warning: {outcome.warning!r}, real: {wanted.get('warning', '')!r}")
    if "events" in wanted:
        problems += differences(outcome.events, wanted["events"], "events")
    else:
        problems += differences(
            _served(outcome.body, wanted.get("body")), _served(wanted.get("body"), outcome.body), "body"
        )
    request = outcome.exchange.request
    assert not problems, f"{request and request['method']} {request and request['path']}\n" + "\n".join(problems)


def _served(body: Any, other: Any) -> Any:
    """A discovery answer, less the groups that the other side does not have."""
    if not isinstance(body, dict) or not isinstance(other, dict):
        return body
    kind = body.get("kind")
    if kind == "APIGroupList":
        names = {group["name"] for group in other.get("groups", [])}
        groups = [group for group in body["groups"] if group["name"] in names]
        return {**body, "groups": sorted(groups, key=lambda group: str(group["name"]))}
    if kind == "APIGroupDiscoveryList":
        names = {item["metadata"].get("name") for item in other.get("items", [])}
        items = [item for item in body["items"] if item["metadata"].get("name") in names]
        return {**body, "items": sorted(items, key=lambda item: str(item["metadata"].get("name")))}
    if "paths" in body and "kind" not in body:
        return {"paths": {path: {} for path in body["paths"] if path in other.get("paths", {})}}
    return body


def differences(ours: Any, real: Any, path: str) -> list[str]:
    """Where the two differ, as `path: ours, real`."""
    if isinstance(real, str) and real in _VOLATILE:
        return [] if isinstance(ours, str) and ours else [f"{path}: {ours!r}, real: a value"]
    if isinstance(real, dict) and isinstance(ours, dict):
        return _dict_differences(ours, real, path)
    if isinstance(real, list) and isinstance(ours, list):
        if len(ours) != len(real):
            return [f"{path}: {len(ours)} elements, real: {len(real)}: {_names(ours)} / {_names(real)}"]
        pairs = enumerate(zip(ours, real, strict=True))
        return [problem for index, (a, b) in pairs for problem in differences(a, b, f"{path}[{index}]")]
    if isinstance(real, str) and isinstance(ours, str):
        same = _text(ours) == _text(real) or bool(_AGE.fullmatch(ours) and _AGE.fullmatch(real))
        return [] if same or _generated(ours, real) else [f"{path}: {ours!r}\n    real: {real!r}"]
    return [] if ours == real and type(ours) is type(real) else [f"{path}: {ours!r}, real: {real!r}"]


def _dict_differences(ours: dict[str, Any], real: dict[str, Any], path: str) -> list[str]:
    problems = []
    for key in sorted(ours.keys() | real.keys()):
        if key in _UNREAD:
            continue
        if key not in ours:
            problems.append(f"{path}.{key}: missing, real: {real[key]!r}")
        elif key not in real:
            problems.append(f"{path}.{key}: {ours[key]!r}, real: absent")
        else:
            problems += differences(ours[key], real[key], f"{path}.{key}")
    return problems


def _names(items: list[Any]) -> list[Any]:
    return [one.get("metadata", {}).get("name", one.get("name")) if isinstance(one, dict) else one for one in items]


def _text(text: str) -> str:
    """A message without the parts that are not ours to copy, and without uids and revisions."""
    text = _COMPILER.sub("compilation failed", text)
    text = _GO_DIFF.sub("", text)
    text = _GO_STRUCT.sub("Invalid value: ", text)
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|<uid>", "<uid>", text)
    return re.sub(r"(too old resource version: \d+ )\(\d+\)|(current: )\d+", r"\1\2<rv>", text)


def _generated(ours: str, real: str) -> bool:
    """Names made from generateName: the same prefix, five characters of chance."""
    chance = re.compile(r"(.+-)[bcdfghjklmnpqrstvwxz2456789]{5}")
    left, right = chance.fullmatch(ours), chance.fullmatch(real)
    return bool(left and right and left.group(1) == right.group(1))
