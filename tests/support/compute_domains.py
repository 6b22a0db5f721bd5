"""A stand-in for NVIDIA's ComputeDomains: the controller, and the kubelet plugin of driver compute-domain.nvidia.com.

What the pods of a ComputeDomain and of its daemon, their claims and their nodes see is as that driver does it; no IMEX daemon runs. The
controller makes both ResourceClaimTemplates and a DaemonSet whose node selector no node matches yet. The plugin publishes `daemon-0` and
`channel-0` of each node. The first prepare of a channel labels the node, so that the daemon's pod comes, and fails until that is ready.
Kept simple: the DaemonSet controller is part of it, a poll takes the place of watches, and finalizers and status are left out.
Source: kubernetes-sigs/dra-driver-nvidia-gpu 15576f0, cmd/compute-domain-controller, cmd/compute-domain-kubelet-plugin, templates.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import NODES, PODS, Raw, raw
from fairlead.sandbox.cluster import Cluster
from fairlead.sandbox.install.apply import Applier
from fairlead.sandbox.other_driver import OtherDriver
from tests.support.shapes.base import Kind, Obj, owned_by

DRIVER: Final = "compute-domain.nvidia.com"
NAMESPACE: Final = "nvidia-dra-driver-gpu"
LABEL: Final = "resource.nvidia.com/computeDomain"
KIND: Final = Kind(api_version="resource.nvidia.com/v1beta1", kind="ComputeDomain", plural="computedomains")
CHANNEL_CLASS: Final = "compute-domain-default-channel.nvidia.com"
DAEMON_CLASS: Final = "compute-domain-daemon.nvidia.com"
POLL_S: Final = 0.1


def installation() -> list[Obj]:
    """What NVIDIA's chart installs of it."""
    kind, attributes = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}, f"device.attributes['{DRIVER}']"
    classes = {
        DAEMON_CLASS: f"device.driver == '{DRIVER}' && {attributes}.type == 'daemon'",
        CHANNEL_CLASS: f"device.driver == '{DRIVER}' && {attributes}.type == 'channel' && {attributes}.id == 0",
    }
    return [
        KIND.definition,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        *(
            kind | {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": text}}]}}
            for name, text in classes.items()
        ),
    ]


def template(domain: Raw, *, namespace: str, name: str, request: str, device_class: str, config: str) -> Obj:
    """A ResourceClaimTemplate with one device of the domain."""
    uid = domain["metadata"]["uid"]
    opaque = {"apiVersion": KIND.api_version, "kind": config, "domainID": uid}
    devices = {
        "requests": [{"name": request, "exactly": {"deviceClassName": device_class}}],
        "config": [{"requests": [request], "opaque": {"driver": DRIVER, "parameters": opaque}}],
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace, "labels": {LABEL: uid}},
        "spec": {"spec": {"devices": devices}},
    }


def made_of(domain: Raw) -> list[Obj]:
    """What the controller makes of a ComputeDomain."""
    uid = domain["metadata"]["uid"]
    daemon, channel = f"computedomain-daemon-{uid}", domain["spec"]["channel"]["resourceClaimTemplate"]["name"]
    container = {
        "name": "compute-domain-daemon",
        "image": "nvcr.io/nvidia/k8s-dra-driver-gpu",
        "command": ["sleep", "infinity"],
        "resources": {"claims": [{"name": "compute-domain-daemon"}]},
    }
    pod = {
        "nodeSelector": {LABEL: uid},
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "resourceClaims": [{"name": "compute-domain-daemon", "resourceClaimTemplateName": daemon}],
    }
    labels = {LABEL: uid}
    return [
        template(
            domain,
            namespace=NAMESPACE,
            name=daemon,
            request="daemon",
            device_class=DAEMON_CLASS,
            config="ComputeDomainDaemonConfig",
        ),
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": daemon, "namespace": NAMESPACE, "labels": labels},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
        },
        template(
            domain,
            namespace=domain["metadata"]["namespace"],
            name=channel,
            request="channel",
            device_class=CHANNEL_CLASS,
            config="ComputeDomainChannelConfig",
        ),
    ]


