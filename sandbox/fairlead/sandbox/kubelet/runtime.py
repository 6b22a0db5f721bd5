"""The container runtime of a node: containers run on while kubelet restarts, and end when the node loses power.

Time is asyncio's; nothing is executed (see program.py). Kubelet signals; it, not the runtime, keeps the grace period.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from fairlead.kube.limits import Clock
from fairlead.sandbox.kubelet.cdi import Edits
from fairlead.sandbox.kubelet.program import Program

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
