"""A sandbox with Fairlead's programs as processes of their own, whose CPU is read from /proc and whose writes are counted.

The apiserver, the claim controller, the scheduler and this benchmark share one process; nodes and slices lie in the store.
No kubelet runs. `replica` in a program's credentials says in each request which process sent it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.protocol import objects
from benchmarks.protocol.traffic import Traffic
from fairlead.api import names
from fairlead.kube.client import Client
from fairlead.kube.resources import PODS, Raw, raw
from fairlead.sandbox import files
from fairlead.sandbox.apiserver.server import ApiServer
from fairlead.sandbox.apiserver.store import Change
from fairlead.sandbox.cluster import Cluster, ClusterOptions
from fairlead.sandbox.controllers.manager import ManagerOptions
from fairlead.sandbox.install import manifests
from fairlead.sandbox.install.apply import Applier
from fairlead.sandbox.install.programs import Process, ProgramError, ProgramHost

REPLICA = "fairlead.dev/replica"
READY_S = 600.0
AT_ONCE = 32
OWNER = "system:serviceaccount:kube-system:job-controller"
TICKS = os.sysconf("SC_CLK_TCK")


class World:
    """An apiserver, what counts its traffic, and the programs that were started."""

    def __init__(self, server: ApiServer, admin: Client, host: ProgramHost, workdir: Path) -> None:
        self.server = server
        self.admin = admin
        self.traffic = Traffic(server.state)
        self.pods = Pods(server)
        self._host = host
        self._workdir = workdir

    async def start(self, program: str, *flags: str, name: str = "", wait: bool = True) -> Process:
        """`webhook` or `controller`, ready unless told otherwise."""
        name = name or program
        user = f"system:serviceaccount:{names.NAMESPACE}:fairlead-{program}"
        config = self._workdir / f"{name}.kubeconfig"
        config.touch(mode=0o600)
        config.write_text(self.server.kubeconfig(user, extra={REPLICA: (name,)}))
        identity = (f"--identity={name}",) if program == "controller" else ()
        where = ("--bind=127.0.0.1:0", "--url=https://127.0.0.1:0") if program == "webhook" else ()
        arguments = (program, f"--kubeconfig={config}", "--log-format=text", *identity, *where, *flags)
        process = self._host.start(name, arguments)
        if wait:
            await process.ready(READY_S)
        return process

    @contextlib.asynccontextmanager
    async def client(self, user: str) -> AsyncIterator[Client]:
        config = self._workdir / "user.kubeconfig"
        config.touch(mode=0o600)
        config.write_text(self.server.kubeconfig(user))
        async with Client.connect(config, user_agent="benchmark") as client:
            yield client


class Pods:
    """Which pods are bound, as the store has it."""

    def __init__(self, server: ApiServer) -> None:
        self.bound: set[str] = set()
        self.on_bound: Callable[[Raw], None] | None = None
        kind = server.state.registry.find("", "v1", "pods")
        assert kind is not None
        server.state.store.subscribe(kind.storage, self._see)

    def _see(self, change: Change) -> None:
        pod = change.new.obj if change.new is not None else None
        if pod is None or not pod["spec"].get("nodeName") or pod["metadata"]["uid"] in self.bound:
            return
        self.bound.add(pod["metadata"]["uid"])
        if self.on_bound is not None:
            self.on_bound(pod)


def cpu_s(process: Process) -> float:
    """CPU seconds that a process has used, user and system."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def idle(process: Process, *, window_s: float = 2.0, share: float = 0.1, at_most_s: float = 300.0) -> None:
    """Until the process uses less than `share` of a core for `window_s`."""
    deadline = time.monotonic() + at_most_s
    while time.monotonic() < deadline:
        before = cpu_s(process)
        await asyncio.sleep(window_s)
        if cpu_s(process) - before < share * window_s:
            return


async def until(check: Callable[[], bool], process: Process, what: str, timeout_s: float) -> None:
    """Polls. Raises ProgramError with the end of the process's log."""
    deadline = time.monotonic() + timeout_s
    while not check():
        if time.monotonic() > deadline or process.exited.is_set():
            raise ProgramError(f"{what}: not within {timeout_s:.0f} s; {process.failure(timeout_s)}")
        await asyncio.sleep(0.02)


async def together(work: Iterable[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """In this order, AT_ONCE at a time."""
    few = asyncio.Semaphore(AT_ONCE)

    async def one(each: Callable[[], Awaitable[Any]]) -> Any:
        async with few:
            return await each()

    return await asyncio.gather(*(one(each) for each in work))


async def post(client: Client, pods: Iterable[Raw]) -> list[Raw]:
    return await together([lambda body=body: client.create(raw(PODS), body) for body in pods])  # type: ignore[misc]


@contextlib.asynccontextmanager
async def whole(*, qps: float | None = None) -> AsyncIterator[World]:
    """A cluster with control loops and scheduler; `qps` limits each control loop's client, None is no limit."""
    with tempfile.TemporaryDirectory(prefix="fl-") as path:
        workdir = Path(path)
        manager = ManagerOptions(qps=qps, node_grace_s=1e6, run_elsewhere=frozenset({objects.NAMESPACE}))
        options = ClusterOptions(workdir=workdir, run_programs=False, manager=manager)
        async with Cluster(options) as cluster, ProgramHost.running(log_dir=workdir / "programs") as host:
            yield World(cluster.server, cluster.admin, host, workdir)


@contextlib.asynccontextmanager
async def apiserver() -> AsyncIterator[World]:
    """Only an apiserver with manifests/base: at ten thousand nodes scheduler and control loops would not fit beside it."""
    with tempfile.TemporaryDirectory(prefix="fl-") as path:
        workdir = Path(path)
        async with ApiServer(workdir=workdir / "pki") as server, contextlib.AsyncExitStack() as stack:
            config = workdir / "admin.kubeconfig"
            config.touch(mode=0o600)
            config.write_text(server.kubeconfig())
            admin = await stack.enter_async_context(Client.connect(config, user_agent="benchmark"))
            await Applier(admin).apply(manifests.load(files.find("manifests/base")))
            host = await stack.enter_async_context(ProgramHost.running(log_dir=workdir / "programs"))
            yield World(server, admin, host, workdir)
