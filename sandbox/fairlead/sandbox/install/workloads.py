"""Runs Fairlead from what was installed: the pods of its Deployments and DaemonSets, each as its ServiceAccount.

A misspelt flag, a missing permission, an unmounted directory or a probe on the wrong port fails here as it would in a
cluster. Pods are real objects; the scheduler binds a Deployment's, kubelet runs them as far as a simulated one does, and
the process behind each is the `fairlead` command line with the container's arguments and environment and a token bound
to the pod; another Runtime may run it otherwise. Endpoints follow readiness. No control loop: a pod that ends is not
replaced, and `replace` rolls a workload.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import aiohttp

from fairlead.api import names
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import DAEMON_SETS, DEPLOYMENTS, NODES, PODS, raw
from fairlead.sandbox.install import pod_files
from fairlead.sandbox.install.pod_commands import PodError, command_of, only_container, port_number
from fairlead.sandbox.install.pod_files import PodFiles
from fairlead.sandbox.install.programs import Program, ProgramError, ProgramHost
from fairlead.sandbox.node_fit import matches_affinity
from fairlead.sandbox.objects import Obj, meta, name_of, spec_of
from fairlead.sandbox.ports import Ports

log = logging.getLogger(__name__)

READY_TIMEOUT_S: Final = 45.0
BOUND_TIMEOUT_S: Final = 20.0
POLL_S: Final = 0.05


class PodProcess(Program, Protocol):
    """The process behind a pod."""

    exited: asyncio.Event

    def failure(self, waited_s: float) -> ProgramError:
        """Why it is not ready after so long."""
        ...


@dataclass(frozen=True)
class Started:
    """A process, and the port of this machine for each port of its pod."""

    process: PodProcess
    ports: Mapping[int, int]


class Runtime(Protocol):
    """What runs a pod's container."""

    async def start(self, pod: Obj) -> Started:
        """Raises PodError or ProgramError."""
        ...


@dataclass(frozen=True, kw_only=True)
class Processes:
    """The Runtime of a machine without containers. `host_paths(node)`: where a node's directories are on this machine."""

    host: ProgramHost
    files: PodFiles
    host_paths: Callable[[str], Mapping[str, Path]]
    ports: Ports

    async def start(self, pod: Obj) -> Started:
        secrets = {name: path async for name, path in self.files.secrets(pod)}
        command = command_of(
            pod,
            host_paths=self.host_paths(spec_of(pod)["nodeName"]),
            volumes={**secrets, **dict(self.files.empty_dirs(pod))},
            free_port=self.ports.reserve,
        )
        environment = {"KUBECONFIG": str(await self.files.kubeconfig(pod)), **command.environment}
        return Started(self.host.start(name_of(pod), command.arguments, environment), command.ports)


@dataclass(frozen=True)
class Running:
    """One pod and the process behind it."""

    workload: str
    pod: Obj
    ports: Mapping[int, int]
    process: PodProcess

    @property
    def node(self) -> str:
        return str(spec_of(self.pod)["nodeName"])


