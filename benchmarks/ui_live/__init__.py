"""What live pages cost: the whole program, `fairlead ui --login token`, with 200 viewers over TLS, and an apiserver in another process.

The cluster has 4,000 GPUs on 500 nodes and 5,000 gangs. Each second (`CHANGES`) two gangs of eight pods start or end, positions or
forecasts of 20 gangs change, drivers report 14 claims' use (each claim every five minutes), four queues and two nodes change.
Of 200 viewers 60 look at the map, 20 at one node each, 60 at lists of gangs, 40 at one gang each, 20 at the queues,
one queue and time; every fourth may see the
gangs of one namespace only. CPU is the program's, from /proc; bytes are those of the streams' bodies as they are sent.
Bars: less than one core, and 50 kB/s for a viewer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from benchmarks.measured import figure
from benchmarks.ui_live.apiserver import Apiserver
from fairlead.kube import timestamps
from fairlead.sandbox.ports import reserved
from tests.support import ui

NODES, WAITING, VIEWERS = 500, 4600, 200
WARM_S, MEASURED_S = 8.0, 30.0
OPENING, OPENED_S = 8, 200.0  # at once, and in how many seconds all
TRIES = 10
TEAMS = 5
EVERYTHING_OF = 4  # of so many viewers all but one may see everything


def figures() -> list[dict[str, Any]]:
    return asyncio.run(_measure())


async def _measure() -> list[dict[str, Any]]:
    lists = ui.a_cluster(NODES, waiting=WAITING, queues=TEAMS)
    now = timestamps.seconds(time.time() - 900)
    for raw in lists["gangs"]:
        raw["metadata"]["creationTimestamp"] = now
    apiserver = Apiserver(lists)
    viewers = [Viewer(number, lists) for number in range(VIEWERS)]
    async with apiserver.serving() as address, _program(address) as (pid, url):
        changing = asyncio.create_task(_changes(apiserver))
        some = asyncio.Semaphore(OPENING)
        following = [asyncio.create_task(viewer.follow(url, some)) for viewer in viewers]
        try:
            await _all_open(viewers, following)
            await asyncio.sleep(WARM_S)
            began, cpu_s, before = time.monotonic(), _cpu_s(pid), [viewer.received for viewer in viewers]
            messages = [viewer.messages for viewer in viewers]
            await asyncio.sleep(MEASURED_S)
            took_s, spent_s = time.monotonic() - began, _cpu_s(pid) - cpu_s
            rates = [(viewer.received - was) / took_s / 1e3 for viewer, was in zip(viewers, before, strict=True)]
            often = [(viewer.messages - was) / took_s for viewer, was in zip(viewers, messages, strict=True)]
            memory = _memory_mb(pid)
            ended = sum(task.done() for task in following)
        finally:
            for task in (changing, *following):
                task.cancel()
            await asyncio.gather(changing, *following, return_exceptions=True)
    if ended:
        raise RuntimeError(f"{ended} of {VIEWERS} streams ended before the measurement did")
    label = f"ui-live/5000x{NODES * ui.GPUS}x{VIEWERS}"
    return [
        figure(f"{label}/cpu", spent_s / took_s, "cores", 1.0),
        figure(f"{label}/sent-most", max(rates), "kB per s and viewer", 50.0),
        figure(f"{label}/sent-median", statistics.median(rates), "kB per s and viewer", 50.0),
        figure(f"{label}/messages-median", statistics.median(often), "per s and viewer"),
        figure(f"{label}/memory", memory, "MB"),
    ]


async def _all_open(viewers: list[Viewer], following: list[asyncio.Task[None]]) -> None:
    opening = asyncio.ensure_future(asyncio.gather(*(viewer.opened.wait() for viewer in viewers)))
    waits: list[asyncio.Future[Any]] = [opening, *following]
    await asyncio.wait(waits, timeout=OPENED_S, return_when=asyncio.FIRST_COMPLETED)
    for task in following:
        if task.done():
            task.result()
    if not opening.done():
        opening.cancel()
        raise RuntimeError(
            f"{sum(viewer.opened.is_set() for viewer in viewers)} of {VIEWERS} streams opened in {OPENED_S:g} s"
        )


class Viewer:
    """One who opens a page and follows its stream, from an address of loopback's own: logins from one address are limited."""

    def __init__(self, number: int, lists: ui.Lists) -> None:
        self.number = number
        team = number % TEAMS
        everything = number % EVERYTHING_OF != 0
        self.token = f"all-{number}" if everything else f"team-{team}-{number}"
        self.path = _path(number, team, lists)
        self.opened = asyncio.Event()
        self.received = 0
        self.messages = 0

    async def follow(self, url: str, opening: asyncio.Semaphore) -> None:
        connector = aiohttp.TCPConnector(ssl=False, local_addr=(f"127.0.9.{self.number + 1}", 0))
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "text/html"}
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False, headers=headers) as session:
            async with opening:
                page = await self._page(session, url)
            timeout = aiohttp.ClientTimeout(total=None)
            streamed = {"Accept-Encoding": "gzip"}
            async with session.get(url + ui.stream_of(page), headers=streamed, timeout=timeout) as answer:
                if answer.headers.get("Content-Encoding") != "gzip":
                    raise RuntimeError(f"{self.path}: {answer.status}: its stream is not compressed")
                self.opened.set()
                async for data in answer.content.iter_any():
                    self.received += len(data)
                    self.messages += 1

    async def _page(self, session: aiohttp.ClientSession, url: str) -> str:
        """On a loaded machine the apiserver here may take too long to say who asks: then the viewer tries again."""
        for _ in range(TRIES):
            async with session.get(url + self.path, headers={"Accept-Encoding": "identity"}) as answer:
                page = await answer.text()
                if answer.status == 200:
                    return page
                said = f"{self.path}: {answer.status}: {page[-400:]}"
            if answer.status != 503:
                break
            await asyncio.sleep(2.0)
        raise RuntimeError(said)


