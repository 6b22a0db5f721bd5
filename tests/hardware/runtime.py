"""A container runtime that executes: each container is a process, in namespaces of its own or under runc or crun.

What a container gets is what the CDI specs say, word by word. Its output goes to a file, and what it writes there last is its
termination message.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from fairlead.sandbox.kubelet.cdi import Edits
from fairlead.sandbox.kubelet.runtime import Container, Program, Runtime
from tests.hardware.container import OWN

CONTAINER = Path(__file__).with_name("container.py")
PROGRAM = Path(__file__).with_name("gpu_program.py")
INSIDE = "/gpu_program.py"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TRIAL_S = 20.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """How containers run. `runtime` is runc or crun, None: namespaces of ours; `root` the root file system, None: the host's.

    `isolated` False: plain processes, where this process may make no namespaces. `environment` is added to each container's, and the directories of `shared` to each root.
    """

    isolated: bool = True
    runtime: str | None = None
    root: Path | None = None
    environment: tuple[tuple[str, str], ...] = ()
    shared: tuple[Path, ...] = ()

    def __str__(self) -> str:
        if not self.isolated:
            return "plain processes"
        return f"{Path(self.runtime).name if self.runtime else 'mount namespaces'}, root {self.root or 'of this host'}"

    @property
    def python(self) -> str:
        """Python as the container finds it."""
        return "/usr/bin/python3" if self.root else sys.executable


class ProcessRuntime(Runtime):
    """`kind` may be changed between pods. Files of the containers are in `workdir`."""

    def __init__(self, kind: Kind, workdir: Path) -> None:
        super().__init__()
        self.kind = kind
        self._workdir = workdir
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def output(self, pod: str) -> Path:
        return self._workdir / pod / "output"

    def start(
        self, uid: str, name: str, *, namespace: str, pod: str, program: Program, edits: Edits, restarts: int = 0
    ) -> Container:
        endless = dataclasses.replace(program, run_s=None, stop_s=None)
        made = super().start(uid, name, namespace=namespace, pod=pod, program=endless, edits=edits, restarts=restarts)
        task = asyncio.create_task(self._execute(made, self.kind), name=f"container {pod}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return made

    async def _execute(self, container: Container, kind: Kind) -> None:
        home = self._workdir / container.pod
        (home / "scratch").mkdir(parents=True, exist_ok=True)
        words = arguments(container, kind, home)
        with self.output(container.pod).open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=plain(container, kind)
            )
        self._running[id(container)] = process
        code = await process.wait()
        del self._running[id(container)]
        with contextlib.suppress(OSError):
            container.message = (home / "termination-log").read_text(errors="replace")
        self._end(container, code % 256)

    def terminate(self, container: Container) -> None:
        self._signal(container, signal.SIGTERM)

    def kill(self, container: Container) -> None:
        self._signal(container, signal.SIGKILL)

    def power_off(self) -> None:
        for process in self._running.values():
            process.kill()
        super().power_off()

    def _signal(self, container: Container, number: int) -> None:
        """The container ends when its process has."""
        if (process := self._running.get(id(container))) is not None:
            process.send_signal(number)


def arguments(container: Container, kind: Kind, home: Path) -> list[str]:
    """The command line that runs the container; writes what it needs below `home`."""
    command = [kind.python if word == "python3" else word for word in container.program.command]
    log = home / "termination-log"
    log.touch()
    if not kind.isolated:
        return [str(PROGRAM) if word == INSIDE else word for word in command]
    applied = container.edits.applied
    file = home / "spec.json"
    own = [
        {"hostPath": str(PROGRAM), "containerPath": INSIDE, "options": ["ro", "rbind"]},
        {"hostPath": str(log), "containerPath": "/dev/termination-log", "options": ["rw", "rbind"]},
    ]
    spec: dict[str, Any] = {
        "id": container.pod,
        "scratch": str(home / "scratch"),
        "root": None if kind.root is None else str(kind.root),
        "keep": [] if kind.root else _kept(),
        "command": command,
        "env": environment(container, kind),
        "nodes": [node for edits in applied for node in edits.get("deviceNodes") or ()],
        "mounts": [mount for edits in applied for mount in edits.get("mounts") or ()]
        + own
        + [_bound(each) for each in kind.shared],
        "runtime": kind.runtime,
    }
    file.write_text(json.dumps(spec))
    return [sys.executable, "-I", "-S", str(CONTAINER), str(file)]


def environment(container: Container, kind: Kind) -> dict[str, str]:
    """As of an image made for CUDA: its loader looks where the driver's libraries are put for images of any distribution."""
    return {
        "PATH": PATH,
        "HOME": "/tmp",
        "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64",
        **dict(kind.environment),
        **container.edits.env,
    }


def plain(container: Container, kind: Kind) -> dict[str, str]:
    """Of the process that makes the container, which is the container itself where nothing is isolated."""
    return environment(container, kind) if not kind.isolated else {"PATH": os.environ.get("PATH", PATH)}


def _bound(path: Path) -> dict[str, Any]:
    return {"hostPath": str(path), "containerPath": str(path), "options": ["rw", "rbind"]}


def _kept() -> list[str]:
    """Where this Python is, as far as the root lacks it: below a directory that a container has of its own, or on a file system below one in `/`."""
    found = {Path(sys.prefix), Path(sys.base_prefix), PROGRAM.parent}
    tops = {path: path.parts[1] for path in found}
    return sorted(
        str(path) for path, top in tops.items() if top in OWN or path.stat().st_dev != Path("/", top).stat().st_dev
    )


def choose(
    workdir: Path, *, root: Path | None, environment: tuple[tuple[str, str], ...], shared: tuple[Path, ...]
) -> tuple[Kind, list[str]]:
    """The best way to run containers here, tried with one that ends at once; and why better ones were not taken."""
    refused = []
    for name in ("crun", "runc", None):
        runtime = None if name is None else shutil.which(name)
        if name is not None and runtime is None:
            refused.append(f"{name}: not installed")
            continue
        kind = Kind(runtime=runtime, root=root, environment=environment, shared=shared)
        problem = _trial(kind, workdir / f"trial-{name or 'own'}")
        if problem is None:
            return kind, refused
        refused.append(f"{name or 'namespaces'}: {problem}")
    return Kind(isolated=False, environment=environment), refused


def _trial(kind: Kind, home: Path) -> str | None:
    """Why a container of this kind does not run; None where it does."""
    (home / "scratch").mkdir(parents=True)
    program = Program(None, command=("python3", "-c", "print('up')"))
    container = Container(namespace="", pod=home.name, name="main", edits=Edits(), started_s=0, program=program)
    try:
        done = subprocess.run(
            arguments(container, kind, home), capture_output=True, timeout=TRIAL_S, check=False, env={"PATH": PATH}
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    said = (done.stdout + done.stderr).decode(errors="replace").strip()
    return None if done.returncode == 0 and "up" in said else said[-300:] or f"exit code {done.returncode}"
