"""The container runtime of a node, what a simulated container does in it, and how the containers of a pod are stopped.

Containers run on while kubelet restarts, and end when the node loses power. Time is asyncio's; nothing is executed. A container runs as
long as the `sleep N` in its command or args (seconds, or with s, m, h; several add up); `exit N` after it is the exit code; a command
that is just `false` fails at once. Without a sleep and without an exit it runs until it is deleted.

At SIGTERM it ends at once with exit code 143, unless a shell's trap says otherwise: `trap '' TERM` ignores the signal;
`trap 'sleep 5; exit 3' TERM` ends after what the trap sleeps, with its exit code (143 without one). A preStop hook takes what
it sleeps, before the signal. A real `sleep` that is process 1 of its container has no handler, and so ignores SIGTERM; here
only a trap says so, since most programs that train or serve end at the signal. Kubelet (`stop`), not the runtime, keeps the grace period.

`env | grep ^PREFIX >> /dev/termination-log` leaves what its CDI devices set of these variables as its termination message.
Source: kubernetes pkg/kubelet/pod_workers.go (calculateEffectiveGracePeriod), kuberuntime_container.go (killContainer), 1.36.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from fairlead.kube.limits import Clock
from fairlead.sandbox.kubelet.cdi import Edits
from fairlead.sandbox.objects import Obj, meta, spec_of

ContainerKey = tuple[str, str]  # pod UID, container
SIGKILL_EXIT = 137


@dataclass(kw_only=True)
class Container:
    """A container that was started: what its CDI edits gave it, and how it ended once it has."""

    namespace: str
    pod: str
    name: str
    edits: Edits
    started_s: float
    program: Program = field(default_factory=lambda: Program(None))
    restarts: int = 0
    ended_s: float | None = None
    exit_code: int | None = None
    signalled: bool = False  # with SIGTERM
    message: str = ""  # what a program that was executed left in its termination log
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    timer: asyncio.TimerHandle | None = None

    @property
    def cdi_devices(self) -> tuple[str, ...]:
        return self.edits.cdi_devices

    @property
    def device_nodes(self) -> tuple[str, ...]:
        return self.edits.device_nodes

    @property
    def env(self) -> dict[str, str]:
        return self.edits.env


class Runtime:
    def __init__(self, *, wall: Clock = time.time) -> None:
        self._wall = wall
        self._containers: dict[ContainerKey, Container] = {}

    @property
    def running(self) -> dict[tuple[str, str, str], Container]:
        """By namespace, pod and container, what runs now."""
        return {(c.namespace, c.pod, c.name): c for c in self._containers.values() if c.ended_s is None}

    def find(self, uid: str, name: str) -> Container | None:
        return self._containers.get((uid, name))

    def start(
        self, uid: str, name: str, *, namespace: str, pod: str, program: Program, edits: Edits, restarts: int = 0
    ) -> Container:
        made = Container(
            namespace=namespace,
            pod=pod,
            name=name,
            edits=edits,
            started_s=self._wall(),
            program=program,
            restarts=restarts,
        )
        self._containers[uid, name] = made
        if program.run_s is not None:
            loop = asyncio.get_running_loop()
            made.timer = loop.call_later(program.run_s, self._end, made, program.exit_code)
        return made

    def terminate(self, container: Container) -> None:
        """SIGTERM: the container does what its program does then, which may be nothing."""
        program = container.program
        if container.signalled or container.ended_s is not None:
            return
        container.signalled = True
        if program.stop_s == 0:
            self._end(container, program.stop_exit_code)
        elif program.stop_s is not None:
            if container.timer is not None:
                container.timer.cancel()
            loop = asyncio.get_running_loop()
            container.timer = loop.call_later(program.stop_s, self._end, container, program.stop_exit_code)

    def kill(self, container: Container) -> None:
        """SIGKILL."""
        self._end(container, SIGKILL_EXIT)

    def forget(self, uid: str) -> None:
        """Removes the containers of a pod; those that still run are killed."""
        for key in [key for key in self._containers if key[0] == uid]:
            self._end(self._containers.pop(key), SIGKILL_EXIT)

    def pods(self) -> set[str]:
        """UIDs of pods with containers here, ended or not."""
        return {uid for uid, _ in self._containers}

    def power_off(self) -> None:
        """All containers end and are removed."""
        for container in self._containers.values():
            self._end(container, SIGKILL_EXIT)
        self._containers.clear()

    def _end(self, container: Container, exit_code: int) -> None:
        if container.timer is not None:
            container.timer.cancel()
        if container.ended_s is None:
            container.ended_s = self._wall()
            container.exit_code = exit_code
            container.ended.set()


SIGTERM_EXIT: Final = 143
_SLEEP: Final = re.compile(r"(?:^|[\s;&|(/])sleep\s+(infinity|inf|[0-9]+(?:\.[0-9]+)?)([smhd]?)(?=$|[\s;&|)])")
_EXIT: Final = re.compile(r"(?:^|[\s;&|(])exit\s+([0-9]+)")
_TRAP: Final = re.compile(r"""(?:^|[\s;&|(])trap\s+(?:'([^']*)'|"([^"]*)"|(\S+))((?:\s+[A-Z0-9]+)+)""")
_REPORT: Final = re.compile(r"""(?:^|[\s;&|(])env\s*\|\s*grep\s+['"]?\^(\w+)['"]?\s*>>?\s*/dev/termination-log""")
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class Program:
    """`run_s` None: until it is deleted. `stop_s` from SIGTERM to its end; None: it ignores the signal. `pre_stop_s`: its hook."""

    run_s: float | None
    exit_code: int = 0
    stop_s: float | None = 0.0
    stop_exit_code: int = SIGTERM_EXIT
    pre_stop_s: float = 0.0
    reports: str = ""  # how the variables begin that are its termination message
    command: tuple[str, ...] = field(default=(), compare=False)  # for a runtime that executes it