def _path(number: int, team: int, lists: ui.Lists) -> str:
    kind = number % 10
    if kind < 3:
        return "/"
    if kind == 3:
        return f"/?node=node-{number:03}"
    if kind < 7:
        return ("/gangs", "/gangs?phase=Waiting", f"/gangs?queue=queue-{team}", f"/gangs?page={1 + number % 8}")[
            kind - 4
        ]
    if kind < 9:
        return f"/gangs/team-{team}/wait-{number * TEAMS + team:05}"
    return ("/queues", "/time", f"/queues/queue-{team}", "/time?by=node")[number // 10 % 4]


async def _changes(apiserver: Apiserver) -> None:
    draw = random.Random(1)
    lists = apiserver.lists
    pods = {raw["metadata"]["uid"]: raw for raw in lists["pods"]}
    running = [raw for raw in lists["gangs"] if raw["status"]["phase"] == "Running"]
    waiting = [raw for raw in lists["gangs"] if raw["status"]["phase"] == "Waiting"]
    of_gang: dict[str, list[dict[str, Any]]] = {}
    for claim in lists["resourceclaims"]:
        gang = claim["metadata"]["name"].rpartition("-")[0].rpartition("-")[0]
        of_gang.setdefault(f"{claim['metadata']['namespace']}/{gang}", []).append(claim)
    held = {id(claim): claim["status"]["allocation"] for claim in lists["resourceclaims"]}
    while True:
        began = time.monotonic()
        for gang in draw.sample(running, 2):
            ends = gang["status"]["phase"] == "Running"
            gang["status"]["phase"] = "Finished" if ends else "Running"
            apiserver.put("gangs", gang)
            for claim in of_gang.get(f"{gang['metadata']['namespace']}/{gang['metadata']['name']}", ()):
                for each in claim["status"]["reservedFor"]:
                    pod = pods[each["uid"]]
                    pod["status"]["phase"] = "Succeeded" if ends else "Running"
                    apiserver.put("pods", pod)
                claim["status"]["allocation"] = None if ends else held[id(claim)]
                apiserver.put("resourceclaims", claim)
        for gang in draw.sample(waiting, 20):
            soon = time.time() + draw.randrange(60, 7200)
            gang["status"]["forecast"] = {"p50": timestamps.seconds(soon), "p90": timestamps.seconds(soon + 3600)}
            gang["status"]["position"] = draw.randrange(1, WAITING)
            apiserver.put("gangs", gang)
        for claim in draw.sample(lists["resourceclaims"], 14):
            for each in claim["status"].get("devices") or ():
                each["data"] = dict(each["data"], utilizationPercent=draw.randrange(100))
            apiserver.put("resourceclaims", claim)
        for kind, number in (("queues", 4), ("nodes", 2)):
            for raw in draw.sample(lists[kind], number):
                if kind == "queues":
                    raw["status"]["usage"][0]["allocated"] = draw.randrange(40)
                apiserver.put(kind, raw)
        await asyncio.sleep(max(0.0, 1.0 - (time.monotonic() - began)))


@contextlib.asynccontextmanager
async def _program(apiserver: str) -> AsyncIterator[tuple[int, str]]:
    """Its process, and where it serves."""
    with tempfile.TemporaryDirectory() as folder, reserved() as port:
        words = (
            "ui",
            "--login",
            "token",
            "--kubeconfig",
            _kubeconfig(folder, apiserver),
            "--bind",
            f"127.0.0.1:{port}",
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "fairlead", *words, "--log-level", "WARNING"
        )
        try:
            await _ready(f"https://127.0.0.1:{port}", process)
            yield process.pid, f"https://127.0.0.1:{port}"
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


def _kubeconfig(folder: str, server: str) -> str:
    path = Path(folder, "kubeconfig")
    found = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    path.write_text(yaml.safe_dump(found))
    return str(path)


async def _ready(url: str, process: asyncio.subprocess.Process) -> None:
    give_up = time.monotonic() + 120
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session:
        while time.monotonic() < give_up and process.returncode is None:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"{url}/readyz") as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.2)
    raise RuntimeError("fairlead ui did not become ready")


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mb(pid: int) -> float:
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1e3
