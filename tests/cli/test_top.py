"""`fairlead top`: what a picture shows and in which order, how long it takes, and that the terminal is left as it was."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from fairlead.cli.operate.top import Drawing, Row, readings
from fairlead.kube.client import Client
from fairlead.kube.resources import GANGS, NAMESPACES, QUEUES, raw
from fairlead.sandbox.cluster import Cluster, ClusterOptions
from fairlead.ui.model.facts import Facts
from tests.support import cpu
from tests.support.commands import invoke
from tests.support.kubernetes import of_this_run

CREATED = "2026-11-24T00:00:00Z"
NOW = 1_795_482_000.0


def gang(
    number: int, *, phase: str = "Waiting", queue: str = "red", size: int = 8, namespace: str = "ml"
) -> dict[str, Any]:
    status = {
        "phase": phase,
        "queue": queue,
        "position": number + 1,
        "members": size,
        "ready": 0,
        "reason": "DevicesInUse",
    }
    status |= {"why": {"message": "not enough free devices for its 8 pods"}}
    metadata = {"name": f"g{number:05}", "namespace": namespace, "creationTimestamp": CREATED}
    return {"metadata": metadata, "spec": {"size": size}, "status": status}


def queue(name: str, used: int, waiting: int) -> dict[str, Any]:
    usage = {"flavor": "gpu", "allocated": used, "demand": used, "fairShare": 4}
    spec = {"flavors": [{"flavor": "gpu", "deserved": 4}]}
    return {"metadata": {"name": name}, "spec": spec, "status": {"running": 1, "waiting": waiting, "usage": [usage]}}


def text(rows: list[Row]) -> list[str]:
    return ["".join(cell.text for cell in row).rstrip() for row in rows]


def shown(facts: Facts, drawing: Drawing | None = None, **size: int) -> list[str]:
    return text((drawing or Drawing()).lines(facts, **size))


def names(lines: list[str], among: tuple[str, ...]) -> list[str]:
    found = [word for line in lines for word in line.split() if word in among]
    return list(dict.fromkeys(found))


def test_a_picture_has_queues_nodes_and_gangs_in_the_order_that_is_asked_for() -> None:
    facts = Facts(
        at=NOW,
        queues=(queue("blue", 1, 5), queue("red", 6, 2)),
        gangs=(gang(0, size=2), gang(1), gang(2, phase="Running")),
    )
    lines = shown(facts)
    assert "gangs: 2 waiting, 1 running" in lines[0]
    assert names(lines, ("blue", "red"))[:2] == ["blue", "red"]
    assert names(lines, ("g00000", "g00001", "g00002")) == ["g00000", "g00001", "g00002"]
    assert names(shown(facts, Drawing(sort="size")), ("g00000", "g00001", "g00002")) == ["g00001", "g00002", "g00000"]
    assert not any("g0000" in line for line in shown(facts, Drawing(namespace="other")))


@pytest.mark.parametrize(("width", "height"), [(40, 8), (80, 24), (200, 60), (20, 3), (1, 1)])
def test_a_picture_is_never_larger_than_the_terminal(width: int, height: int) -> None:
    gangs = tuple(gang(number) for number in range(300))
    facts = Facts(
        at=NOW, queues=tuple(queue(f"q{number}", 1, 1) for number in range(40)), gangs=gangs, late="away; " * 30
    )
    lines = shown(facts, width=width, height=height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    if height >= 24:
        assert any("more queues" in line for line in lines)
        assert any("g00000" in line for line in lines)


def test_what_is_not_known_is_said() -> None:
    lines = shown(
        Facts(
            at=NOW, late="the cluster does not answer; this is as of then", refused={"nodes": "you may not list nodes"}
        )
    )
    assert lines[1] == "the cluster does not answer; this is as of then"
    assert lines[2] == "no nodes: you may not list nodes"
    assert {"no queues", "no nodes"} <= set(lines)


def test_a_picture_of_ten_thousand_gangs_takes_less_than_a_second_of_cpu() -> None:
    gangs = [gang(number, namespace=f"ns{number % 50}") for number in range(10_000)]
    drawing = Drawing(sort="age")
    for _ in range(2):
        gangs[7] = {**gangs[7]}
        with cpu.at_most(1.0):
            lines = drawing.lines(Facts(at=NOW, gangs=tuple(gangs)), width=160, height=50)
        assert len(lines) <= 50


# -- on a cluster ---------------------------------------------------------------------------------------------------------


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    options = ClusterOptions(workdir=tmp_path_factory.mktemp("c"), nodes=(), run_programs=False, release=of_this_run())
    async with Cluster(options) as made, made.client() as client:
        await client.create(raw(NAMESPACES), {"metadata": {"name": "ml"}})
        await client.create(raw(QUEUES), {"metadata": {"name": "red"}, "spec": {}})
        await client.create(raw(GANGS), {"metadata": {"name": "train", "namespace": "ml"}, "spec": {"size": 1}})
        yield made


on_a_cluster = pytest.mark.asyncio(loop_scope="module")


@on_a_cluster
async def test_once_prints_one_picture_without_control_characters(cluster: Cluster) -> None:
    for given in (("--once",), ()):  # a pipe is no terminal
        words = ("top", *given, "--kubeconfig", str(cluster.kubeconfig()))
        done = await asyncio.to_thread(invoke, words)
        assert done.exit_code == 0, done.output
        assert "train" in done.stdout
        assert "\x1b" not in done.stdout


@on_a_cluster
async def test_readings_follow_the_cluster_and_go_on_while_it_is_away(cluster: Cluster, tmp_path: Path) -> None:
    async with cluster.client() as client:
        made = readings(client, 0.05, "default")
        facts, problem = await anext(made)
        assert facts is not None
        assert (problem, [each["metadata"]["name"] for each in facts.queues]) == ("", ["red"])
        await client.create(raw(QUEUES), {"metadata": {"name": "blue"}, "spec": {}})
        async with asyncio.timeout(20):
            async for facts, _ in made:
                if facts is not None and len(facts.queues) == 2:
                    break
        await made.aclose()
    async with Client.connect(away(cluster, tmp_path)) as client:
        made = readings(client, 0.01, "default")
        for _ in range(2):
            facts, problem = await anext(made)
            assert facts is None
            assert "the cluster does not answer" in problem
        await made.aclose()


def away(cluster: Cluster, directory: Path) -> Path:
    """A kubeconfig of a server that is not there."""
    found = cluster.kubeconfig().read_text()
    begin = found.index("https://") if "https://" in found else found.index("http://")
    end = min(at for at in (found.find(mark, begin) for mark in ('"', "\n", "'")) if at > 0)
    path = directory / "away.yaml"
    path.touch(mode=0o600)
    path.write_text(found[:begin] + "http://127.0.0.1:9" + found[end:])
    return path


@pytest.mark.slow
@on_a_cluster
@pytest.mark.parametrize(
    "how", ["interrupt", *(pytest.param(each, marks=pytest.mark.slow) for each in ("terminate", "away"))]
)
async def test_the_terminal_is_as_it_was_however_it_ends(cluster: Cluster, tmp_path: Path, how: str) -> None:
    config = away(cluster, tmp_path) if how == "away" else cluster.kubeconfig()
    expected = b"does not answer" if how == "away" else b"train"
    output, status, modes = await asyncio.to_thread(
        in_a_terminal, config, expected, signal.SIGTERM if how == "terminate" else signal.SIGINT
    )
    assert status == 0, output[-2000:]
    assert output.rindex(b"\x1b[?1049l") > output.rindex(b"\x1b[?1049h"), "the usual screen is back"
    assert output.rindex(b"\x1b[?25h") > output.rindex(b"\x1b[?25l"), "and the cursor"
    assert modes[0] == modes[1]
    assert b"Traceback" not in output


# A program that was started in the background ignores SIGINT, and so do those that it starts: the tests, where they run so.
LIKE_A_SHELL = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("fairlead", run_name="__main__", alter_sys=True)
"""


def in_a_terminal(config: Path, expected: bytes, number: signal.Signals) -> tuple[bytes, int, list[Any]]:
    """Its output, exit status, and the terminal's modes before and after."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
    modes = [termios.tcgetattr(child)]
    words = [sys.executable, "-c", LIKE_A_SHELL, "top", "--interval", "0.5", "--kubeconfig", str(config)]
    environment = {**os.environ, "TERM": "xterm-256color"}
    with subprocess.Popen(words, stdin=child, stdout=child, stderr=child, env=environment) as process:
        output, asked, deadline_s = b"", False, time.monotonic() + 60
        while process.poll() is None or select.select([parent], [], [], 0)[0]:
            if select.select([parent], [], [], 0.1)[0]:
                output += os.read(parent, 65536)
            if expected in output and not asked:
                asked = True
                process.send_signal(number)
            if time.monotonic() > deadline_s:
                process.kill()
                break
    modes.append(termios.tcgetattr(child))
    os.close(parent)
    os.close(child)
    return output, process.returncode, modes
