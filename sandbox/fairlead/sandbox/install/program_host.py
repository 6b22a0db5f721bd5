"""The processes that fork Fairlead's programs: a template imports them once and forks a host for each cluster, which forks one for each command line.

A fresh interpreter takes more than a second to import the programs; a fork of one that has them, milliseconds. The template's standard
input is a socket by which, for each host, two descriptors come: its connection and its log. It ends when that socket does. A child of a host runs
`fairlead ARGUMENTS` with the environment it is given and nothing else, as a container of the image does, and a SIGKILL ends
it as it ends any process: no handler, no `finally`, no socket removed. Template and host are single-threaded and start no event
loop, so forking is safe. By a host's connection, one JSON object a line each way:

    {"op": "start", "id": "driver n1 #1", "arguments": ["driver", "--node-name=n1"], "environment": {...}, "log": "/path"}
    {"op": "signal", "id": "driver n1 #1", "number": 9}    {"id": "driver n1 #1", "pid": 4711} … {… "status": -9}

The answers give a child's process id and say how it ended. When the connection ends, however the cluster ended, the host kills what it started.
Run by its path: it imports nothing of Fairlead but the programs, which may be of another version.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
from typing import Any, Final, NoReturn

# Named, not imported: the command line stands above the sandbox and need not be there for anything else.
PRELOADED: Final = ("fairlead.cli.main", "fairlead.driver.app", "fairlead.webhook.app", "fairlead.controller.app")
WAKE_S: Final = 0.05
_PR_SET_PDEATHSIG: Final = 1


def main() -> int:
    for module in PRELOADED:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # hosts are not waited for
    orders = socket.socket(fileno=0)
    while True:
        message, descriptors, _, _ = socket.recv_fds(orders, 1, 2)
        if not message:
            return 0
        if os.fork() == 0:
            _host(*descriptors)
        for each in descriptors:
            os.close(each)


def _host(connection: int, log: int) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for source, target in ((connection, 0), (connection, 1), (log, 2)):
        os.dup2(source, target)
    os.closerange(3, max(connection, log) + 1)
    children: dict[int, str] = {}
    pending = b""
    while True:
        readable, _, _ = select.select([0], [], [], WAKE_S)
        if readable:
            chunk = os.read(0, 65536)
            if not chunk:
                break
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                _obey(json.loads(line), children)
        _reap(children)
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    os._exit(0)


def _obey(order: dict[str, Any], children: dict[int, str]) -> None:
    if order["op"] == "start":
        pid = os.fork()
        if pid == 0:
            _become(order)
        children[pid] = order["id"]
        _tell({"id": order["id"], "pid": pid})
        return
    for pid, name in children.items():
        if name == order["id"]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, order["number"])


def _reap(children: dict[int, str]) -> None:
    for pid in list(children):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            _tell({"id": children.pop(pid), "status": os.waitstatus_to_exitcode(status)})


def _tell(event: dict[str, Any]) -> None:
    os.write(1, json.dumps(event).encode() + b"\n")


def _become(order: dict[str, Any]) -> None:
    """The child: never returns."""
    status = 1
    try:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # if the host is killed itself
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        status = _run(order["arguments"], order["environment"])
    except BaseException as error:  # whatever it is, it must reach the log, and only there
        sys.stderr.write(f"{order['id']}: {type(error).__name__}: {error}\n")
    finally:
        sys.stderr.flush()
        os._exit(status)


def _run(arguments: list[str], environment: dict[str, str]) -> int:
    """What the image's entry point does with a container's arguments and environment. Returns the exit status."""
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["fairlead", *arguments]
    try:
        runpy.run_module("fairlead", run_name="__main__")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
