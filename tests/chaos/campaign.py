"""One run, many runs, and how the steps of a run that failed are made fewer.

A worker starts the cluster once; each run is a fork of it at that moment, with the nodes' directories as they were, so that no run sees
another's traces, and the start costs nothing. A run is a function of (seed, steps that are done, mutation).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import json
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from fairlead.history.code_version import code_version
from fairlead.history.recording.recorder import FLUSH_S
from fairlead.sandbox.apiserver.store import Change
from tests.chaos import mutations, virtual
from tests.chaos.actions import ACTIONS
from tests.chaos.cluster import ChaosCluster
from tests.chaos.invariants import Invariants
from tests.chaos.loop import NothingLeftError, VirtualLoop
from tests.chaos.virtual import CLOCK
from tests.chaos.world import TEAMS, World

log = logging.getLogger(__name__)

PAUSES_S = (0.02, 0.1, 0.3, 1.0)  # means, of what lies between two steps
RUN_MAX_S = 120  # of CPU: a run that takes more hangs; ten times as long by the clock, where other work is beside it


@dataclass(frozen=True)
class Result:
    """Of one run. `digest` is over every step and every change of the store."""

    seed: int
    steps: int
    digest: str = ""
    broken: tuple[str, ...] = ()
    virtual_s: float = 0.0
    machine_s: float = 0.0
    changes: int = 0
    messages: int = 0
    jobs: int = 0
    mutation: str = ""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to run. `only`: the numbers of the steps that are done; None: all of them."""

    seed: int
    steps: int
    only: frozenset[int] | None = None
    mutation: str = ""
    log_file: str = ""


@dataclass
class _Log:
    """The run's log, line by line; its digest is the run's."""

    file: Any = None
    changes: int = 0
    _hash: Any = field(default_factory=hashlib.sha256)

    def line(self, text: str) -> None:
        line = f"{CLOCK.now:.6f} {text}\n"
        self._hash.update(line.encode())
        if self.file is not None:
            self.file.write(line)

    def change(self, storage: str, change: Change) -> None:
        self.changes += 1
        verb = "created" if change.old is None else "removed" if change.new is None else "changed"
        self.line(f"  {change.revision} {storage} {'/'.join(change.key)} {verb}")

    @property
    def digest(self) -> str:
        return str(self._hash.hexdigest())


Work = Callable[["Worker"], Awaitable[None]]


