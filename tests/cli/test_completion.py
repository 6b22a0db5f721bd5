"""What a shell completes `fairlead` and `kubectl fairlead` with, as the shells ask."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fairlead.api import names
from fairlead.kube import resources
from fairlead.sandbox.cluster import Cluster, ClusterOptions
from tests.cli.test_plugin import KUBECTL

BIN = Path(sys.executable).parent
on_a_cluster = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def made(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with Cluster(ClusterOptions(workdir=tmp_path_factory.mktemp("c"), run_programs=False)) as found:
        async with found.client() as client:
            for name in ("language", "vision"):
                await client.create(resources.NAMESPACES, {"metadata": {"name": name}})
                await client.create(resources.QUEUES, {"metadata": {"name": name}, "spec": {}})
            await client.create(resources.NODES, {"metadata": {"name": "hgx-h100-a"}})
        async with found.client(names.CONTROLLER_USER) as client:
            for name, namespace in (("bert", "language"), ("gpt", "language"), ("resnet", "vision")):
                await client.create(
                    resources.GANGS, {"metadata": {"name": name, "namespace": namespace}, "spec": {"size": 1}}
                )
        yield found


async def run(kubeconfig: Path, *command: str, **environment: str) -> list[str]:
    env = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": f"{BIN}:{os.environ.get('PATH', '')}", **environment}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, env=env, stdout=pipe, stderr=pipe)
    out, problem = await asyncio.wait_for(process.communicate(), 60)
    assert b"Traceback" not in problem, problem.decode()
    return out.decode().split("\n")[:-1]


async def complete(kubeconfig: Path, *words: str) -> list[str]:
    """As bash asks; the last word is unfinished."""
    asked = shlex.join(["fairlead", *words])
    return await run(
        kubeconfig, str(BIN / "fairlead"), _FAIRLEAD_COMPLETE="complete_bash", COMP_WORDS=asked, COMP_CWORD=str(len(words))
    )  # fmt: skip


@pytest.mark.one_in(4)
@on_a_cluster
@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("gangs", "-n", "la"), ["language"]),
        (("gangs", "-n", "language", ""), ["bert", "gpt"]),
        (("gangs", "-A", ""), ["bert", "gpt", "resnet"]),
        (("queues", "v"), ["vision"]),
        (("explain", "-n", "language", "gang/b"), ["gang/bert"]),
        (("explain", "queue/"), ["queue/language", "queue/vision"]),
        (("smoke", ""), ["hgx-h100-a"]),
        (("device", "drain", "hgx"), ["hgx-h100-a/"]),
        (("hold", "queue", "lan"), ["language"]),
        (("gangs", "--context", ""), ["fairlead-sandbox"]),
        (("dev",), ["device", "devices"]),
        (("check", "rea"), ["readiness"]),
        (("chec",), ["check"]),
    ],
)
async def test_names_are_completed_as_far_as_they_are_written(
    words: tuple[str, ...], found: list[str], made: Cluster
) -> None:
    assert await complete(made.kubeconfig(), *words) == found


@on_a_cluster
async def test_kubectl_is_answered_in_its_form(made: Cluster) -> None:
    plugin = str(BIN / "kubectl_complete-fairlead")
    assert await run(made.kubeconfig(), plugin, "gangs", "-n", "language", "") == ["bert", "gpt", ":4"]
    assert await run(made.kubeconfig(), plugin, "queues", "nothing") == ["", ":4"]


@on_a_cluster
@pytest.mark.skipif(KUBECTL is None, reason="no kubectl on the path or in the virtual environment (make .venv/.tools)")
async def test_kubectl_itself_completes_names_of_ours(made: Cluster) -> None:
    answer = await run(made.kubeconfig(), str(KUBECTL), "__complete", "fairlead", "gangs", "-n", "language", "")
    assert [line for line in answer if line] == ["bert", "gpt", ":4"]


async def test_without_a_cluster_nothing_is_offered_and_a_shell_does_not_wait(tmp_path: Path) -> None:
    begun_s = time.monotonic()
    assert await complete(tmp_path / "none", "gangs", "-n", "") == [""]
    assert time.monotonic() - begun_s < 20  # of which the interpreter's start is most, on a busy machine


@on_a_cluster
async def test_who_may_list_nothing_is_offered_nothing(made: Cluster) -> None:
    assert await complete(made.kubeconfig("stranger"), "smoke", "") == [""]
