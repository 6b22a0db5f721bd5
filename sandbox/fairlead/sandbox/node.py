"""A simulated node: a kubelet, a container runtime, GPUs, and the real driver on them.

Tests and the demo do to it what happens to nodes: its driver is killed and started again, its kubelet restarts, it loses
power and comes back. The driver is the real program (`fairlead driver`) with a simulated backend; a kill is a SIGKILL, so
no cleanup runs. The state of the hardware is in a file of the node and survives the driver.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from fairlead.api import names
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import NODES
from fairlead.sandbox.controllers.manager import Access
from fairlead.sandbox.install.programs import Program, Programs
from fairlead.sandbox.kubelet.kubelet import Kubelet, KubeletOptions
from fairlead.sandbox.kubelet.node_object import Machine
from fairlead.sandbox.kubelet.plugins import PluginError
from fairlead.sandbox.kubelet.runtime import Runtime
from fairlead.sandbox.release import NEWEST, Release

log = logging.getLogger(__name__)

READY_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class NodeSpec:
    """One node: its name, its driver's profile (a name or a file; empty: no driver), and its other resources.

    `moved`: other paths of directories that a node has, as of a kubelet with another root; each with its usual path.
    `flags`: more flags of this node's driver, as a pool of nodes may have its own.
    """

    name: str
    profile: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    moved: Mapping[str, str] = field(default_factory=dict)
    cpu: str = "192"
    memory: str = "2Ti"
    pods: str = "110"
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NodeTimes:
    """How fast a kubelet notices things. A real one's: 40, 30, 60, 60 and 10 s.

    `sync_s`: until it looks again at a pod whose claims it could not prepare; `backoff_s`: the same where it could not
    unprepare. Up to half as much is added to either.
    """

    lease_s: float = 8.0
    wiping_delay_s: float = 30.0
    reconcile_s: float = 60.0
    sync_s: float = 6.0
    backoff_s: float = 1.0


@dataclass(frozen=True, kw_only=True)
class DriverProgram:
    """How a node's driver is started. `kubeconfig(user, extra)` writes a file for that user."""

    programs: Programs
    kubeconfig: Callable[[str, Mapping[str, tuple[str, ...]]], Path]
    arguments: tuple[str, ...] = ()


