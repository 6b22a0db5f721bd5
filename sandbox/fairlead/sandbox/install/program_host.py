"""Runs programs as real processes that start fast and die like real ones: a host that imports once and forks.

Exists because a SIGKILL is the only honest way to kill a driver: no handler, no `finally`, no socket removed. A fresh
interpreter takes more than a second to import the programs; a fork of one that has, milliseconds. The host itself is
single-threaded and starts no event loop, so forking is safe. It reads one JSON object a line from stdin and writes one a
line to stdout; when stdin ends (the cluster is gone, however) it kills what it started.

    {"op": "start", "id": "driver n1", "program": "driver", "options": {...}, "log": "/path"}   {"event": "started", ...}
    {"op": "start", "id": "pod x", "command": ["driver", "--backend=…"], "environment": {...}, "log": "/path"}
    {"op": "signal", "id": "driver n1", "number": 9}                                 {"event": "exited", "status": -9}
A program that is ready says {"event": "ready", "id": ...} itself; a command line does not, its pod has a probe. Run as `python -m fairlead.sandbox.install.program_host`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import dataclasses
import importlib
import json
import os
import runpy
import select
import signal
import sys
import typing
from pathlib import Path
from typing import Any, Final

PROGRAMS: Final = {
    "driver": ("fairlead.driver.app", "DriverOptions"),
    "webhook": ("fairlead.webhook.app", "WebhookOptions"),
    "controller": ("fairlead.controller.app", "ControllerOptions"),
}
WAKE_S: Final = 0.05
_PR_SET_PDEATHSIG: Final = 1


def encode(options: Any) -> dict[str, Any]:
    """A program's options as JSON: paths become text, tuples lists."""
    fields = {each.name: getattr(options, each.name) for each in dataclasses.fields(options)}
    return {name: str(value) if isinstance(value, Path) else value for name, value in fields.items()}


def decode(kind: type[Any], values: dict[str, Any]) -> Any:
    """The other way, by the types of the options' fields."""
    hints = typing.get_type_hints(kind)
    return kind(**{name: _typed(hints[name], value) for name, value in values.items()})


def _typed(hint: Any, value: Any) -> Any:
    choices = typing.get_args(hint) or (hint,)
    if isinstance(value, str) and str not in choices and Path in choices:
        return Path(value)
    return tuple(value) if isinstance(value, list) else value


def main() -> int:
    for module, _ in PROGRAMS.values():
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(module)
    _tell(1, {"event": "up", "pid": os.getpid()})
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
    return 0


def _obey(order: dict[str, Any], children: dict[int, str]) -> None:
    if order["op"] == "start":
        pid = os.fork()
        if pid == 0:
            _become(order)
        children[pid] = order["id"]
        _tell(1, {"event": "started", "id": order["id"], "pid": pid})
        return
    for pid, name in children.items():
        if name == order["id"]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, order["number"])


def _reap(children: dict[int, str]) -> None:
    for pid in list(children):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            _tell(1, {"event": "exited", "id": children.pop(pid), "status": os.waitstatus_to_exitcode(status)})


def _tell(descriptor: int, event: dict[str, Any]) -> None:
    os.write(descriptor, json.dumps(event).encode() + b"\n")  # one short write: lines of two processes never mix


def _become(order: dict[str, Any]) -> None:
    """The child: never returns."""
    status = 1
    try:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # if the host is killed itself
        parent = os.dup(1)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        status = _command(order) if "command" in order else asyncio.run(_serve(order, parent))
    except BaseException as error:  # whatever it is, it must reach the log, and only there
        sys.stderr.write(f"{order['id']}: {type(error).__name__}: {error}\n")
    finally:
        sys.stderr.flush()
        os._exit(status)


def _command(order: dict[str, Any]) -> int:
    """What the image's entry point does with a container's arguments and environment. Returns the exit status."""
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = ["fairlead", *order["command"]]
    try:
        runpy.run_module("fairlead", run_name="__main__")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    return 0


async def _serve(order: dict[str, Any], parent: int) -> int:
    from fairlead.kube import logs

    logs.configure(format="text", level=order.get("log_level", "INFO"))
    module, options_name = PROGRAMS[order["program"]]
    app = importlib.import_module(module)
    options = decode(getattr(app, options_name), order["options"])
    ready = asyncio.Event()
    task = asyncio.ensure_future(app.run(options, ready=ready))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    waiting = asyncio.ensure_future(ready.wait())
    await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
    if waiting.done():
        _tell(parent, {"event": "ready", "id": order["id"]})
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return 0


if __name__ == "__main__":
    sys.exit(main())
