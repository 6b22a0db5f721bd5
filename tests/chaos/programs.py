"""A program of the campaign: its present process, and what starts the next one.

One that ends by itself is started again after a while, as kubelet or systemd would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from tests.chaos.loop import Process

if TYPE_CHECKING:
    from tests.chaos.cluster import ChaosCluster

RESTART_S = (1.0, 30.0)  # after a program that ended by itself; kubelet's is 10 s to 5 min

Main = Callable[["Program"], Coroutine[Any, Any, None]]


class Program:
    """One program: its present process, if any, and how the next one is started."""

    def __init__(self, cluster: ChaosCluster, name: str, main: Main) -> None:
        self.name = name
        self.process: Process | None = None
        self.wanted = False
        self.skew_s = 0.0
        self.thread_s = 0.0
        self._cluster = cluster
        self._main = main
        self._boots = 0
        self._failures = 0

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.runs

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    def start(self) -> None:
        """Nothing where it runs already."""
        self.wanted = True
        if self.alive:
            return
        self._boots += 1
        process = self.process = Process(self.name, self._cluster.loop, boot=self._boots)
        process.skew_s, process.thread_s = self.skew_s, self.thread_s
        process.spawn(self._main(self), self.name).add_done_callback(lambda task: self._ended(process, task))

    def kill(self) -> None:
        """SIGKILL, and nobody starts it again."""
        self.wanted = False
        if self.process is not None:
            self.process.kill()

    def pause(self) -> None:
        if self.process is not None:
            self.process.pause()

    def resume(self) -> None:
        if self.process is not None and self.process.paused:
            self.process.resume()

    def skew(self, seconds: float) -> None:
        """Its wall clock is wrong from now on."""
        self.skew_s = seconds
        if self.process is not None:
            self.process.skew_s = seconds

    def slow(self, seconds: float) -> None:
        """Its threads take up to so long from now on."""
        self.thread_s = seconds
        if self.process is not None:
            self.process.thread_s = seconds

    def started(self) -> None:
        """It works: the next time that it ends by itself counts as the first."""
        self._failures = 0

    def _ended(self, process: Process, task: asyncio.Task[Any]) -> None:
        if not process.alive or task.cancelled():
            return
        process.kill()
        self._cluster.note_end(process, task.exception())
        if self.wanted:
            delay_s = min(RESTART_S[1], RESTART_S[0] * 2**self._failures)
            self._failures += 1
            self._cluster.admin.call(delay_s, self._start_again)

    def _start_again(self) -> None:
        if self.wanted and not self.alive:
            self.start()
