"""Every command that asks a cluster, where no apiserver answers, or something else does: it ends soon, above zero, with a sentence."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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


ANSWERS = {
    "a page of a proxy": (200, b"<html><body>Log in</body></html>", "cannot be read"),
    "an apiserver that is starting": (503, b"not ready", "503"),
    "no list and no object": (200, b"[1]", "cannot be read"),
}


@pytest.fixture
def answering(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server with one answer to everything."""
    code, body = request.param

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            with contextlib.suppress(ConnectionError):  # a command that has ended
                self.end_headers()
                self.wfile.write(body)

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = answer  # noqa: N815 - the names of http.server

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


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


@pytest.mark.parametrize(
    "command", [*WORDS, "device list -w", "flavors -w", "gangs -w", "nodes -w", "queues -w", "tenant list -w"]
)
def test_it_ends_and_says_that_no_apiserver_answers(command: str, tmp_path: Path) -> None:
    assert "127.0.0.1:1" in failing(command, tmp_path, CONFIG)


@pytest.mark.parametrize("command", WORDS)
def test_it_ends_and_says_that_the_kubeconfig_is_none(command: str, tmp_path: Path) -> None:
    assert f"{tmp_path / 'config'}: is empty" in failing(command, tmp_path, "")


@pytest.mark.slow
@pytest.mark.parametrize("command", WORDS)
@pytest.mark.parametrize(
    ("answering", "said"), [(each[:2], each[2]) for each in ANSWERS.values()], indirect=["answering"], ids=ANSWERS
)
def test_it_ends_and_says_what_else_answers(command: str, answering: str, said: str, tmp_path: Path) -> None:
    assert said in failing(command, tmp_path, CONFIG.replace("https://127.0.0.1:1", answering))


def failing(command: str, folder: Path, config: str) -> str:
    """What it says, in one line."""
    (folder / "config").write_text(config)
    (folder / "pod.yaml").write_text(MANIFEST)
    words = [each.format(folder=folder) for each in WORDS.get(command, ())]
    began_s = time.monotonic()
    done = invoke([*command.split(), *words, "--kubeconfig", str(folder / "config")])
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code > 0, done.output
    assert time.monotonic() - began_s < SOON_S
    return done.output.replace("\n", "")
