"""A forked computation belongs to the process that made it: killed with it, it leaves no process and no connection behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fairlead.controller.forecasting.forked import Forked

# Connects to the port it is given, forks, prints the child's process, and waits to be killed. The child answers more than a pipe holds.
PARENT = """
import asyncio, socket, sys, time
from fairlead.controller.forecasting.forked import Forked

def work():
    time.sleep(float(sys.argv[2]))
    return b"x" * (1 << 20)

async def main():
    held = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    forked = Forked(work)
    print(forked._child, flush=True)
    time.sleep(60)  # nothing reads the pipe

asyncio.run(main())
"""


def state(pid: int) -> str:
    """Of a process: its letter in /proc, "" where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("takes_s", [0.0, 60.0], ids=["it answers, and is not read", "it computes"])
def test_it_ends_with_its_parent_and_holds_no_connection(takes_s: float) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        words = [sys.executable, "-c", PARENT, str(port), str(takes_s)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout is not None
            accepted, _ = listening.accept()
            with accepted:
                child = int(parent.stdout.readline())
                try:
                    time.sleep(0.2)  # the first has filled the pipe, the second computes
                    assert state(child) not in {"", "Z"}
                    parent.kill()
                    accepted.settimeout(10)
                    assert accepted.recv(1) == b"", "the child keeps the connection established"
                    until = time.monotonic() + 10
                    while state(child) not in {"", "Z"}:
                        assert time.monotonic() < until, "the child outlives its parent"
                        time.sleep(0.02)
                finally:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)


async def test_while_it_computes_it_holds_no_socket_of_its_parent() -> None:
    """A connection that the parent closes is closed for the other side at once, whatever the child does."""

    def computes() -> int:
        time.sleep(60)
        return 0

    ours, theirs = socket.socketpair()
    with ours, theirs:
        forked = Forked(computes)
        try:
            ours.close()
            theirs.settimeout(10)
            assert theirs.recv(1) == b""
        finally:
            assert await forked.answer(0.1) is None
