"""Each program where nothing is installed but lock/image.txt, and where of that what only some installations need is missing, too.

All else that this environment has is hidden from the programs' imports, which is as quick as no new environment is.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.sandbox.cluster import NodeSpec
from tests.support.sandbox import cluster

ROOT = Path(__file__).parents[2]
HIDING = ROOT / "tests/support/hidden"
OPTIONAL = frozenset({"psycopg", "psycopg-binary"})
"""Of lock/image.txt: a ledger in PostgreSQL."""


@functools.cache
def hidden(without: frozenset[str]) -> str:
    """Top-level modules of no distribution in lock/image.txt, and of those in `without`; joined by commas."""
    pinned = re.findall(r"^([\w.-]+)==", (ROOT / "lock/image.txt").read_text(), re.MULTILINE)
    allowed = {_normal(name) for name in pinned} - without | {"fairlead"}
    modules = importlib.metadata.packages_distributions().items()
    return ",".join(sorted(module for module, owners in modules if not {_normal(each) for each in owners} & allowed))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(params=[frozenset(), OPTIONAL], ids=["lock/image.txt", "no optional wheel"])
def bare(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Programs that are started from here on lack the rest. Returns what."""
    path = os.pathsep.join(filter(None, (str(HIDING), os.environ.get("PYTHONPATH"))))
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("HIDDEN_MODULES", names := hidden(request.param))
    return names


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, timeout=60)


def test_what_is_hidden_cannot_be_imported(bare: str) -> None:
    assert {"pytest", "hypothesis"} <= set(bare.split(","))
    found = run("-c", "import hypothesis")
    assert "ModuleNotFoundError: No module named 'hypothesis'" in found.stderr
    assert ("psycopg" in bare.split(",")) == (run("-c", "import psycopg").returncode != 0)


@pytest.mark.slow
async def test_each_program_starts_until_it_is_ready(bare: str) -> None:
    async with cluster(NodeSpec("n1", "l40s")) as made:
        assert made.webhook is not None
        assert made.controller is not None
        assert made.nodes["n1"].kubelet.dra is not None
        command = ("-m", "fairlead", "ui", "--port", "0", "--kubeconfig", str(made.kubeconfig()))
        pages = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        try:
            assert pages.stdout is not None
            said = (await asyncio.wait_for(pages.stdout.readline(), 60)).decode()
            assert "http://" in said, said
        finally:
            pages.kill()
            await pages.wait()
