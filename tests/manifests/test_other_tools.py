"""kubectl and helm of one release older and newer than the cluster apply all of Fairlead, without an error or a warning.

The usual kubectl is of 1.35: newer than the oldest cluster, older than the newest. An older one and a newer one come from lock/tools-*.txt.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from fairlead.api import names
from fairlead.kube.releases import NEWEST_TRIED, OLDEST, Minor, parse, written
from fairlead.sandbox.apiserver.server import ApiServer

from .conftest import CHART, ROOT, tool_of

pytestmark = pytest.mark.slow

USUAL = ""
Pair = tuple[Minor, str]
"""A cluster's release, and that of the tools."""


def pairs(*found: Pair) -> pytest.MarkDecorator:
    ids = [f"{tools or 'usual'}-on-{written(cluster)}" for cluster, tools in found]
    return pytest.mark.parametrize(("release", "tools"), found, ids=ids)


EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("0[0-7]-*"))
_HELMS_NOTE = re.compile(r"(level=INFO msg=\"|walk\.go:\d+: )found symbolic link in path[^\n]*\n")
Run = Callable[..., Awaitable[str]]


@pytest.fixture
async def run(tmp_path: Path, release: Minor) -> AsyncIterator[Run]:
    """Runs a tool as the cluster's administrator. Fails where it says anything beside what it did."""
    async with ApiServer(workdir=tmp_path / "server", release=release) as server:
        config = tmp_path / "config"
        config.write_text(server.kubeconfig())

        async def run(*command: str | Path) -> str:
            done = await asyncio.to_thread(
                subprocess.run,
                list(map(str, command)),
                capture_output=True,
                text=True,
                check=False,
                env={"KUBECONFIG": str(config), "HOME": str(tmp_path)},
            )
            assert done.returncode == 0, done.stderr
            assert _HELMS_NOTE.sub("", done.stderr) == "", command
            return done.stdout

        yield run


def minor_of(kubectl: str) -> Minor:
    said = subprocess.run([kubectl, "version", "--client"], capture_output=True, text=True, check=True).stdout
    return parse(said.partition("Client Version: ")[2].partition("\n")[0])


@pairs((OLDEST, "1.33"), (NEWEST_TRIED, USUAL), (NEWEST_TRIED, "1.37"))
async def test_kubectl_of_a_release_older_and_newer_applies_everything(
    run: Run, release: Minor, tools: str, kubectl: str
) -> None:
    program = tool_of(tools, "kubectl") if tools else kubectl
    major, minor = minor_of(program)
    assert (major, abs(minor - release[1])) == (1, 1), "the tool is of the release before the cluster's, or after it"
    apply = (program, "apply", "--server-side")
    first = await run(*apply, "-k", ROOT / "manifests" / "base")
    assert first.count("serverside-applied") == len(first.splitlines()) > 40
    for overlay in ("simulated", "ui", "nvidia-driver"):
        await run(*apply, "--dry-run=server", "-k", ROOT / "manifests" / "overlays" / overlay)
    assert EXAMPLES
    for example in EXAMPLES:
        await run(*apply, "-f", ROOT / "examples" / example)
    await run(program, "delete", "--wait=false", "-k", ROOT / "manifests" / "base")


@pairs((OLDEST, USUAL), (NEWEST_TRIED, "1.37"))
async def test_helm_whose_client_is_of_another_release_installs_upgrades_and_uninstalls(
    run: Run, tools: str, helm: str, kubectl: str
) -> None:
    program = tool_of(tools, "helm") if tools else helm
    await run(kubectl, "create", "namespace", names.NAMESPACE)
    place = ("--namespace", names.NAMESPACE)
    said = await run(program, "install", "fairlead", CHART, *place)
    assert "STATUS: deployed" in said
    assert "warning" not in said.lower()
    said = await run(
        program, "upgrade", "fairlead", CHART, *place, "--reset-then-reuse-values", "--set", "controller.replicas=3"
    )
    assert "REVISION: 2" in said
    await run(program, "uninstall", "fairlead", *place, "--no-hooks")
