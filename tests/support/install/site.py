"""Fairlead installed on the sandbox from rendered manifests, each of its pods a container that runs as its manifest says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlead.api import names
from fairlead.kube.resources import PODS, raw
from fairlead.sandbox.cluster import Cluster, ClusterOptions, NodeSpec
from fairlead.sandbox.install.workloads import Workloads
from fairlead.sandbox.installation import bare
from tests.support.install.containers import Container, Containers
from tests.support.install.image import Image
from tests.support.kubernetes import of_this_run
from tests.support.sandbox import FAST, FAST_MANAGER

PROBED_S = 60.0
FOREIGN = ("cert-manager.io/", "monitoring.coreos.com/")
"""Groups of programs that are not here."""

Objects = Iterable[Mapping[str, Any]]


@dataclass(frozen=True)
class Site:
    cluster: Cluster
    workloads: Workloads
    containers: Containers

    @property
    def running(self) -> dict[str, list[Container]]:
        """By workload."""
        found: dict[str, list[Container]] = {}
        for each in self.workloads.running.values():
            assert isinstance(each.process, Container)
            found.setdefault(each.workload, []).append(each.process)
        return found

    async def registered(self) -> None:
        """Until kubelet has registered the driver of each node that runs one."""
        async with asyncio.timeout(PROBED_S):
            for each in self.workloads.running.values():
                if each.workload.startswith(names.DRIVER_ACCOUNT):
                    await self.cluster.nodes[each.node].kubelet.plugins.registered(names.DRIVER)

    async def probed(self) -> None:
        """Until kubelet's own probes of every container have succeeded."""
        async with asyncio.timeout(PROBED_S):
            for each in self.containers.started:
                if each.probing is not None and not each.exited.is_set():
                    await each.probing.ready.wait()
                    await each.probing.live.wait()


@contextlib.asynccontextmanager
async def installed(
    image: Image,
    objects: Objects,
    *,
    workdir: Path,
    nodes: tuple[NodeSpec, ...],
    host_paths: Mapping[str, Path] | None = None,
) -> AsyncIterator[Site]:
    """Ready when the block begins; what still runs at its end is killed.

    `host_paths`: directories of every node and where they are on this machine, besides those that the sandbox's nodes have.
    """
    options = ClusterOptions(
        workdir=workdir,
        nodes=nodes,
        times=FAST,
        manager=FAST_MANAGER,
        scheduler_backoff_s=(0.1, 1.0),
        release=of_this_run(),
    )
    async with bare(options) as cluster:
        containers = Containers(
            image=image,
            files=cluster.pod_files,
            workdir=workdir / "containers",
            host_paths=lambda node: {**(host_paths or {}), **cluster.nodes[node].host_paths},
        )
        site = Site(cluster, Workloads(cluster.admin, containers), containers)
        try:
            await cluster.apply(each for each in objects if not str(each["apiVersion"]).startswith(FOREIGN))
            await site.workloads.start()
            await site.registered()
            yield site
        finally:
            await asyncio.gather(*(each.kill() for each in containers.started))


async def alone(site: Site, job: Mapping[str, Any]) -> Container:
    """The pod of a Job, run to its end on the first node."""
    template = job["spec"]["template"]
    node = next(iter(site.cluster.nodes))
    metadata = {**template["metadata"], "name": job["metadata"]["name"], "namespace": names.NAMESPACE}
    pod = await site.cluster.admin.create(
        raw(PODS),
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**template["spec"], "nodeName": node}},
        names.NAMESPACE,
    )
    started = await site.containers.start(pod)
    assert isinstance(started.process, Container)
    async with asyncio.timeout(PROBED_S):
        await started.process.exited.wait()
    return started.process
