"""Programs of an earlier commit of this repository, to run beside today's on one sandbox.

`sources()` unpacks what runs in a cluster from git, once a session; `programs()` is a host of processes that import it, `mixed()` a cluster
with some of each. Which commit that is: the newest tag of a release before this one, or EARLIER while there is none.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import AsyncIterator, Collection
from pathlib import Path

import pytest

from fairlead.api.version import VERSION
from fairlead.sandbox.cluster import Cluster, NodeSpec
from fairlead.sandbox.install.programs import ProgramHost
from tests.support.sandbox import cluster

ROOT = Path(__file__).parents[2]
EARLIER = "f78b2c4"
"""Before topology by levels, moves, tenants, MIG layouts: a day of changes to annotations, marks and status fields."""


def commit() -> str:
    """Skips the test where git or the commit is missing, as in a shallow clone."""
    tags = _git("tag", "--list", "v*", "--merged", "HEAD", "--sort=-version:refname").decode().split()
    wanted = next((tag for tag in tags if tag != f"v{VERSION}"), EARLIER)
    if not _git("rev-parse", "--verify", "--quiet", f"{wanted}^{{commit}}"):
        pytest.skip(f"commit {wanted}, the version before this one, is not in this clone: git fetch --unshallow --tags")
    return wanted


def _git(*arguments: str) -> bytes:
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False).stdout
    except FileNotFoundError:
        pytest.skip("git is not installed, so there is no earlier version to run")


@functools.cache
def sources() -> str:
    """PYTHONPATH of the earlier version's source roots, in a folder that goes with this process."""
    folder = tempfile.TemporaryDirectory(prefix="fl-earlier-")
    _KEPT.append(folder)
    with tarfile.open(fileobj=io.BytesIO(_git("archive", "--format=tar", commit()))) as archive:
        wanted = [each for each in archive.getmembers() if each.name.split("/")[1:2] == ["fairlead"]]
        archive.extractall(folder.name, members=wanted, filter="data")
    return os.pathsep.join(sorted(str(path.parent) for path in Path(folder.name).glob("*/fairlead")))


def files(pattern: str) -> list[str]:
    """The texts of the earlier version's files whose path matches, in the order of their names."""
    listed = _git("ls-tree", "-r", "--name-only", commit()).decode().splitlines()
    return [_git("show", f"{commit()}:{path}").decode() for path in sorted(fnmatch.filter(listed, pattern))]


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


def imported_from(module: str) -> Path:
    """The file from which a program of the earlier version imports a module."""
    code = f"import importlib; print(importlib.import_module({module!r}).__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": sources()},
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(done.stdout.strip())


@contextlib.asynccontextmanager
async def programs(log_dir: Path) -> AsyncIterator[ProgramHost]:
    """A host of the earlier version's programs; as `Cluster` has one of today's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", sources())
        host = ProgramHost.running(log_dir=log_dir)
        made = await host.__aenter__()
    try:
        yield made
    finally:
        await host.__aexit__(None, None, None)


class Mixed:
    """A cluster whose programs are each of today's version or the earlier one."""

    def __init__(self, made: Cluster, *, earlier: ProgramHost, today: ProgramHost) -> None:
        self.made = made
        self._hosts = {True: earlier, False: today}

    async def start(self, program: str, *, earlier: bool) -> None:
        self.made._host = self._hosts[earlier]
        if program == "webhook":
            await self.made.start_webhook()
        else:
            await self.made.start_controller(name=f"{program}-{'earlier' if earlier else 'today'}")


@contextlib.asynccontextmanager
async def mixed(earlier: Collection[str], *nodes: NodeSpec, logs: Path) -> AsyncIterator[Mixed]:
    """With the earlier version of these programs, and today's of the others; CRDs and roles are today's."""
    flags = {"controller": ("--lease-duration=3", "--gang-timeout=20")}
    async with programs(logs / "earlier") as before, ProgramHost.running(log_dir=logs / "today") as today:
        hosts = {True: before, False: today}
        drivers = hosts["driver" in earlier]
        options = {"run_programs": False, "flags": flags, "drivers": lambda: contextlib.nullcontext(drivers)}
        async with cluster(*nodes, **options) as made:
            found = Mixed(made, earlier=before, today=today)
            for program in ("webhook", "controller"):
                await found.start(program, earlier=program in earlier)
            yield found