class Workloads:
    """`start` runs everything that is installed; `stop` ends it. `running` is by pod name."""

    def __init__(self, admin: Client, runtime: Runtime) -> None:
        self.running: dict[str, Running] = {}
        self._admin = admin
        self._runtime = runtime
        self._serial = 0
        self._in_service: set[str] = set()
        self._publishing = asyncio.Lock()

    async def start(self) -> None:
        """Every pod of every workload, ready. Raises PodError, or ProgramError with the end of a pod's log."""
        found = [(workload, node) for workload in await self._workloads() for node in await self._pod_nodes(workload)]
        await asyncio.gather(*(self.start_pod(workload, node) for workload, node in found))

    async def stop(self) -> None:
        await asyncio.gather(*(self.stop_pod(name) for name in list(self.running)))

    async def replace(self, workload: str) -> None:
        """Roll a workload: pod by pod, the new one first where its strategy lets it surge."""
        (found,) = [each for each in await self._workloads() if name_of(each) == workload]
        for old in [name for name, each in self.running.items() if each.workload == workload]:
            node = self.running[old].node if found["kind"] == "DaemonSet" else None
            if _surges(found):
                await self.start_pod(found, node)
                await self.stop_pod(old)
            else:
                await self.stop_pod(old)
                await self.start_pod(found, node)

    async def start_pod(self, workload: Obj, node: str | None) -> Running:
        """One pod of a workload on a node (None: where the scheduler puts it); returns when it is ready."""
        pod = await self._bound(await self._admin.create(raw(PODS), self._pod(workload, node), names.NAMESPACE))
        started = await self._runtime.start(pod)
        made = Running(name_of(workload), pod, started.ports, started.process)
        self.running[name_of(pod)] = made
        await self._ready(made)
        self._in_service.add(name_of(pod))
        await self._publish()
        return made

    async def stop_pod(self, name: str) -> None:
        """As a node does when the pod is deleted: out of the Endpoints, SIGTERM, gone."""
        gone = self.running.pop(name)
        self._in_service.discard(name)
        await self._publish()
        await gone.process.stop()
        try:
            await self._admin.delete(PODS, name, names.NAMESPACE, grace_period_s=0)
        except errors.NotFound:
            return

    async def _publish(self) -> None:
        async with self._publishing:
            ready = [self.running[name] for name in sorted(self._in_service)]
            await pod_files.publish(self._admin, [(each.pod, each.ports) for each in ready])

    # -- pods ------------------------------------------------------------------------------------------------------

    async def _workloads(self) -> list[Obj]:
        found: list[Obj] = []
        for resource in (DEPLOYMENTS, DAEMON_SETS):
            listed = await self._admin.list(resource, names.NAMESPACE)
            found += [{**item, "kind": resource.kind} for item in listed.items]
        return found

    async def _pod_nodes(self, workload: Obj) -> list[str | None]:
        """A node for each pod that the workload asks for; None where the scheduler chooses."""
        if workload["kind"] == "Deployment":
            return [None] * int(spec_of(workload).get("replicas", 1))
        pod = {"metadata": {}, "spec": spec_of(workload)["template"]["spec"]}
        nodes = await self._admin.list(raw(NODES))
        matching: list[str | None] = [name_of(node) for node in nodes.items if matches_affinity(pod, node)]
        if not matching:
            log.warning("DaemonSet %s: no node matches its nodeSelector and affinity", name_of(workload))
        return matching

    def _pod(self, workload: Obj, node: str | None) -> Obj:
        template = copy.deepcopy(spec_of(workload)["template"])
        self._serial += 1
        owner = {
            "apiVersion": "apps/v1",
            "kind": workload["kind"],
            "name": name_of(workload),
            "uid": meta(workload)["uid"],
            "controller": True,
        }
        template["metadata"] |= {"name": f"{name_of(workload)}-{self._serial}", "ownerReferences": [owner]}
        if node is not None:
            template["spec"]["nodeName"] = node
        return {"apiVersion": "v1", "kind": "Pod", **template}

    async def _bound(self, pod: Obj) -> Obj:
        try:
            async with asyncio.timeout(BOUND_TIMEOUT_S):
                while not spec_of(pod).get("nodeName"):
                    await asyncio.sleep(POLL_S)
                    pod = await self._admin.get(raw(PODS), name_of(pod), names.NAMESPACE)
        except TimeoutError:
            raise PodError(f"pod {name_of(pod)}: not bound to a node after {BOUND_TIMEOUT_S:.0f} s") from None
        return pod

    # -- readiness -------------------------------------------------------------------------------------------------

    async def _ready(self, each: Running) -> None:
        """Until its probes succeed; a process that ends is an error at once."""
        container = only_container(each.pod)
        probes = [
            container[key]["httpGet"]
            for key in ("startupProbe", "readinessProbe", "livenessProbe")
            if container.get(key)
        ]
        exited = asyncio.ensure_future(each.process.exited.wait())
        answering = asyncio.ensure_future(self._answering(each, container, probes))
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await asyncio.wait((exited, answering), return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                answering.result()
            else:
                raise each.process.failure(READY_TIMEOUT_S)
        except TimeoutError:
            raise each.process.failure(READY_TIMEOUT_S) from None
        finally:
            for task in (exited, answering):
                task.cancel()
            await asyncio.gather(exited, answering, return_exceptions=True)

    @staticmethod
    async def _answering(each: Running, container: Mapping[str, Any], probes: Iterable[Mapping[str, Any]]) -> None:
        async with aiohttp.ClientSession() as session:
            for probe in probes:
                port = each.ports[port_number(container, probe["port"])]
                url = f"{probe.get('scheme', 'HTTP').lower()}://127.0.0.1:{port}{probe['path']}"
                while True:
                    try:
                        async with session.get(url, ssl=False) as response:  # kubelet checks no certificate, either
                            if response.status == 200:
                                break
                    except aiohttp.ClientError:
                        pass
                    await asyncio.sleep(POLL_S)


def _surges(workload: Obj) -> bool:
    strategy = spec_of(workload).get("updateStrategy") or spec_of(workload).get("strategy") or {}
    return (strategy.get("rollingUpdate") or {}).get("maxSurge") not in {0, "0", "0%"}
