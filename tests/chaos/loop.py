"""An event loop with virtual time, and processes on it that can be paused and killed.

When nothing is ready the clock jumps to the next timer, so that an idle minute costs nothing. Every callback belongs to the
process in whose context it was scheduled: while that process is paused its callbacks wait in their order, and after it is killed
they never run: no `finally`, no last message, as after SIGKILL. There are no threads: what a program would run in one runs in place.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections.abc import Callable, Coroutine
from typing import Any

from tests.chaos.virtual import CHANCE, CLOCK, PROCESS


class NothingLeftError(Exception):
    """No callback is ready and no timer is set: whoever is waited for will never come."""


class Process:
    """One run of one program. A program that is started again is another process of the same name."""

    def __init__(self, name: str, loop: VirtualLoop, *, boot: int = 1) -> None:
        self.name = name
        self.boot = boot  # the how manieth run of this program
        self.skew_s = 0.0  # its wall clock is ahead by so much
        self.thread_s = 0.0  # work in a thread takes up to so long
        self.alive = True
        self.paused = False
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)
        self.on_kill: list[Callable[[], None]] = []
        self.tasks: dict[asyncio.Future[Any], None] = {}
        self._loop = loop
        self._held: list[asyncio.Handle] = []

    def __repr__(self) -> str:
        return f"{self.name}#{self.boot}"

    @property
    def runs(self) -> bool:
        return self.alive and not self.paused

    def spawn(self, work: Coroutine[Any, Any, Any], name: str = "") -> asyncio.Task[Any]:
        return self._loop.create_task(work, name=name or self.name, context=self.context.copy())

    def call(self, delay_s: float, work: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        """`work` is done as this process, unless it is dead by then; while it is paused it waits."""
        return self._loop.call_later(delay_s, work, *args, context=self.context)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        held, self._held = self._held, []
        self._loop.ready_again(held)

    def kill(self) -> None:
        """At once. Its tasks are kept: were they collected, their `finally` would run."""
        if not self.alive:
            return
        self.alive = False
        self._loop.graveyard.append((self, self._held))
        self._held = []
        for each in list(self.on_kill):
            each()

    def hold(self, handle: asyncio.Handle) -> None:
        if self.alive:
            self._held.append(handle)
        else:
            self._loop.graveyard.append(handle)


class _Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    number: int

    def __hash__(self) -> int:
        return self.number


class _Future(asyncio.Future[Any]):
    number: int

    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs on virtual time alone: no sockets, no signals, no subprocesses."""

    def __init__(self) -> None:
        super().__init__()
        self.graveyard: list[object] = []
        self._numbered = 0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timed = 0
        self._ready: Any
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        return CLOCK.now

    def ready_again(self, handles: list[asyncio.Handle]) -> None:
        self._ready.extend(handles)

    def create_future(self) -> asyncio.Future[Any]:
        made = _Future(loop=self)
        self._numbered += 1
        made.number = self._numbered
        return made

    def call_at(  # type: ignore[override]  # its type variables are the standard library's own
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Timers of one moment come in the order in which they were set."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._timed += 1
        heapq.heappush(self._timers, (when, self._timed, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is dropped when its time comes."""

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """The work is done at once; its result arrives after the time that the process' threads take."""
        future = self.create_future()
        process = PROCESS.get()
        slow_s = process.thread_s if process is not None else 0.0
        try:
            result = func(*args)
        except Exception as error:
            self.call_later(CHANCE.uniform(0, slow_s), self._fail, future, error)
        else:
            self.call_later(CHANCE.uniform(0, slow_s), self._resolve, future, result)
        return future

    @staticmethod
    def _resolve(future: asyncio.Future[Any], result: object) -> None:
        if not future.done():
            future.set_result(result)

    @staticmethod
    def _fail(future: asyncio.Future[Any], error: Exception) -> None:
        if not future.done():
            future.set_exception(error)

    def _make_task(self, _: object, work: Any, **more: Any) -> asyncio.Task[Any]:
        context = more.get("context")
        owner = PROCESS.get() if context is None else context.get(PROCESS)
        self._numbered += 1
        # Its hash is asked for while it is made, before it could get a number.
        made = _Task.__new__(_Task)
        made.number = self._numbered
        _Task.__init__(made, work, loop=self, **more)
        if owner is not None:
            owner.tasks[made] = None
            made.add_done_callback(owner.tasks.pop, context=contextvars.Context())
        return made

    def _run_once(self) -> None:
        ready, timers = self._ready, self._timers
        if not ready:
            while timers and timers[0][2]._cancelled:
                heapq.heappop(timers)
            if not timers:
                raise NothingLeftError
            CLOCK.now = max(CLOCK.now, timers[0][0])
        while timers and timers[0][0] <= CLOCK.now:
            timer = heapq.heappop(timers)[2]
            if not timer._cancelled:
                ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(PROCESS)
            if process is None or (process.alive and not process.paused):
                handle._run()
            else:
                process.hold(handle)
        handle = None

    def _write_to_self(self) -> None:
        """Nobody sleeps that would have to be woken."""

    def _process_events(self, event_list: object) -> None:
        raise NotImplementedError
