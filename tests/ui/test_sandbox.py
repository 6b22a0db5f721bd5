"""`fairlead ui` as its user starts it, on a cluster with all programs: real devices, claims and gangs, and the command line beside it."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from fairlead.kube import resources
from fairlead.sandbox.cluster import NodeSpec
from tests.support import ui
from tests.support.sandbox import FOREVER, View, cluster, gang_of, pod, template

from .markup import check


@contextlib.asynccontextmanager
async def served(*words: str) -> AsyncIterator[ui.Reader]:
    """By a process of its own, until the block ends; SIGINT ends it well."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fairlead", "ui", "--port", "0", *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        address = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()
        assert address.startswith("http://127.0.0.1:"), (await process.communicate())[1].decode()
        async with aiohttp.ClientSession() as session:
            yield ui.Reader(session, address)
    finally:
        process.send_signal(signal.SIGINT)
        await process.communicate()
    assert process.returncode == 0


async def fairlead(*words: str) -> bytes:
    done = await asyncio.create_subprocess_exec(sys.executable, "-m", "fairlead", *words, stdout=subprocess.PIPE)
    out, _ = await done.communicate()
    assert done.returncode == 0
    return out


@pytest.mark.slow
async def test_pages_of_a_cluster_and_of_its_snapshot(tmp_path: Path):
    async with cluster(NodeSpec("big", "hgx-h100")) as made, made.client() as client:
        view = View(client)
        quota = {"flavors": [{"flavor": "h100", "deserved": 8}], "namespaceSelector": {}}
        await client.create(resources.FLAVORS, {"metadata": {"name": "h100"}, "spec": {"deviceSelector": "true"}})
        await client.create(resources.QUEUES, {"metadata": {"name": "all"}, "spec": quota})
        holding, waiting = (
            pod(name, claim=name, command=FOREVER, annotations=gang_of(f"gang-{name}", 1))
            for name in ("holds", "waits")
        )
        await made.apply([template("holds", count=6), template("waits", count=4), holding])
        await view.phase("holds", "Running")
        await made.apply([waiting])
        await view.gang("gang-waits", "Waiting")
        config = ("--kubeconfig", str(made.kubeconfig()))
        async with served(*config) as reader:
            found = json.loads((await reader.get("/map?format=json"))[2])
            assert [node["name"] for node in found["nodes"]] == ["big"]
            assert (found["counts"]["held"] + found["counts"]["idle"], found["counts"]["free"]) == (6, 2)
            holds = [gpu["holds"][0]["gang"] for gpu in found["nodes"][0]["gpus"] if gpu["holds"]]
            assert holds == ["default/gang-holds"] * 6
            for path, words in (
                ("/queues", ("queues",)),
                ("/gangs", ("gangs", "-A")),
                ("/gangs/default/gang-waits", ("explain", "gang/gang-waits")),
            ):
                shown = json.loads((await reader.get(path, Accept="application/json"))[2])
                printed = json.loads(await fairlead(*words, "-o", "json", *config))
                assert without_time(shown) == without_time(printed)
            for path in (
                "/",
                "/map",
                "/map?node=big",
                "/queues",
                "/gangs",
                "/gangs/default/gang-waits",
                "/gangs/default/gang-holds",
            ):
                status, _, text = await reader.get(path)
                assert status == 200
                check(text)
            assert "/gangs/default/gang-holds" in check((await reader.get("/gangs/default/gang-waits"))[2]).links
            file = tmp_path / "snapshot.json"
            file.write_bytes(await fairlead("snapshot", *config))
        async with served("--snapshot", str(file)) as reader:
            found = json.loads((await reader.get("/map?format=json"))[2])
            assert [gpu["holds"][0]["gang"] for gpu in found["nodes"][0]["gpus"] if gpu["holds"]] == holds
            phases = {each["name"]: each["phase"] for each in json.loads((await reader.get("/gangs?format=json"))[2])}
            assert phases == {"gang-holds": "Running", "gang-waits": "Waiting"}


def without_time(found):
    """Ages, and what is left until a start, pass between two reads."""
    if isinstance(found, dict):
        return {
            key: without_time(value)
            for key, value in found.items()
            if key not in {"age_s", "waited_s", "forecast", "summary"}
        }
    if isinstance(found, list):
        return [
            without_time(each)
            for each in found
            if not (isinstance(each, dict) and each.get("title") in {"Waited", "Forecast of its start"})
        ]
    return found