def program_of(container: Mapping[str, Any]) -> Program:
    words = [str(each) for each in (*(container.get("command") or ()), *(container.get("args") or ()))]
    text = " ".join(words)
    made = _running(words, _TRAP.sub(" ", text))
    for quoted, double, bare, signals in _TRAP.findall(text):
        if {"TERM", "SIGTERM", "15"} & set(signals.split()):
            made = _trapped(made, quoted or double or ("" if bare in {"''", '""'} else bare))
    report = _REPORT.search(text)
    return replace(made, pre_stop_s=_pre_stop_s(container), reports=report[1] if report else "", command=tuple(words))


def _running(words: list[str], text: str) -> Program:
    if words and words[0].rpartition("/")[2] == "false":
        return Program(0.0, 1)
    if words and words[0].rpartition("/")[2] == "true":
        return Program(0.0)
    exits = _EXIT.search(text)
    exit_code = int(exits[1]) % 256 if exits else 0
    sleeps = _SLEEP.findall(text)
    if not sleeps:
        return Program(0.0 if exits else None, exit_code)
    return Program(_slept_s(text), 0 if _slept_s(text) is None else exit_code)


def _trapped(program: Program, handler: str) -> Program:
    if handler == "-":
        return replace(program, stop_s=0.0, stop_exit_code=SIGTERM_EXIT)
    if not handler.strip():
        return replace(program, stop_s=None)
    exits = _EXIT.search(handler)
    return replace(program, stop_s=_slept_s(handler), stop_exit_code=int(exits[1]) % 256 if exits else SIGTERM_EXIT)


def _pre_stop_s(container: Mapping[str, Any]) -> float:
    """Seconds that the preStop hook takes; infinite where it never ends."""
    hook = (container.get("lifecycle") or {}).get("preStop") or {}
    if hook.get("sleep"):
        return float(hook["sleep"].get("seconds") or 0)
    slept_s = _slept_s(" ".join(str(each) for each in (hook.get("exec") or {}).get("command") or ()))
    return float("inf") if slept_s is None else slept_s


def _slept_s(text: str) -> float | None:
    """All sleeps of a text together; None where one never ends."""
    sleeps = _SLEEP.findall(text)
    if any(amount.startswith("inf") for amount, _ in sleeps):
        return None
    return sum((float(amount) * _UNITS[unit] for amount, unit in sleeps), 0.0)


LEAST_S: Final = 1.0  # of a grace period
AFTER_HOOK_S: Final = 2.0  # that a container has at least between SIGTERM and SIGKILL
DEFAULT_S: Final = 30.0


def grace_s(pod: Obj, *, before_s: float | None) -> float:
    """The pod's grace period: the deletion's, or the spec's where the pod ends without one.

    A pod that was removed from the API at once (grace period 0) was never marked: it has all of its spec's time. `before_s` is
    what an earlier deletion allowed: it can only become less.
    """
    asked = meta(pod).get("deletionGracePeriodSeconds")
    if asked is None:
        asked = spec_of(pod).get("terminationGracePeriodSeconds")
    wanted = max(LEAST_S, DEFAULT_S if asked is None else float(asked))
    return wanted if before_s is None else min(wanted, before_s)


@contextlib.asynccontextmanager
async def stop(runtime: Runtime, containers: Iterable[Container], *, grace_s: float) -> AsyncIterator[asyncio.Event]:
    """Stops them for the length of the block; the event is set when all have ended. SIGTERM stays sent after the block."""
    done = asyncio.Event()

    async def run() -> None:
        await asyncio.gather(*(_stop(runtime, each, grace_s) for each in containers))
        done.set()

    task = asyncio.create_task(run())
    try:
        yield done
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _stop(runtime: Runtime, container: Container, grace_s: float) -> None:
    hook_s = 0.0 if container.signalled else min(container.program.pre_stop_s, grace_s)
    if hook_s:
        await _ends_within(container, hook_s)
    runtime.terminate(container)
    if not await _ends_within(container, max(grace_s - hook_s, AFTER_HOOK_S)):
        runtime.kill(container)


async def _ends_within(container: Container, timeout_s: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await container.ended.wait()
    return container.ended_s is not None
