"""Runs Fairlead from what was installed: the pods of its Deployments and DaemonSets, each as its ServiceAccount.

Exists so that a chart is tried whole: a misspelt flag, a missing permission, an unmounted directory or a probe on the wrong
port fails here as it would in a cluster. Pods are real objects; kube-scheduler binds a Deployment's, kubelet runs them as
far as a simulated one does, and the process behind each is the `fairlead` command line with the container's arguments,
environment, and a token bound to the pod. Endpoints follow readiness. No control loop: a pod that dies stays dead, and
`replace` is how a workload is rolled.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import logging
import os
import socket
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import yaml

from fairlead.api import names
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import DAEMON_SETS, DEPLOYMENTS, NODES, PODS, SECRETS, SERVICES, Raw, Resource, raw
from fairlead.sandbox.install.pod_commands import Command, PodError, command_of, only_container, port_number
from fairlead.sandbox.install.programs import Host, Process
from fairlead.sandbox.node import Node
from fairlead.sandbox.node_matching import matches_affinity
from fairlead.sandbox.objects import Obj, labels_of, meta, name_of, spec_of

log = logging.getLogger(__name__)

READY_TIMEOUT_S: Final = 45.0
BOUND_TIMEOUT_S: Final = 20.0
POLL_S: Final = 0.05
ENDPOINTS: Final = Resource(group="", version="v1", plural="endpoints", kind="Endpoints", namespaced=True, type=dict)


@dataclass(frozen=True)
class Running:
    """One pod and the process behind it."""

    workload: str
    pod: Obj
    command: Command
    process: Process

    @property
    def node(self) -> str:
        return str(spec_of(self.pod)["nodeName"])


class Workloads:
    """`start` runs everything that is installed; `stop` ends it. `running` is by pod name."""

    def __init__(
        self, admin: Client, nodes: Mapping[str, Node], *, host: Host, url: str, ca_pem: bytes, workdir: Path
    ) -> None:
        self.running: dict[str, Running] = {}
        self._admin = admin
        self._nodes = nodes
        self._host = host
        self._url = url
        self._ca_pem = ca_pem
        self._workdir = workdir
        self._serial = 0
        self._in_service: set[str] = set()
        self._publishing = asyncio.Lock()

    async def start(self) -> None:
        """Every pod of every workload, ready. Raises PodError, or ProgramError with the end of a pod's log."""
        found = [(w, spot) for w in await self._workloads() for spot in await self._spots(w)]
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
        command = command_of(
            pod,
            host_paths=_host_paths(self._nodes[spec_of(pod)["nodeName"]]),
            volumes={name: path async for name, path in self._secrets(pod)},
            free_port=_free_port,
        )
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": "/nonexistent",
            "KUBECONFIG": str(await self._kubeconfig(pod)),
            **command.environment,
        }
        process = self._host.command(name_of(pod), command.arguments, environment)
        made = Running(name_of(workload), pod, command, process)
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

    # -- pods ------------------------------------------------------------------------------------------------------

    async def _workloads(self) -> list[Obj]:
        found: list[Obj] = []
        for resource in (DEPLOYMENTS, DAEMON_SETS):
            listed = await self._admin.list(resource, names.NAMESPACE)
            found += [{**item, "kind": resource.kind} for item in listed.items]
        return found

    async def _spots(self, workload: Obj) -> list[str | None]:
        if workload["kind"] == "Deployment":
            return [None] * int(spec_of(workload).get("replicas", 1))
        pod = {"metadata": {}, "spec": spec_of(workload)["template"]["spec"]}
        nodes = await self._admin.list(raw(NODES))
        spots = [name_of(node) for node in nodes.items if matches_affinity(pod, node)]
        if not spots:
            log.warning("DaemonSet %s: no node matches its nodeSelector and affinity", name_of(workload))
        return list(spots)

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

    async def _secrets(self, pod: Obj) -> AsyncIterator[tuple[str, Path]]:
        """Each Secret volume as a directory of files. Raises NotFound where a Secret is missing: such a pod does not start."""
        for volume in spec_of(pod).get("volumes") or ():
            if "secret" not in volume:
                continue
            secret = await self._admin.get(SECRETS, volume["secret"]["secretName"], names.NAMESPACE)
            folder = self._workdir / name_of(pod) / volume["name"]
            folder.mkdir(parents=True)
            for key, value in (secret.get("data") or {}).items():
                (folder / key).write_bytes(base64.b64decode(value))
            yield volume["name"], folder

    async def _kubeconfig(self, pod: Obj) -> Path:
        """With a token as kubelet asks for it: of the pod's account, bound to the pod and so to its node."""
        account = spec_of(pod)["serviceAccountName"]
        path = f"/api/v1/namespaces/{names.NAMESPACE}/serviceaccounts/{account}/token"
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": [],
                "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name_of(pod), "uid": meta(pod)["uid"]},
            },
        }
        given = msgspec.json.decode(await self._admin.request("POST", path, body=body))
        cluster = {"server": self._url, "certificate-authority-data": base64.b64encode(self._ca_pem).decode()}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "sandbox", "cluster": cluster}],
            "users": [{"name": "pod", "user": {"token": given["status"]["token"]}}],
            "contexts": [{"name": "pod", "context": {"cluster": "sandbox", "user": "pod"}}],
            "current-context": "pod",
        }
        file = self._workdir / f"{name_of(pod)}.kubeconfig"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        file.write_text(yaml.safe_dump(config))
        return file

    # -- readiness -------------------------------------------------------------------------------------------------

    async def _ready(self, each: Running) -> None:
        """What its readiness probe says; a process that ends is an error at once."""
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
                await each.process.ready(0)
        except TimeoutError:
            await each.process.ready(0)
        finally:
            for task in (exited, answering):
                task.cancel()
            await asyncio.gather(exited, answering, return_exceptions=True)

    @staticmethod
    async def _answering(each: Running, container: Mapping[str, Any], probes: Iterable[Mapping[str, Any]]) -> None:
        async with aiohttp.ClientSession() as session:
            for probe in probes:
                port = each.command.ports[port_number(container, probe["port"])]
                url = f"http://127.0.0.1:{port}{probe['path']}"
                while True:
                    try:
                        async with session.get(url) as response:
                            if response.status == 200:
                                break
                    except aiohttp.ClientError:
                        pass
                    await asyncio.sleep(POLL_S)

    async def _publish(self) -> None:
        """Endpoints of every Service: one subset per pod, since each has its own ports here."""
        async with self._publishing:
            for service in (await self._admin.list(SERVICES, names.NAMESPACE)).items:
                subsets = [
                    _subset(self.running[name], service)
                    for name in sorted(self._in_service)
                    if self._serves(name, service)
                ]
                try:
                    found = await self._admin.get(ENDPOINTS, name_of(service), names.NAMESPACE)
                    await self._admin.replace(ENDPOINTS, found | {"subsets": subsets})
                except errors.NotFound:
                    metadata = {"name": name_of(service), "namespace": names.NAMESPACE}
                    body: Raw = {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets}
                    await self._admin.create(ENDPOINTS, body, names.NAMESPACE)

    def _serves(self, name: str, service: Obj) -> bool:
        selector = spec_of(service).get("selector") or {}
        return bool(selector) and selector.items() <= labels_of(self.running[name].pod).items()


def _subset(each: Running, service: Obj) -> Obj:
    container = only_container(each.pod)
    ports = [
        {
            "name": port.get("name", ""),
            "port": each.command.ports[port_number(container, port.get("targetPort", port["port"]))],
        }
        for port in spec_of(service)["ports"]
    ]
    return {"addresses": [{"ip": "127.0.0.1"}], "ports": ports}


def _surges(workload: Obj) -> bool:
    strategy = spec_of(workload).get("updateStrategy") or spec_of(workload).get("strategy") or {}
    return (strategy.get("rollingUpdate") or {}).get("maxSurge") not in {0, "0", "0%"}


def _host_paths(node: Node) -> dict[str, Path]:
    """What a simulated node has of a real one's directories."""
    return {
        "/var/lib/kubelet/plugins": node.plugins_dir,
        "/var/lib/kubelet/plugins_registry": node.registry_dir,
        "/var/run/cdi": node.cdi_dir,
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