class Node:
    def __init__(
        self,
        spec: NodeSpec,
        *,
        root: Path,
        number: int,
        access: Access,
        driver: DriverProgram,
        times: NodeTimes,
        random: Random,
        release: Release = NEWEST,
        runtime: Callable[[], Runtime] = Runtime,
    ) -> None:
        self.spec = spec
        self.name = spec.name
        self.root = root
        self.runtime = runtime()
        self._access = access
        self._program = driver
        self._times = times
        self._random = random
        self._release = release
        self._address = f"10.0.{number >> 8}.{(number & 255) + 1}"
        self._kubelet: Kubelet | None = None
        self._kubelet_task: asyncio.Task[None] | None = None
        self._driver: Program | None = None
        self._unseen: dict[str, str] = {}

    # -- where things are ------------------------------------------------------------------------------------------

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
    def host_paths(self) -> dict[str, Path]:
        """Where the directories of a real node that Fairlead's pods mount are on this machine."""
        known = {
            "/var/lib/kubelet/plugins": self.plugins_dir,
            "/var/lib/kubelet/plugins_registry": self.registry_dir,
            "/var/run/cdi": self.cdi_dir,
        }
        return known | {path: known[same] for path, same in self.spec.moved.items()}

    @property
    def kubelet(self) -> Kubelet:
        if self._kubelet is None:
            raise RuntimeError(f"node {self.name}: its kubelet was never started")
        return self._kubelet

    @property
    def driver_arguments(self) -> tuple[str, ...]:
        """The driver's command line: as in a DaemonSet, with a service account's token that is bound to this node."""
        user = f"system:serviceaccount:{names.NAMESPACE}:fairlead-driver"
        config = self._program.kubeconfig(user, {"authentication.kubernetes.io/node-name": (self.name,)})
        return (
            "driver",
            f"--node-name={self.name}",
            f"--kubeconfig={config}",
            f"--backend=simulated:{self.spec.profile}",
            f"--plugins-dir={self.plugins_dir}",
            f"--registry-dir={self.registry_dir}",
            f"--cdi-dir={self.cdi_dir}",
            *self._program.arguments,
            *self.spec.flags,
        )

    # -- the kubelet -----------------------------------------------------------------------------------------------

    async def start_kubelet(self) -> None:
        for each in (self.plugins_dir, self.registry_dir, self.cdi_dir):
            each.mkdir(parents=True, exist_ok=True)
        started = asyncio.Event()
        self._kubelet_task = asyncio.create_task(self._run_kubelet(started), name=f"kubelet {self.name}")
        waiting = asyncio.ensure_future(started.wait())
        await asyncio.wait((waiting, self._kubelet_task), timeout=READY_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._kubelet_task.done():
            self._kubelet_task.result()
        if not started.is_set():
            raise TimeoutError(f"node {self.name}: its kubelet is not ready after {READY_TIMEOUT_S:.0f} s")

    async def _run_kubelet(self, started: asyncio.Event) -> None:
        user = f"system:node:{self.name}"
        async with Client.connect(self._access(user), user_agent="kubelet") as client:
            machine = Machine(
                cpu=self.spec.cpu,
                memory=self.spec.memory,
                pods=self.spec.pods,
                labels=self.spec.labels,
                address=self._address,
                kubelet_version=self._release.version,
            )
            options = KubeletOptions(
                node_name=self.name,
                registry_dir=self.registry_dir,
                cdi_dir=self.cdi_dir,
                host_paths=self.host_paths,
                state_dir=self.root / "kubelet",
                machine=machine,
                lease_s=self._times.lease_s,
                wiping_delay_s=self._times.wiping_delay_s,
                reconcile_s=self._times.reconcile_s,
                sync_s=self._times.sync_s,
                backoff_s=self._times.backoff_s,
                unseen=self._unseen,
            )
            kubelet = self._kubelet = Kubelet(client, options, self.runtime, random=self._random)
            run = asyncio.ensure_future(kubelet.run())
            ready = asyncio.ensure_future(kubelet.ready.wait())
            try:
                await asyncio.wait((run, ready), return_when=asyncio.FIRST_COMPLETED)
                if ready.done():
                    started.set()
                await run
            finally:
                ready.cancel()
                run.cancel()
                await asyncio.gather(run, return_exceptions=True)

    def occupy(self, **quantities: str) -> None:
        """Let something that the API does not show use cpu, memory or pods of the node; without arguments it ends.

        kube-scheduler still binds pods here; kubelet refuses the next ones that do not fit. Pods that run stay.
        """
        self._unseen.clear()
        self._unseen.update(quantities)

    async def stop_kubelet(self) -> None:
        """The kubelet ends at once and cleans nothing up; containers go on."""
        if self._kubelet_task is not None:
            self._kubelet_task.cancel()
            await asyncio.gather(self._kubelet_task, return_exceptions=True)
            self._kubelet_task = None

    # -- the driver ------------------------------------------------------------------------------------------------

    async def start_driver(self, *, wait: bool = True) -> None:
        """Start the driver; wait until its slices are published and kubelet may call it."""
        if not self.spec.profile:
            return
        self._driver = self._program.programs.start(f"driver {self.name}", self.driver_arguments)
        if wait:
            await self.driver_ready()

    async def driver_ready(self) -> None:
        """Until the driver announces that it is ready, and the kubelet (if it runs) has registered it."""
        if self._driver is None:
            return
        await self._driver.ready(READY_TIMEOUT_S)
        if self._kubelet_task is not None:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await self.kubelet.plugins.registered(names.DRIVER)

    async def stop_driver(self) -> None:
        """SIGTERM: the driver removes its sockets and ends."""
        if self._driver is not None:
            await self._driver.stop()
            self._driver = None

    async def kill_driver(self) -> None:
        """SIGKILL: sockets, files and half-done work stay as they are."""
        if self._driver is not None:
            await self._driver.kill()
            self._driver = None

    def kill_driver_before_reply(self, method: str) -> asyncio.Event:
        """Kill the driver when its next answer to `method` is on its way: the work is done, and the answer is lost.

        Returns an event that is set once the driver has ended.
        """
        plugins, dead = self.kubelet.plugins, asyncio.Event()

        async def tap(called: str) -> None:
            if called != method:
                return
            plugins.tap = None
            await self.kill_driver()
            dead.set()
            raise PluginError(f"{method}: the connection was closed before the reply")

        plugins.tap = tap
        return dead

    # -- the whole node --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        await self.start_kubelet()
        await self.start_driver(wait=False)

    async def stop(self) -> None:
        """An orderly end."""
        await self.stop_driver()
        await self.stop_kubelet()
        self._end_processes()

    async def power_off(self, *, admin: Client | None = None) -> None:
        """Power loss: driver, kubelet and containers end at once. With `admin` the Node object is deleted, too, as a
        cloud provider does for a machine that was removed.
        """
        if self._driver is not None:
            await self.kill_driver()
        await self.stop_kubelet()
        self._end_processes()
        if admin is not None:
            with contextlib.suppress(errors.NotFound):
                await admin.delete(NODES, self.name)

    def _end_processes(self) -> None:
        """Containers end, and so do the processes that survive a driver: an MPS daemon, with its directory."""
        self.runtime.power_off()
        shutil.rmtree(self._mps_dir, ignore_errors=True)

    @property
    def _mps_dir(self) -> Path:
        return self.plugins_dir / names.DRIVER / "mps"

    async def power_on(self) -> None:
        """Power is back: kubelet and driver start again on what is on disk."""
        await self.start_kubelet()
        await self.start_driver()

    def leftovers(self) -> Iterator[str]:
        """What is still held on this node, a sentence each: containers, kubelet's claims, CDI files, the driver's records."""
        for namespace, pod, name in sorted(self.runtime.running):
            yield f"container {namespace}/{pod}/{name} is still running"
        if self._kubelet is not None:
            for each in self._kubelet.dra.claims:
                yield f"kubelet still holds claim {each.ref.namespace}/{each.ref.name}"
        for path in sorted(self.cdi_dir.glob("*")):
            yield f"CDI file {path.name} is still there"
        for path in sorted((self.plugins_dir / names.DRIVER / "claims").glob("*")):
            yield f"the driver still holds a record: {path.name}"
        for path in (
            *sorted(self._mps_dir.glob("*")),
            *sorted(self._mps_dir.with_name("dra-device-metadata").glob("*")),
        ):
            yield f"the driver still has {path.parent.name} of a claim: {path.name}"
