"""A whole cluster in one process: apiserver, control loops, nodes with the real driver, and Fairlead's programs.

Exists so that `make demo`, e2e and every fault test run what users run, on nothing but Python. Everything talks to the
apiserver over HTTPS, each as its own user under RBAC; Fairlead is installed from manifests/base as an operator would.
Start-up order: apiserver, manifests, loops and kubelets, programs; the other way round at the end. Leaves nothing
behind but what is in `workdir`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import logging
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, Self

from fairlead.api import names
from fairlead.kube.client import Client
from fairlead.kube.events import EventRecorder
from fairlead.kube.resources import Raw
from fairlead.sandbox import files
from fairlead.sandbox.apiserver.server import ApiServer
from fairlead.sandbox.controllers import manager as controller_manager
from fairlead.sandbox.controllers.manager import ManagerOptions
from fairlead.sandbox.install import manifests, programs
from fairlead.sandbox.install.apply import Applier
from fairlead.sandbox.install.programs import Mode, Program, Programs
from fairlead.sandbox.node import Node, NodeSpec, NodeTimes
from fairlead.sandbox.scheduler.loop import Scheduler
from fairlead.sandbox.scheduler.selection import Selection

log = logging.getLogger(__name__)

READY_TIMEOUT_S: Final = 30.0
NODES_AT_ONCE: Final = 16
SWITCH_S: Final = 0.0005
# A unix socket's path has at most 107 bytes; this is what a node adds to its directory.
_SOCKET: Final = f"plugins/{names.DRIVER}/dra.sock"
_SOCKET_MAX: Final = 100

Nodes = dict[str, Node]

__all__ = ["Cluster", "ClusterOptions", "NodeSpec", "NodeTimes"]


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """What the cluster is made of.

    `run_programs` False leaves Fairlead's webhook and controller out (drivers run where a node has a profile);
    `install` False leaves manifests/base out too. `programs` says how drivers run (see programs.py): `task` is for many
    nodes. Webhook and controller are always processes: what they compute may not hold up the cluster. `webhook` and `controller` are fields of their options to set, for tests.
    """

    workdir: Path
    nodes: tuple[NodeSpec, ...] = ()
    run_programs: bool = True
    install: bool = True
    programs: Mode = "process"
    seed: int = 0
    log_level: str = "INFO"
    times: NodeTimes = field(default_factory=NodeTimes)
    manager: ManagerOptions = field(default_factory=ManagerOptions)
    scheduler_backoff_s: tuple[float, float] = (1.0, 10.0)
    webhook: Mapping[str, Any] = field(default_factory=dict)
    controller: Mapping[str, Any] = field(default_factory=dict)


class Cluster:
    """`async with Cluster(options) as cluster`: ready when the block begins, gone when it ends."""

    def __init__(self, options: ClusterOptions) -> None:
        self.options = options
        self.nodes: Nodes = {}
        self.server = ApiServer(workdir=options.workdir / "pki", random=Random(options.seed))  # noqa: S311
        self.webhook: Program | None = None
        self.controller: Program | None = None
        self._programs: Programs | None = None
        self._drivers: Programs | None = None
        self._stack = contextlib.AsyncExitStack()
        self._configs: dict[str, Path] = {}
        self._admin: Client | None = None

    # -- what users of the cluster need ----------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return self.server.url

    def kubeconfig(self, user: str = "admin", *, extra: Mapping[str, tuple[str, ...]] | None = None) -> Path:
        """A kubeconfig file with which any client is `user`; made once per user."""
        identity = user if not extra else f"{user}|{sorted(extra.items())}"
        if identity not in self._configs:
            name = user.replace(":", "-").replace("/", "-")
            if extra:
                name += "-" + hashlib.sha256(identity.encode()).hexdigest()[:8]
            path = self.options.workdir / "kubeconfigs" / f"{name}.yaml"
            path.parent.mkdir(parents=True, exist_ok=True)
            # The loops that furnish and empty namespaces are several accounts in Kubernetes, one here.
            groups = ("system:masters",) if user == controller_manager.account("namespace-controller") else ()
            path.touch(mode=0o600)
            path.write_text(self.server.kubeconfig(user, groups=groups, extra=dict(extra or {})))
            self._configs[identity] = path
        return self._configs[identity]

    @contextlib.asynccontextmanager
    async def client(self, user: str = "admin") -> AsyncIterator[Client]:
        async with Client.connect(self.kubeconfig(user), user_agent=f"sandbox-{user}") as client:
            yield client

    async def apply(self, what: Path | str | Iterable[Mapping[str, Any]]) -> list[Raw]:
        """Apply a file, a directory, a kustomization, or objects, as `kubectl apply --server-side` would."""
        assert self._admin is not None
        loaded = manifests.load(Path(what)) if isinstance(what, Path | str) else [dict(each) for each in what]
        return await Applier(self._admin).apply(loaded)

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
        self._programs = await self._run_programs("process" if options.run_programs else options.programs)
        self._drivers = self._programs
        if options.programs == "task":
            stack.enter_context(_fair_threads())
        if options.programs == "task" and options.run_programs:
            self._drivers = await self._run_programs("task")
        await self.server.start()
        stack.push_async_callback(self.server.stop)
        self._admin = await stack.enter_async_context(self.client())
        if options.install:
            await self.apply(files.find("manifests/base"))
        await self._start_loops()
        await self._start_nodes()
        if options.run_programs:
            await self.start_webhook(wait=False)
            await self.start_controller(wait=False)
        for node in self.nodes.values():  # one after the other: the patience is with each, however many there are
            await node.driver_ready()
        for program in (self.webhook, self.controller):
            if program is not None:
                await program.ready(READY_TIMEOUT_S)
        gc.freeze()
        stack.callback(gc.unfreeze)

    async def _run_programs(self, mode: Mode) -> Programs:
        log_dir = self.options.workdir / "logs"
        running = programs.running(mode, log_dir=log_dir, log_level=self.options.log_level)
        return await self._stack.enter_async_context(running)

    async def _start_loops(self) -> None:
        options, stack = self.options, self._stack
        group = await stack.enter_async_context(_Background())
        ready = asyncio.Event()
        group.start(
            controller_manager.run(
                self.kubeconfig,
                ca_pem=self.server.ca_pem.decode(),
                options=options.manager,
                ready=ready,
            ),
            "controller-manager",
        )
        client = await group.stack.enter_async_context(self.client("system:kube-scheduler"))
        events = EventRecorder(client, "default-scheduler")
        scheduler = Scheduler(
            client,
            events,
            selects=Selection(),
            random=Random(options.seed),  # noqa: S311
            backoff_s=options.scheduler_backoff_s,
        )
        group.start(events.run(), "scheduler events")
        group.start(scheduler.run(), "scheduler")
        async with asyncio.timeout(READY_TIMEOUT_S):
            await ready.wait()

    async def _start_nodes(self) -> None:
        assert self._drivers is not None
        root = self._node_root()
        for number, spec in enumerate(self.options.nodes):
            node = Node(
                spec,
                root=root / spec.name,
                number=number,
                kubeconfig=lambda user, extra: self.kubeconfig(user, extra=extra),
                programs=self._drivers,
                times=self.options.times,
                random=Random(f"{self.options.seed}/{spec.name}"),  # noqa: S311
            )
            self.nodes[spec.name] = node
            self._stack.push_async_callback(node.stop)
        few = asyncio.Semaphore(NODES_AT_ONCE)

        async def start(node: Node) -> None:
            async with few:
                await node.start()

        await asyncio.gather(*(start(node) for node in self.nodes.values()))

    def _node_root(self) -> Path:
        """Where nodes keep their files: under workdir, or, where socket paths would get too long, in a short place."""
        wanted = (self.options.workdir / "nodes").absolute()
        longest = max((len(spec.name) for spec in self.options.nodes), default=0)
        if len(str(wanted)) + longest + len(_SOCKET) + 2 <= _SOCKET_MAX:
            return wanted
        short = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="fl-"))
        return Path(short)

    # -- Fairlead's programs ---------------------------------------------------------------------------------------

    async def start_webhook(self, *, wait: bool = True) -> None:
        from fairlead.webhook.app import WebhookOptions

        config = self.kubeconfig(f"system:serviceaccount:{names.NAMESPACE}:fairlead-webhook")
        base: dict[str, Any] = {"kubeconfig": config, "bind": "127.0.0.1:0", "url": "https://127.0.0.1:0"}
        options = WebhookOptions(**(base | dict(self.options.webhook)))
        self.webhook = self._start_program("webhook", options)
        if wait:
            await self.webhook.ready(READY_TIMEOUT_S)

    async def start_controller(self, *, wait: bool = True, name: str = "controller") -> Program:
        """Start a controller; a second one under another name waits for the lease. Returns it."""
        from fairlead.controller.app import ControllerOptions

        config = self.kubeconfig(f"system:serviceaccount:{names.NAMESPACE}:fairlead-controller")
        base: dict[str, Any] = {"kubeconfig": config, "identity": name}
        options = ControllerOptions(**(base | dict(self.options.controller)))
        started = self._start_program("controller", options, name=name)
        self.controller = started
        if wait:
            await started.ready(READY_TIMEOUT_S)
        return started

    def _start_program(self, program: str, options: Any, *, name: str = "") -> Program:
        assert self._programs is not None
        return self._programs.start(name or program, program, options)


@contextlib.contextmanager
def _long_lived() -> Iterator[None]:
    """What a cluster holds stays: looking through it for what is unreachable would stop everything for a second again and
    again (200 nodes), and find nothing.
    """
    before = gc.get_threshold()
    gc.set_threshold(50_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextlib.contextmanager
def _fair_threads() -> Iterator[None]:
    """Drivers in this process do their file work in threads, and after each file a thread waits for its turn with the
    interpreter: 5 ms by default while the event loop is busy, which lets through two hundred files a second and no more.
    """
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before_s)


class _Background:
    """Tasks that run until the cluster ends; one that fails is logged, and fails nothing else."""

    def __init__(self) -> None:
        self.stack = contextlib.AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, run: Any, name: str) -> None:
        task = asyncio.create_task(run, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

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