class Plugin(OtherDriver):
    driver = DRIVER

    def devices(self) -> list[list[Obj]]:
        kinds = ("daemon", "channel")
        return [[{"name": f"{kind}-0", "attributes": {"type": {"string": kind}, "id": {"int": 0}}} for kind in kinds]]

    def device_node(self, device: str) -> str:
        return "/dev/nvidia-caps-imex-channels/channel0" if device.startswith("channel") else "/dev/nvidiactl"

    async def check(self, allocation: Mapping[str, Any]) -> None:
        """A channel is prepared when the domain's daemon on this node is ready."""
        (config,) = (each["opaque"]["parameters"] for each in allocation["config"])
        if config["kind"] != "ComputeDomainChannelConfig":
            return
        uid = config["domainID"]
        labels = (await self.client.get(raw(NODES), self.node))["metadata"]["labels"]
        if labels.setdefault(LABEL, uid) != uid:
            raise ValueError(f"node {self.node} is in ComputeDomain {labels[LABEL]}, not {uid}")
        await self.client.patch(raw(NODES), self.node, {"metadata": {"labels": {LABEL: uid}}})
        for pod in (await self.client.list(raw(PODS), NAMESPACE)).items:
            conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions") or ()}
            if pod["spec"].get("nodeName") == self.node and conditions.get("Ready") == "True":
                return
        raise ValueError(f"ComputeDomain {uid} is not ready on node {self.node}")


class Controller:
    """NVIDIA's controller, and kube-controller-manager's of DaemonSets for what it makes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._applier = Applier(client)
        self._domains: dict[str, list[Obj]] = {}  # by UID: what was made of it
        self._pods: set[tuple[str, str]] = set()  # domain, node
        self.starts_daemons = True

    async def run(self) -> None:
        resource = await self._applier.resource_of({"apiVersion": KIND.api_version, "kind": KIND.kind})
        while True:
            found = {each["metadata"]["uid"]: each for each in (await self._client.list(resource)).items}
            for uid in [uid for uid in self._domains if uid not in found]:
                await self._remove(uid, self._domains.pop(uid))
            for uid, domain in found.items():
                if uid not in self._domains:
                    self._domains[uid] = await self._applier.apply(made_of(domain))
                if self.starts_daemons:
                    await self._start_daemons(uid)
            await asyncio.sleep(POLL_S)

    async def _start_daemons(self, uid: str) -> None:
        daemons = next(each for each in self._domains[uid] if each["kind"] == "DaemonSet")
        for node in (await self._client.list(raw(NODES))).items:
            name = node["metadata"]["name"]
            if node["metadata"]["labels"].get(LABEL) != uid or (uid, name) in self._pods:
                continue
            self._pods.add((uid, name))
            here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
            affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]}}
            pod = {
                "metadata": {
                    "generateName": f"{daemons['metadata']['name']}-",
                    "namespace": NAMESPACE,
                    "labels": {LABEL: uid},
                    "ownerReferences": [owned_by(daemons)],
                },
                "spec": daemons["spec"]["template"]["spec"] | {"affinity": {"nodeAffinity": affinity}},
            }
            await self._client.create(raw(PODS), pod, NAMESPACE)

    async def _remove(self, uid: str, made: list[Obj]) -> None:
        await self._applier.delete(made)
        for pod in (await self._client.list(raw(PODS), NAMESPACE)).items:
            if pod["metadata"]["labels"][LABEL] == uid:
                with contextlib.suppress(errors.NotFound):
                    await self._client.delete(raw(PODS), pod["metadata"]["name"], NAMESPACE)
        for node in (await self._client.list(raw(NODES))).items:
            if node["metadata"]["labels"].get(LABEL) == uid:
                await self._client.patch(raw(NODES), node["metadata"]["name"], {"metadata": {"labels": {LABEL: None}}})
        self._pods = {each for each in self._pods if each[0] != uid}


@contextlib.asynccontextmanager
async def compute_domains(cluster: Cluster) -> AsyncIterator[Controller]:
    """NVIDIA's ComputeDomains on all nodes of the cluster while the block lasts."""
    await cluster.apply(installation())
    async with contextlib.AsyncExitStack() as stack:
        for node in cluster.nodes.values():
            plugin = Plugin(cluster.admin, node=node.name, profile="", cdi_dir=node.cdi_dir)
            await stack.enter_async_context(
                plugin.running(plugins_dir=node.plugins_dir, registry_dir=node.registry_dir)
            )
            await node.kubelet.plugins.registered(DRIVER)
        controller = Controller(cluster.admin)
        task = asyncio.create_task(controller.run())
        try:
            yield controller
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
