"""No body makes the server fail: well-formed objects of many kinds, broken at random, get an answer below 500."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support import quick_yaml
from tests.support.apiserver.served import Served

BODIES = Path(__file__).with_name("bodies.yaml")
SEEDS: list[tuple[str, dict[str, Any]]] = [(path, body) for path, body in quick_yaml.load(BODIES.read_text())]
WRONG: list[Any] = [
    None,
    "",
    0,
    -1,
    1.5,
    True,
    [],
    {},
    "x",
    [None],
    {"a": None},
    [[]],
    "\x00",
    "é" * 300,
    2**70,
    [{}],
    {"": ""},
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, one in inner for found in places(one, (*path, key)))]


def broken(body: dict[str, Any], random: Random) -> dict[str, Any]:
    """The body with one to three places removed or replaced."""
    body = copy.deepcopy(body)
    for _ in range(random.choice((1, 1, 2, 3))):
        found = [path for path in places(body) if path]
        if not found:
            break
        *above, last = random.choice(found)
        parent: Any = body
        for step in above:
            parent = parent[step]
        if random.random() < 0.25:
            del parent[last]
        else:
            parent[last] = copy.deepcopy(random.choice(WRONG))
    return body


@pytest.mark.parametrize("seed", range(2))
async def test_a_broken_body_is_the_clients_fault(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    api = Served(tmp_path, now=datetime(2026, 11, 20, 12, tzinfo=UTC), random=Random(1))
    await api.post("/api/v1/namespaces", {"metadata": {"name": "ml"}})
    table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    for step in range(400):
        path, seeded = random.choice(SEEDS)
        whole = {"metadata": {"name": f"m{step}"}, **seeded}
        body = broken(whole, random) if step % 10 else whole
        code, answer = await api.post(path, body)
        assert code < 500, f"seed {seed}, step {step}: {path} {body}: {answer}"
        if code == 201:
            code, answer = await api.get(path, headers=table)
            assert code < 500, f"seed {seed}, step {step}: GET {path}: {answer}"
    await api.close()


async def test_the_bodies_that_are_broken_are_whole_to_begin_with(api: Served) -> None:
    for path, seeded in SEEDS:
        code, answer = await api.post(path, {"metadata": {"name": "m"}, **seeded})
        assert code == 201, f"{path}: {answer}"
