"""What people expect of any command: a closed pipe and Ctrl-C are quiet, and whatever takes long says so on a terminal, and only there."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fairlead.cli.reading import OfCluster
from tests.support.commands import invoke
from tests.support.ui.objects import a_cluster

LISTS = a_cluster(5)
FAIRLEAD = (sys.executable, "-m", "fairlead")


class Apiserver(ThreadingHTTPServer):
    """Answers lists, each not before `open` is set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.open, self.asked = threading.Event(), threading.Event()


class _Answer(BaseHTTPRequestHandler):
    server: Apiserver

    def do_GET(self) -> None:
        self.server.asked.set()
        self.server.open.wait(60)
        found = LISTS.get(self.path.partition("?")[0].rpartition("/")[2], [])
        for number, each in enumerate(found):
            each["metadata"] |= {"uid": f"uid-{number}", "resourceVersion": "1"}
        text = json.dumps({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": found}).encode()
        with suppress(ConnectionError):
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Apiserver]:
    made = Apiserver()
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.open.set()
    made.shutdown()
    made.server_close()


@pytest.fixture
def environment(server: Apiserver, tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "config"
    path.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": {}}],
    }))  # fmt: skip
    return {**os.environ, "KUBECONFIG": str(path), "COLUMNS": "100"}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("words", [("gangs", "-A"), ("tenant", "list", "-o", "json"), ("top", "--once"), ("--help",)])
def test_a_closed_pipe_is_no_error(words: tuple[str, ...], server: Apiserver, environment: dict[str, str]) -> None:
    server.open.set()
    with subprocess.Popen([*FAIRLEAD, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as done:
        assert done.stdout is not None and done.stderr is not None
        done.stdout.close()
        assert done.stderr.read() == b""


def test_a_pipe_that_closes_while_the_cluster_is_asked_is_no_error_of_the_cluster(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(_: Any) -> None:
        raise BrokenPipeError

    monkeypatch.setenv("KUBECONFIG", environment["KUBECONFIG"])
    with pytest.raises(BrokenPipeError):
        OfCluster().ask(work)


def test_ctrl_c_is_quiet(server: Apiserver, environment: dict[str, str]) -> None:
    with subprocess.Popen(
        [*FAIRLEAD, "queues"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as asking:
        assert server.asked.wait(60)
        asking.send_signal(signal.SIGINT)
        assert asking.communicate(timeout=30) == (b"", b"")
    assert asking.returncode == 130


def seen(words: tuple[str, ...], environment: dict[str, str], act: Callable[[subprocess.Popen[bytes]], None]) -> str:
    """What is on a terminal; `act` is called once the line of progress is there."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([*FAIRLEAD, *words], env=environment, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        found, acted = b"", False
        with suppress(OSError):  # that is how a terminal ends
            while part := os.read(ours, 65536):
                found += part
                if "…".encode() in found and not acted:
                    acted = True
                    act(process)
        process.wait(60)
    os.close(ours)
    return found.decode()


@pytest.mark.slow
def test_what_takes_long_says_so_on_a_terminal_and_its_line_goes(
    server: Apiserver, environment: dict[str, str]
) -> None:
    text = seen(("queues",), environment, lambda _: server.open.set())
    said, _, rest = text.partition("QUEUE")
    assert re.fullmatch(r"(\r\x1b\[Kqueues: [23] s …)+\r\x1b\[K(\x1b\[1m)?", said), repr(said)
    assert "\x1b[K" not in rest


@pytest.mark.slow
def test_ctrl_c_takes_that_line_away(server: Apiserver, environment: dict[str, str]) -> None:
    assert seen(("queues",), environment, lambda process: process.send_signal(signal.SIGINT)).endswith("…\r\x1b[K")


@pytest.mark.slow
def test_into_a_pipe_nothing_is_said_of_it(server: Apiserver, environment: dict[str, str]) -> None:
    def answer_late() -> None:
        server.asked.wait(60)
        time.sleep(3.0)  # longer than a terminal would wait
        server.open.set()

    threading.Thread(target=answer_late, daemon=True).start()
    done = subprocess.run([*FAIRLEAD, "queues"], env=environment, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


def test_help_shows_readiness_where_clusters_are_asked() -> None:
    text = invoke(["--help"], env={"COLUMNS": "200"}).output
    panel = text.partition("Ask a cluster")[2].partition("╭")[0]
    assert "check readiness" in panel
    assert invoke(["check", "readiness", "--help"]).exit_code == 0
