"""Every command that asks a cluster, where no apiserver answers: it ends soon, above zero, with a sentence."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer.main

from fairlead.cli.main import PROGRAMS, app
from tests.support.commands import invoke

SOON_S = 40.0
MANIFEST = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n"
CONFIG = (
    "current-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
    "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: u, user: {}}]\n"
)
WORDS = {
    "check manifests": ["{folder}/pod.yaml"],
    "check readiness": [],
    "device drain": ["n1/gpu-0"],
    "device list": [],
    "device undrain": ["n1/gpu-0"],
    "doctor": [],
    "explain": ["x"],
    "flavors": [],
    "gangs": [],
    "hold gang": ["x"],
    "hold queue": ["x"],
    "import": ["--from", "kueue"],
    "nodes": [],
    "prepare-uninstall": ["--evict"],
    "queues": [],
    "recreate": [],
    "repair": ["n1", "gpu-0"],
    "resume gang": ["x"],
    "resume queue": ["x"],
    "smoke": ["n1"],
    "snapshot": [],
    "tenant create": ["x"],
    "tenant list": [],
    "tenant show": ["x"],
    "top": [],
    "what-if": [],
}
ELSEWHERE = {*PROGRAMS, "ui", "cost", "report"}
"""Programs try again until there is a cluster; of a ledger's costs only the prices are asked of one."""


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Those with --kubeconfig."""
    if hasattr(command, "list_commands"):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), (*path, name))
    elif any("--kubeconfig" in each.opts for each in command.params):
        yield " ".join(path)


def test_every_command_that_asks_a_cluster_is_tried() -> None:
    assert set(commands(typer.main.get_command(app))) == WORDS.keys() | ELSEWHERE


@pytest.mark.parametrize("command", WORDS)
def test_it_ends_and_says_that_no_apiserver_answers(command: str, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(CONFIG)
    (tmp_path / "pod.yaml").write_text(MANIFEST)
    words = [each.format(folder=tmp_path) for each in WORDS[command]]
    began_s = time.monotonic()
    done = invoke([*command.split(), *words, "--kubeconfig", str(tmp_path / "config")])
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code > 0
    assert time.monotonic() - began_s < SOON_S
    assert "127.0.0.1:1" in done.output.replace("\n", "")
