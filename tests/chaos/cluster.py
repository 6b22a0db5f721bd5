"""The cluster of the campaign: which processes there are, how each is started, and what starts it again.

Two apiservers serve one store, as over one etcd. Every program is the real one, on the campaign's network. A program that ends by
itself is started again after a while, as kubelet or systemd would; what it ended with is kept for the verdict.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from fairlead.api import names
from fairlead.controller import app as controller_app
from fairlead.driver import app as driver_app
from fairlead.driver.common.locks import ProcessLockError
from fairlead.driver.kubelet.server import SocketError
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.credentials import Credentials
from fairlead.kube.events import EventRecorder
from fairlead.sandbox import files
from fairlead.sandbox.apiserver import assembly
from fairlead.sandbox.apiserver.dispatch import Dispatcher
from fairlead.sandbox.apiserver.faults import Faults
from fairlead.sandbox.apiserver.rbac import Rbac
from fairlead.sandbox.apiserver.state import State
from fairlead.sandbox.apiserver.wire.exchange import Request, Response, Stream
from fairlead.sandbox.controllers import manager
from fairlead.sandbox.controllers.manager import ManagerOptions
from fairlead.sandbox.install import manifests
from fairlead.sandbox.install.apply import Applier
from fairlead.sandbox.kubelet.kubelet import Kubelet, KubeletOptions
from fairlead.sandbox.kubelet.node_object import Machine
from fairlead.sandbox.kubelet.runtime import Container, Runtime
from fairlead.sandbox.scheduler.devices import Selection
from fairlead.sandbox.scheduler.loop import Scheduler
from fairlead.webhook import app as webhook_app
from fairlead.webhook.options import WebhookOptions
from tests.chaos import disk, replacements, rpc, virtual
from tests.chaos.disk import Disk
from tests.chaos.loop import Process, VirtualLoop
from tests.chaos.network import MemoryWire, Network
from tests.chaos.programs import Main, Program
from tests.chaos.recording import Recordings
from tests.chaos.virtual import CHANCE
from tests.support.kubernetes import of_this_run

log = logging.getLogger(__name__)

APISERVERS = ("apiserver-1", "apiserver-2")
CONTROLLERS = ("controller-a", "controller-b")
BOOKMARKS_S = 20.0
GANG_TIMEOUT_S = 40.0
REPLACE_TIMEOUT_S = 60.0
PROFILE = "hgx-h100"
WEBHOOK_PORT = 9443


class Apiserver:
    """One replica: what a wire calls."""

    def __init__(self, process: Process, dispatcher: Dispatcher) -> None:
        self.process = process
        self._dispatcher = dispatcher

    async def answer(self, request: Request) -> Response | Stream | None:
        return await self._dispatcher.handle(request)


class NodeRuntime(Runtime):
    """Containers go on while kubelet is paused or dead; they end with the power."""

    def __init__(self, loop: VirtualLoop, node: str) -> None:
        super().__init__()
        self.process = Process(f"runtime-{node}", loop)

    def start(self, uid: str, name: str, **more: Any) -> Container:
        return self.process.context.run(super().start, uid, name, **more)

    def terminate(self, container: Container) -> None:
        self.process.context.run(super().terminate, container)


class ChaosNode:
    """A machine: its directories and disk, its runtime, kubelet and driver."""

    def __init__(self, cluster: ChaosCluster, name: str, number: int, root: Path) -> None:
        self.name = name
        self.number = number
        self.root = root
        self.powered = True
        self.boots = 1
        for each in (self.plugins_dir, self.registry_dir, self.cdi_dir, root / "host"):
            each.mkdir(parents=True, exist_ok=True)
        self.runtime = NodeRuntime(cluster.loop, name)
        self.kubelet_now: Kubelet | None = None
        self.disk = Disk(self.plugins_dir, volatile=(self.cdi_dir,))
        self.kubelet = cluster.add(f"kubelet-{name}", lambda program: self._run_kubelet(cluster, program))
        self.driver = cluster.add(f"driver-{name}", lambda program: self._run_driver(cluster, program))
        disk.mount(self.driver.name, self.disk)
        self._new_boot_id()

    @property
    def plugins_dir(self) -> Path:
        return self.root / "plugins"

    @property
    def registry_dir(self) -> Path:
        return self.root / "registry"

    @property
    def cdi_dir(self) -> Path:
        return self.root / "cdi"

    @property
    def data_dir(self) -> Path:
        return self.plugins_dir / names.DRIVER

    def power_off(self) -> None:
        self.powered = False
        self.driver.kill()
        self.kubelet.kill()
        self.runtime.power_off()
        rpc.SOCKETS.changed()
        self.disk.lose_power()
        self.boots += 1
        self._new_boot_id()

    def power_on(self) -> None:
        """Nothing where it is on."""
        self.powered = True
        self.kubelet.start()
        self.driver.start()

    def _new_boot_id(self) -> None:
        replacements.boot_ids[self.driver.name] = f"{self.name}-{self.boots}\n"

    async def _run_kubelet(self, cluster: ChaosCluster, program: Program) -> None:
        async with Client.connect(cluster.access(f"system:node:{self.name}"), user_agent="kubelet") as client:
            options = KubeletOptions(
                node_name=self.name,
                registry_dir=self.registry_dir,
                cdi_dir=self.cdi_dir,
                state_dir=self.root / "kubelet",
                machine=Machine(
                    cpu="192",
                    memory="2Ti",
                    pods="110",
                    address=f"10.0.0.{self.number + 1}",
                    kubelet_version=cluster.release.version,
                ),
                lease_s=12.0,
                wiping_delay_s=30.0,
                reconcile_s=30.0,
                sync_s=6.0,
                backoff_s=1.0,
            )
            self.kubelet_now = Kubelet(client, options, self.runtime, random=Random(CHANCE.getrandbits(64)))
            program.started()
            await self.kubelet_now.run()

    async def _run_driver(self, cluster: ChaosCluster, program: Program) -> None:
        user = f"system:serviceaccount:{names.NAMESPACE}:fairlead-driver"
        ready = asyncio.Event()
        options = driver_app.DriverOptions(
            node_name=self.name,
            plugins_dir=self.plugins_dir,
            registry_dir=self.registry_dir,
            cdi_dir=self.cdi_dir,
            kubeconfig=cluster.access(user, node=self.name),
            backend=f"simulated:{PROFILE}",
            driver_root=self.root / "host",  # without NVIDIA's libraries: to look for them costs most of a start
            self_check_s=30.0,
            orphan_gc_interval_s=30.0,
            hardware_interval_s=10.0,
            mps_interval_s=30.0,
        )
        marking = asyncio.ensure_future(_then(ready, program.started))
        try:
            await driver_app.run(options, ready=ready)
        finally:
            marking.cancel()


async def _then(event: asyncio.Event, work: Callable[[], None]) -> None:
    await event.wait()
    work()


class ChaosCluster:
    """All programs, by name, in the order in which they are started. To be used by the process `admin`."""

    def __init__(self, loop: VirtualLoop, root: Path, *, nodes: tuple[str, ...] = ("n1", "n2", "n3")) -> None:
        self.loop = loop
        self.admin = Process("admin", loop)
        self.network = Network(loop)
        replacements.install(self.network)
        self.programs: dict[str, Program] = {}
        self.ends: list[tuple[Process, BaseException | None]] = []
        self.release = of_this_run()
        self.states = self._states()
        self.store = self.states[0].store
        self.apiservers: dict[str, Apiserver] = {}
        self._preferred: dict[str, int] = {}
        for name, state in zip(APISERVERS, self.states, strict=True):
            self.add(name, lambda program, state=state: self._serve(program, state))  # type: ignore[misc]
        self.add("controller-manager", self._run_manager)
        self.add("scheduler", self._run_scheduler)
        self.nodes = {name: ChaosNode(self, name, number, root / name) for number, name in enumerate(nodes)}
        self.recordings = Recordings(root, CONTROLLERS)
        self.add("webhook", self._run_webhook)
        for name in CONTROLLERS:
            self.add(name, self._run_controller)

    def add(self, name: str, main: Main) -> Program:
        made = self.programs[name] = Program(self, name, main)
        return made

    def note_end(self, process: Process, error: BaseException | None) -> None:
        log.info("%s ended by itself: %r", process, error)
        self.ends.append((process, error))

    # -- access

    def access(self, user: str, *, node: str = "", groups: tuple[str, ...] = ()) -> Credentials:
        extra = {"authentication.kubernetes.io/node-name": (node,)} if node else {}
        if user == "admin":
            groups = ("system:masters",)
        token = self.states[0].tokens.issue(user, groups, extra)

        async def authorization(*, force: bool = False) -> str:
            return f"Bearer {token}"

        return Credentials(
            url="https://cluster.invalid",
            authorization=authorization,
            wire=lambda agent: MemoryWire(self.network, self, agent),
        )

    def server_of(self, client: Process) -> Apiserver:
        """The replica that a load balancer gives this client."""
        at = self._preferred.setdefault(client.name, len(self._preferred) % len(APISERVERS))
        return self.apiservers[APISERVERS[at]]

    def refused(self, client: Process) -> None:
        """The next connection goes to another replica."""
        self._preferred[client.name] = (self._preferred.get(client.name, 0) + 1) % len(APISERVERS)

    # -- programs

    def _states(self) -> tuple[State, State]:
        """One cluster, served twice."""

        first = assembly.assemble(
            virtual.now,
            CHANCE,
            authorize=True,
            bookmark_interval_s=BOOKMARKS_S,
            history_limit=2_000,
            release=self.release,
        )
        second = State(
            first.store,
            first.registry,
            virtual.now,
            CHANCE,
            first.tokens,
            first.admission,
            bookmark_interval_s=BOOKMARKS_S,
            release=self.release,
        )
        second.authorizer = Rbac(second)
        return first, second

    async def _serve(self, program: Program, state: State) -> None:
        process = program.process
        assert process is not None
        self.apiservers[program.name] = Apiserver(process, Dispatcher(state, Faults(lambda _: 0)))
        program.started()
        await asyncio.Event().wait()

    async def _run_manager(self, program: Program) -> None:
        def access(user: str) -> Any:
            # The loops that populate and empty namespaces are several accounts in Kubernetes, one here.
            masters = user == manager.account("namespace-controller")
            return self.access(user, groups=("system:masters",) if masters else ())

        options = ManagerOptions(job_backoff_s=1.0, node_grace_s=30.0, node_eviction_s=5.0)
        program.started()
        await manager.run(access, ca_pem="", options=options, ready=asyncio.Event(), release=self.release)

    async def _run_scheduler(self, program: Program) -> None:
        async with Client.connect(self.access("system:kube-scheduler"), user_agent="scheduler") as client:
            events = EventRecorder(client, "default-scheduler")
            scheduler = Scheduler(
                client,
                events,
                selects=Selection(),
                random=Random(CHANCE.getrandbits(64)),
                backoff_s=(1.0, 10.0),
                release=self.release,
            )
            program.started()
            async with asyncio.TaskGroup() as group:
                group.create_task(events.run())
                group.create_task(scheduler.run())

    async def _run_webhook(self, program: Program) -> None:
        user = f"system:serviceaccount:{names.NAMESPACE}:fairlead-webhook"
        ready = asyncio.Event()
        marking = asyncio.ensure_future(_then(ready, program.started))
        options = WebhookOptions(
            kubeconfig=self.access(user), bind=f"127.0.0.1:{WEBHOOK_PORT}", url=f"https://127.0.0.1:{WEBHOOK_PORT}"
        )
        try:
            await webhook_app.run(options, ready=ready)
        finally:
            marking.cancel()

    async def _run_controller(self, program: Program) -> None:
        user = f"system:serviceaccount:{names.NAMESPACE}:fairlead-controller"
        program.started()
        await controller_app.run(
            controller_app.ControllerOptions(
                kubeconfig=self.access(user),
                identity=f"{program.process!r}",
                gang_timeout_s=GANG_TIMEOUT_S,
                replace_timeout_s=REPLACE_TIMEOUT_S,
                forecast=False,  # its process would take real time
                record=self.recordings.directory,
                record_age_max_s=float("inf"),  # files have the machine's times
            )
        )

    # -- life

    async def start(self) -> None:
        """Everything runs, and Fairlead is installed; returns when nodes, devices and webhook are there."""
        for name in APISERVERS:
            self.programs[name].start()
        await asyncio.sleep(0.1)
        async with self.client() as client:
            await Applier(client).apply(manifests.load(files.find("manifests/base")))
            for program in self.programs.values():
                program.start()
            await self._until_installed(client)
        for each in self.disks:
            each.sync()

    @property
    def disks(self) -> list[Disk]:
        return [*(node.disk for node in self.nodes.values()), self.recordings.disk]

    async def _until_installed(self, client: Client) -> None:
        wanted = {("", "nodes"): len(self.nodes), ("resource.k8s.io", "resourceslices"): len(self.nodes)}
        while any(  # noqa: ASYNC110
            len(self.states[0].list(*kind)) < count for kind, count in wanted.items()
        ) or not (self.states[0].list("admissionregistration.k8s.io", "mutatingwebhookconfigurations")):
            await asyncio.sleep(0.5)  # an event would have to come out of the store

    def client(self, user: str = "admin", *, node: str = "") -> Any:
        return Client.connect(self.access(user, node=node), user_agent=user)


EXPECTED_ENDS = (errors.ApiError, ProcessLockError, SocketError, OSError)
"""With which a program may end when it cannot start, or its disk does not serve it; anything else is a defect."""
