"""`fairlead ui` as its user starts it, on a cluster with all programs: real devices, claims and gangs, and the command line beside it."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead.api import names
from fairlead.kube import resources
from fairlead.sandbox.cluster import NodeSpec
from tests.support import ui
from tests.support.sandbox import View, cluster

from .markup import check

HOLD = ("sleep", "infinity")


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


def wants(count: int) -> dict[str, Any]:
    request = {"name": "gpu", "exactly": {"deviceClassName": names.GPU_CLASS, "count": count}}
    return {
        "metadata": {"name": f"gpus-{count}", "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def pod(name: str, count: int) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {names.GANG: f"gang-{name}", names.GANG_SIZE: "1"},
        },
        "spec": {
            "restartPolicy": "Never",
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": f"gpus-{count}"}],
            "containers": [
                {
                    "name": "main",
                    "image": "busybox:1.37",
                    "command": list(HOLD),
                    "resources": {"claims": [{"name": "gpu"}]},
                }
            ],
        },
    }


@pytest.mark.slow
async def test_pages_of_a_cluster_and_of_its_snapshot(tmp_path: Path):
    async with cluster(NodeSpec("big", "hgx-h100")) as made, made.client() as client:
        view = View(client)
        quota = {"flavors": [{"flavor": "h100", "deserved": 8}], "namespaceSelector": {}}
        await client.create(resources.FLAVORS, {"metadata": {"name": "h100"}, "spec": {"deviceSelector": "true"}})
        await client.create(resources.QUEUES, {"metadata": {"name": "all"}, "spec": quota})
        for count in (6, 4):
            await client.create(resources.RESOURCE_CLAIM_TEMPLATES, wants(count))
        await client.create(resources.raw(resources.PODS), pod("holds", 6))
        await view.phase("holds", "Running")
        await client.create(resources.raw(resources.PODS), pod("waits", 4))
        await view.gang("gang-waits", "Waiting")
        config = ("--kubeconfig", str(made.kubeconfig()))
        async with served(*config) as reader:
            found = json.loads((await reader.get("/?format=json"))[2])
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
                "/?node=big",
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
            found = json.loads((await reader.get("/?format=json"))[2])
            assert [gpu["holds"][0]["gang"] for gpu in found["nodes"][0]["gpus"] if gpu["holds"]] == holds
            phases = {each["name"]: each["phase"] for each in json.loads((await reader.get("/gangs?format=json"))[2])}
            assert phases == {"gang-holds": "Running", "gang-waits": "Waiting"}


def without_time(found):
    """Ages and what is left of them pass between two reads."""
    if isinstance(found, dict):
        return {key: without_time(value) for key, value in found.items() if key not in {"age_s", "forecast"}}
    if isinstance(found, list):
        return [
            without_time(each)
            for each in found
            if not (isinstance(each, dict) and each.get("title") in {"Waited", "Forecast of its start"})
        ]
    return found