class Worker:
    """A cluster that has been started, from which runs are forked. `async with` inside the campaign's loop."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._stack = contextlib.ExitStack()
        self._root = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        self._sockets: list[Path] = []  # of the start
        virtual.seed("the start")
        self.cluster = ChaosCluster(loop, self._root / "now")
        self.invariants = Invariants(self.cluster)
        self.world = World(self.cluster, self.invariants)

    async def run(self, work: Work) -> None:
        """Starts the cluster, then calls `work`, which forks."""
        with self._stack:
            await self.cluster.start()
            async with contextlib.AsyncExitStack() as clients:
                self.world.client = await clients.enter_async_context(self.cluster.client())
                await self.world.prepare()
                for team in TEAMS:
                    self.world.tenants[team] = await clients.enter_async_context(self.cluster.client(f"tenant-{team}"))
                await asyncio.sleep(30.0)
                if self.invariants.broken or self.cluster.ends:
                    raise RuntimeError(f"the start went wrong: {self.invariants.broken} {self.cluster.ends}")
                for disk in self.cluster.disks:
                    disk.sync()
                code_version()  # kept, so that not every run reads the sources
                self._sockets = sorted((self._root / "now").rglob("*.sock"))
                shutil.copytree(self._root / "now", self._root / "start", symlinks=True, ignore=_sockets)
                gc.collect()
                gc.freeze()
                gc.disable()  # a run is short, and what is collected when differs from machine to machine
                await work(self)

    # -- one run

    async def forked(self, plan: Plan) -> Result:
        """The run in a process of its own; a crash of it is a result, too."""
        began_s = virtual.machine_s()
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            asyncio._set_running_loop(self._loop)
            self._child(plan, writer)
            await asyncio.Event().wait()  # in this process nothing else goes on
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            data = pipe.read()
        _, status = os.waitpid(child, 0)  # noqa: ASYNC222 - the fork has the clock; nothing happens here meanwhile
        took_s = virtual.machine_s() - began_s
        if data:
            known = json.loads(data)
            result = Result(**{**known, "broken": tuple(known["broken"]), "machine_s": took_s})
        else:
            result = Result(plan.seed, plan.steps, broken=(f"the run died: status {status}",), machine_s=took_s)
        if result.broken and plan.log_file:
            kept = Path(f"{plan.log_file}.seed-{plan.seed}.recording")
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(self.cluster.recordings.directory, kept)
        self._restore()
        return result

    def _child(self, plan: Plan, writer: int) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the folder is the worker's
        signal.setitimer(signal.ITIMER_PROF, RUN_MAX_S)
        signal.alarm(10 * RUN_MAX_S)
        done = self.cluster.admin.spawn(self._run(plan), "run")

        def finished(task: asyncio.Task[Result]) -> None:
            error = task.exception()
            if error is None:
                result = task.result()
            else:
                text = "".join(traceback.format_exception(error))
                result = Result(plan.seed, plan.steps, broken=(f"the campaign itself failed: {text}",))
            with os.fdopen(writer, "w") as pipe:
                json.dump(asdict(result), pipe)
            sys.stdout.flush()
            os._exit(0)

        done.add_done_callback(finished)

    async def _run(self, plan: Plan) -> Result:
        virtual.seed(plan.seed)
        self.cluster.network.random.seed(plan.seed)
        for node in self.cluster.nodes.values():
            node.disk.random.seed(f"{plan.seed}/{node.name}")
        for disk in self.cluster.disks:
            disk.sync()  # files that a run before this one replaced are other ones now
        self.cluster.recordings.begin(plan.seed)
        mutations.apply(plan.mutation)
        with contextlib.ExitStack() as stack:
            written = _Log(stack.enter_context(Path(plan.log_file).open("w")) if plan.log_file else None)  # noqa: ASYNC230
            store = self.cluster.store
            for storage in sorted(store._tables):
                store.subscribe(storage, lambda change, storage=storage: written.change(storage, change))  # type: ignore[misc]
            began_s = CLOCK.now
            await self._steps(plan, written)
            if not self.invariants.broken:
                await self.world.rest()
            self._check()
            await asyncio.sleep(2 * FLUSH_S)  # what the recorder has is on the disk then
            recordings = self.cluster.recordings
            for each in recordings.problems():
                self.invariants.fail(each)
            written.line(f"recording: {recordings.shown}, {recordings.digest}")
            broken = tuple(dict.fromkeys(self.invariants.broken))
            for each in broken:
                written.line(f"BROKEN {each}")
            return Result(
                plan.seed,
                plan.steps,
                written.digest,
                broken,
                CLOCK.now - began_s,
                changes=written.changes,
                messages=self.cluster.network.messages,
                jobs=self.world.jobs,
                mutation=plan.mutation,
            )

    async def _steps(self, plan: Plan, written: _Log) -> None:
        for number in range(plan.steps):
            random = Random(f"{plan.seed}/{number}")
            act = random.choices(ACTIONS, [each.weight for each in ACTIONS])[0]
            pause_s = random.expovariate(1 / random.choice(PAUSES_S))
            if plan.only is None or number in plan.only:
                told = act.act(self.world, random)
                written.line(f"step {number} {act.name}: {told or 'nothing to do it to'}")
                log.info("%.3f step %d %s: %s", CLOCK.now, number, act.name, told)
            await asyncio.sleep(pause_s)
            self._check()
            if self.invariants.broken:
                return

    def _check(self) -> None:
        self.invariants.check_nodes()
        self.invariants.check_ends()

    def _restore(self) -> None:
        """The nodes' directories as they were at the start; of sockets only that they are there is looked at."""
        now, start = self._root / "now", self._root / "start"
        for path in now.rglob("*.sock"):
            if path not in self._sockets:
                path.unlink()
        for path in self._sockets:
            if not path.exists():
                with socket.socket(socket.AF_UNIX) as made:
                    made.bind(str(path))
        for path in sorted(now.rglob("*"), reverse=True):
            same = start / path.relative_to(now)
            if path.is_socket():
                continue
            if path.is_dir():
                if not same.exists() and not any(path.iterdir()):
                    path.rmdir()
            elif not same.exists() or same.read_bytes() != path.read_bytes():
                path.unlink()
        for path in sorted(start.rglob("*")):
            same = now / path.relative_to(start)
            if path.is_dir():
                same.mkdir(exist_ok=True)
            elif not same.exists():
                shutil.copy2(path, same)


def _sockets(directory: str, found: list[str]) -> list[str]:
    return [name for name in found if Path(directory, name).is_socket()]


def in_worker(work: Work) -> None:
    """Calls `work` with a cluster that has been started. To be called once in a process."""
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    worker = Worker(loop)
    main = worker.cluster.admin.spawn(worker.run(work), "campaign")
    try:
        loop.run_until_complete(main)
    except NothingLeftError:
        raise RuntimeError("nothing is left to happen, and the run has not ended") from None


async def shrunk(worker: Worker, plan: Plan, note: Callable[[str], None]) -> frozenset[int]:
    """Fewer steps with which the run still fails: halves first, then single ones (delta debugging)."""
    steps = sorted(range(plan.steps) if plan.only is None else plan.only)

    async def fails(only: Sequence[int]) -> bool:
        return bool((await worker.forked(replace(plan, only=frozenset(only)))).broken)

    size = max(1, len(steps) // 2)
    while True:
        for part in list(_parts(steps, size)):
            rest = [each for each in steps if each not in part]
            if await fails(rest):
                steps = rest
                note(f"{len(steps)} steps are enough")
        if size == 1:
            return frozenset(steps)
        size //= 2


def _parts(steps: Sequence[int], size: int) -> Iterator[frozenset[int]]:
    for at in range(0, len(steps), size):
        yield frozenset(steps[at : at + size])
