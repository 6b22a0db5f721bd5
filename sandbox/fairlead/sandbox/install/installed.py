"""A cluster on which Fairlead was installed from manifests, as an operator does it, and runs from them.

Exists for e2e and for the tests of the chart: the plain `Cluster` starts the programs from options, which is quicker and
lets tests kill them; this starts nothing but what was applied, in the order of docs/install.md.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fairlead.api import names
from fairlead.kube.client import Client
from fairlead.sandbox.cluster import Cluster, ClusterOptions, NodeSpec
from fairlead.sandbox.install.programs import Host
from fairlead.sandbox.install.workloads import READY_TIMEOUT_S, Workloads

SIMULATED = "manifests/overlays/simulated"
"""What gives a node that is labelled PROFILE=x the GPUs of that profile."""
PROFILE = "fairlead.dev/simulated"


def labelled(nodes: Iterable[NodeSpec]) -> tuple[NodeSpec, ...]:
    """The same nodes for SIMULATED: no driver of their own, but a label that a DaemonSet selects."""
    return tuple(replace(node, profile="", labels={**node.labels, PROFILE: node.profile}) for node in nodes)


@dataclass(frozen=True)
class Installation:
    cluster: Cluster
    admin: Client
    workloads: Workloads


@contextlib.asynccontextmanager
async def bare(options: ClusterOptions) -> AsyncIterator[Installation]:
    """A cluster without Fairlead; what runs of it ends with the block."""
    host = Host(log_dir=options.workdir / "logs", log_level=options.log_level)
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(replace(options, run_programs=False, install=False)))
        admin = await stack.enter_async_context(cluster.client())
        await host.open()
        stack.push_async_callback(host.close)
        workloads = Workloads(
            admin,
            cluster.nodes,
            host=host,
            url=cluster.url,
            ca_pem=cluster.server.ca_pem,
            workdir=options.workdir / "pods",
        )
        yield Installation(cluster, admin, workloads)


@contextlib.asynccontextmanager
async def installed(options: ClusterOptions, objects: Iterable[Mapping[str, Any]]) -> AsyncIterator[Installation]:
    """Ready when the block begins: every pod answers its probes, and kubelet has registered every node's driver."""
    async with bare(options) as found:
        await found.cluster.apply(objects)
        await found.workloads.start()
        await registered(found)
        yield found


async def registered(found: Installation) -> None:
    """Until kubelet has registered the driver on each node that runs one."""
    on = {each.node for each in found.workloads.running.values() if each.workload.startswith(names.DRIVER_ACCOUNT)}
    async with asyncio.timeout(READY_TIMEOUT_S):
        for name in sorted(on):
            await found.cluster.nodes[name].kubelet.plugins.registered(names.DRIVER)
