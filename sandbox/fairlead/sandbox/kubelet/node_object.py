"""A kubelet's own Node object and Lease: created at start, renewed while it runs.

Pure builders and one loop. What the machine has (cpu, memory, pods) is configured, not measured.
Source: kubernetes pkg/kubelet/kubelet_node_status.go, nodelease, 1.36.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from fairlead.kube import errors, timestamps
from fairlead.kube.client import Client, Patch
from fairlead.kube.limits import Clock
from fairlead.kube.resources import LEASES, NODES, raw
from fairlead.sandbox.objects import Obj, uid_of
from fairlead.sandbox.release import NEWEST

log = logging.getLogger(__name__)

LEASE_NAMESPACE: Final = "kube-node-lease"
_NODES: Final = raw(NODES)
_LEASES: Final = raw(LEASES)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What a node has besides devices, in Kubernetes' quantities."""

    cpu: str = "128"
    memory: str = "1Ti"
    pods: str = "110"
    labels: Mapping[str, str] = field(default_factory=dict)
    address: str = "10.0.0.1"
    kubelet_version: str = NEWEST.version

    @property
    def amounts(self) -> dict[str, str]:
        """What all pods together may have: nothing is kept for the system."""
        return {"cpu": self.cpu, "memory": self.memory, "pods": self.pods}


def node(name: str, machine: Machine) -> Obj:
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        **machine.labels,
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {}}


def status(name: str, machine: Machine, *, now: str) -> Obj:
    amounts = machine.amounts
    healthy = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ]
    return {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": [
            {
                "type": kind,
                "status": truth,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
            for kind, truth, reason, message in healthy
        ],
        "addresses": [{"type": "InternalIP", "address": machine.address}, {"type": "Hostname", "address": name}],
        "nodeInfo": {
            "architecture": "amd64",
            "operatingSystem": "linux",
            "osImage": "Fairlead sandbox",
            "kernelVersion": "6.12.0",
            "containerRuntimeVersion": "containerd://2.1.0",
            "kubeletVersion": f"v{machine.kubelet_version}",
            "kubeProxyVersion": "",
            "machineID": name,
            "systemUUID": name,
            "bootID": name,
        },
    }


async def register(client: Client, name: str, machine: Machine, *, wall: Clock) -> Obj:
    """The Node, created if it is missing, with a fresh status. Raises ApiError."""
    try:
        found = await client.create(_NODES, node(name, machine))
    except errors.AlreadyExists:
        found = await client.get(_NODES, name)
    body = {"status": status(name, machine, now=timestamps.seconds(wall()))}
    return await client.patch(_NODES, name, body, kind=Patch.STRATEGIC, subresource="status") or found


async def heartbeat(
    client: Client, name: str, machine: Machine, registered: Obj, *, wall: Clock, lease_s: float
) -> None:
    """Renew the Lease four times in its duration, forever. A Node that was deleted is registered again."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid_of(registered)}
    while True:
        stamp = timestamps.micro(wall())
        spec: Obj = {"holderIdentity": name, "leaseDurationSeconds": max(1, round(lease_s)), "renewTime": stamp}
        try:
            try:
                await client.patch(_LEASES, name, {"spec": spec}, namespace=LEASE_NAMESPACE, kind=Patch.MERGE)
            except errors.NotFound:
                metadata = {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]}
                await client.create(_LEASES, {"metadata": metadata, "spec": spec}, LEASE_NAMESPACE)
            if not await _is_ready(client, name):
                owner["uid"] = uid_of(await register(client, name, machine, wall=wall))
        except errors.ApiError as error:
            log.info("node %s: heartbeat: %s", name, error)
        await asyncio.sleep(lease_s / 4)


async def _is_ready(client: Client, name: str) -> bool:
    """Whether the Node still exists and is Ready."""
    try:
        found = await client.get(_NODES, name)
    except errors.NotFound:
        return False
    conditions = (found.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
