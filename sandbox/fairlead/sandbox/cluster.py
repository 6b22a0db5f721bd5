"""A whole cluster in one process: apiserver, control loops, nodes with the real driver, and Fairlead's programs.

`make demo` and the fault tests run on it what users run, on nothing but Python. Every part talks to the apiserver over
HTTPS, as its own user under RBAC; Fairlead is installed from manifests/base as an operator would.
Start-up order: apiserver, manifests, loops and kubelets, programs; shutdown in the opposite order. Leaves no file behind
but those in `workdir`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import hashlib
import logging
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, Self

from fairlead.api import names
from fairlead.kube import credentials
from fairlead.kube.client import Client
from fairlead.kube.credentials import Credentials
from fairlead.kube.events import EventRecorder
from fairlead.kube.garbage import frozen_heap
from fairlead.kube.releases import Minor
from fairlead.kube.resources import Raw
from fairlead.sandbox import files
from fairlead.sandbox.apiserver.server import ApiServer
from fairlead.sandbox.controllers import manager as controller_manager
from fairlead.sandbox.controllers.manager import ManagerOptions
from fairlead.sandbox.install import manifests
from fairlead.sandbox.install.apply import Applier
from fairlead.sandbox.install.pod_files import PodFiles
from fairlead.sandbox.install.programs import Program, ProgramHost, Programs
from fairlead.sandbox.install.workloads import Processes, Workloads
from fairlead.sandbox.kubelet.runtime import Runtime
from fairlead.sandbox.node import DriverProgram, Node, NodeSpec, NodeTimes
from fairlead.sandbox.ports import Ports
from fairlead.sandbox.release import NEWEST, Release, as_release
from fairlead.sandbox.scheduler.devices import Selection
from fairlead.sandbox.scheduler.loop import Scheduler

log = logging.getLogger(__name__)

READY_TIMEOUT_S: Final = 30.0
NODES_AT_ONCE: Final = 16
# A unix socket's path has at most 107 bytes; this is what a node adds to its directory.
_SOCKET: Final = f"plugins/{names.DRIVER}/dra.sock"
_SOCKET_MAX: Final = 100
_SELDOM: Final = (50_000, 50, 100)

Nodes = dict[str, Node]

__all__ = ["Cluster", "ClusterOptions", "NodeSpec", "NodeTimes"]


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """What the cluster is made of.

    `run_programs` False leaves Fairlead's webhook and controller out (drivers run where a node has a profile);
    `install` False leaves manifests/base out, too. `flags` are more flags of the three programs, by program. `drivers`
    is another place for the nodes' drivers to run than processes, `runtime` another container runtime of each node than one that executes
    nothing. `release` is which Kubernetes the cluster is: as `(1, 34)`, or
    with feature gates, `Release.of((1, 34), {"DRADeviceTaints": True})`. `started` is told of each part that runs.
    """

    workdir: Path
    nodes: tuple[NodeSpec, ...] = ()
    run_programs: bool = True
    install: bool = True
    seed: int = 0
    log_level: str = "INFO"
    times: NodeTimes = field(default_factory=NodeTimes)
    manager: ManagerOptions = field(default_factory=ManagerOptions)
    scheduler_backoff_s: tuple[float, float] = (1.0, 10.0)
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    drivers: Callable[[], AbstractAsyncContextManager[Programs]] | None = None
    release: Release | Minor = NEWEST
    runtime: Callable[[], Runtime] = Runtime
    started: Callable[[str], None] = lambda _: None


class Cluster:
    """`async with Cluster(options) as cluster`: ready when the block begins, gone when it ends."""

    def __init__(self, options: ClusterOptions) -> None:
        self.options = options
        self.nodes: Nodes = {}
        self.release = as_release(options.release)
        random = Random(options.seed)  # noqa: S311
        self.server = ApiServer(workdir=options.workdir / "pki", random=random, release=self.release)
        self.admin: Client
        self.webhook: Program | None = None
        self.controller: Program | None = None
        self._host: ProgramHost | None = None
        self._stack = contextlib.AsyncExitStack()
        self._loops: _Background
        self._scheduler: asyncio.Task[None]
        self._configs: dict[str, Path] = {}
        self._access: dict[str, Credentials] = {}
        self._workloads: Workloads | None = None

    # -- what users of the cluster need ----------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def workloads(self) -> Workloads:
        """The pods of what was installed; nothing runs of them until it is started."""
        if self._workloads is None:
            assert self._host is not None
            processes = Processes(
                host=self._host,
                files=self.pod_files,
                host_paths=lambda node: self.nodes[node].host_paths,
                ports=self._stack.enter_context(contextlib.closing(Ports())),
            )
            self._workloads = Workloads(self.admin, processes)
        return self._workloads

    @property
    def pod_files(self) -> PodFiles:
        workdir = self.options.workdir / "pods"
        return PodFiles(admin=self.admin, url=self.url, ca_pem=self.server.ca_pem, workdir=workdir)

    def kubeconfig(self, user: str = "admin", *, extra: Mapping[str, tuple[str, ...]] | None = None) -> Path:
        """A kubeconfig file with which any client is `user`; written once per user."""
        identity = user if not extra else f"{user}|{sorted(extra.items())}"
        if identity not in self._configs:
            name = user.replace(":", "-").replace("/", "-")
            if extra:
                name += "-" + hashlib.sha256(identity.encode()).hexdigest()[:8]
            path = self.options.workdir / "kubeconfigs" / f"{name}.yaml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            path.write_text(self.server.kubeconfig(user, groups=_groups(user), extra=dict(extra or {})))
            self._configs[identity] = path
        return self._configs[identity]

    def access(self, user: str = "admin") -> Credentials:
        """As the kubeconfig file of `user`, for clients in this process: a file is for programs."""
        if user not in self._access:
            token = self.server.token(user, groups=_groups(user))
            self._access[user] = credentials.fixed(self.url, token=token, tls=self._tls)
        return self._access[user]

    @functools.cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.server.ca_pem.decode())

    @contextlib.asynccontextmanager
    async def client(self, user: str = "admin") -> AsyncIterator[Client]:
        async with Client.connect(self.access(user), user_agent=f"sandbox-{user}") as client:
            yield client

    async def apply(self, what: Path | str | Iterable[Mapping[str, Any]]) -> list[Raw]:
        """Apply a file, a directory, a kustomization, or objects, as `kubectl apply --server-side` would."""
        loaded = manifests.load(Path(what)) if isinstance(what, Path | str) else [dict(each) for each in what]
        return await Applier(self.admin).apply(loaded)

    # -- life ------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        stack, options = self._stack, self.options
        options.workdir.mkdir(parents=True, exist_ok=True)
        stack.enter_context(_long_lived())
        if options.drivers is None or options.run_programs:
            self._host = await stack.enter_async_context(ProgramHost.running(log_dir=options.workdir / "logs"))
        drivers: Programs | None = self._host
        if options.drivers is not None:
            drivers = await stack.enter_async_context(options.drivers())
        assert drivers is not None
        await self.server.start()
        stack.push_async_callback(self.server.stop)
        options.started(f"apiserver, at {self.url}")
        self.admin = await stack.enter_async_context(self.client())
        if options.install:
            installed = await self.apply(files.find("manifests/base"))
            options.started(f"installation: {len(installed)} objects of manifests/base")
        await self._start_loops()
        options.started("controller-manager and scheduler")
        await self._start_nodes(drivers)
        options.started(f"kubelets of {len(self.nodes)} nodes")
        if options.run_programs:
            await self.start_webhook(wait=False)
            await self.start_controller(wait=False)
        for node in self.nodes.values():  # one after the other: the timeout holds for each, however many there are
            await node.driver_ready()
        options.started(f"drivers of {len(self.nodes)} nodes")
        for name, program in (("webhook", self.webhook), ("controller", self.controller)):
            if program is not None:
                await program.ready(READY_TIMEOUT_S)
                options.started(name)
        stack.enter_context(frozen_heap(_SELDOM, collect=False))

    async def _start_loops(self) -> None:
        options, stack = self.options, self._stack
        group = await stack.enter_async_context(_Background())
        ready = asyncio.Event()
        group.start(
            controller_manager.run(
                self.access,
                ca_pem=self.server.ca_pem.decode(),
                options=options.manager,
                ready=ready,
                release=self.release,
            ),
            "controller-manager",
        )
        self._loops = group
        self.start_scheduler()
        async with asyncio.timeout(READY_TIMEOUT_S):
            await ready.wait()

    def start_scheduler(self) -> None:
        """Start kube-scheduler; it runs already unless `stop_scheduler` ended it."""
        self._scheduler = self._loops.start(self._run_scheduler(), "scheduler")

    async def stop_scheduler(self) -> None:
        """End kube-scheduler at once: pods wait, what it assumed is forgotten."""
        self._scheduler.cancel()
        await asyncio.gather(self._scheduler, return_exceptions=True)

    async def _run_scheduler(self) -> None:
        async with self.client("system:kube-scheduler") as client, asyncio.TaskGroup() as group:
            events = EventRecorder(client, "default-scheduler")
            scheduler = Scheduler(
                client,
                events,
                selects=Selection(),
                random=Random(self.options.seed),  # noqa: S311
                backoff_s=self.options.scheduler_backoff_s,
                release=self.release,
            )
            group.create_task(events.run(), name="scheduler events")
            group.create_task(scheduler.run(), name="scheduler loop")

    async def _start_nodes(self, drivers: Programs) -> None:
        root = self._node_root()
        for number, spec in enumerate(self.options.nodes):
            node = Node(
                spec,
                root=root / spec.name,
                number=number,
                access=self.access,
                driver=DriverProgram(
                    programs=drivers,
                    kubeconfig=lambda user, extra: self.kubeconfig(user, extra=extra),
                    arguments=(*self._log_arguments, *self.options.flags.get("driver", ())),
                ),
                times=self.options.times,
                random=Random(f"{self.options.seed}/{spec.name}"),  # noqa: S311
                release=self.release,
                runtime=self.options.runtime,
            )
            self.nodes[spec.name] = node
            self._stack.push_async_callback(node.stop)
        few = asyncio.Semaphore(NODES_AT_ONCE)

        async def start(node: Node) -> None:
            async with few:
                await node.start()

        await asyncio.gather(*(start(node) for node in self.nodes.values()))

    def _node_root(self) -> Path:
        """The directory of all nodes' files: below workdir, or a short temporary one where socket paths would get too long."""
        wanted = (self.options.workdir / "nodes").absolute()
        longest = max((len(spec.name) for spec in self.options.nodes), default=0)
        if len(str(wanted)) + longest + len(_SOCKET) + 2 <= _SOCKET_MAX:
            return wanted
        short = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="fl-"))
        return Path(short)

    # -- Fairlead's programs ---------------------------------------------------------------------------------------

    async def start_webhook(self, *, wait: bool = True) -> None:
        self.webhook = self._start_program("webhook", "webhook", "--bind=127.0.0.1:0", "--url=https://127.0.0.1:0")
        if wait:
            await self.webhook.ready(READY_TIMEOUT_S)

    async def start_controller(self, *, wait: bool = True, name: str = "controller") -> Program:
        """Start a controller; a second one under another name waits for the lease. Returns it."""
        started = self.controller = self._start_program(name, "controller", f"--identity={name}")
        if wait:
            await started.ready(READY_TIMEOUT_S)
        return started

    def _start_program(self, name: str, program: str, *arguments: str) -> Program:
        assert self._host is not None
        config = self.kubeconfig(f"system:serviceaccount:{names.NAMESPACE}:fairlead-{program}")
        more = (*arguments, *self._log_arguments, *self.options.flags.get(program, ()))
        return self._host.start(name, (program, f"--kubeconfig={config}", *more))

    async def stop_programs(self) -> None:
        """Every process that runs Fairlead, by SIGTERM, while the cluster still answers."""
        if self._host is not None:
            await self._host.stop()

    @property
    def _log_arguments(self) -> tuple[str, ...]:
        return ("--log-format=text", f"--log-level={self.options.log_level}")


@contextlib.contextmanager
def _long_lived() -> Iterator[None]:
    """Collect garbage seldom: a cluster's objects stay. With 200 nodes a full collection stops everything for a second and
    finds nothing.
    """
    before = gc.get_threshold()
    gc.set_threshold(*_SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _groups(user: str) -> tuple[str, ...]:
    """The loops that populate and empty namespaces are several accounts in Kubernetes, one here."""
    return ("system:masters",) if user == controller_manager.account("namespace-controller") else ()


class _Background:
    """Tasks that run until the cluster ends; one that fails is logged, and fails nothing else."""

    def __init__(self) -> None:
        self.stack = contextlib.AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, run: Any, name: str) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(run, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            log.error("%s ended", task.get_name(), exc_info=task.exception())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.stack.aclose()
