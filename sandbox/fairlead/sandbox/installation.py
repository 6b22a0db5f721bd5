"""A cluster on which Fairlead is installed from manifests, as an operator does it, and runs from them.

For e2e and for the tests of the chart. The plain `Cluster` starts the programs itself; here nothing starts but the pods of
what was applied, in the order of docs/install.md. Both run the same command line in the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from typing import Any

from fairlead.api import names
from fairlead.sandbox.cluster import Cluster, ClusterOptions, NodeSpec
from fairlead.sandbox.install.workloads import READY_TIMEOUT_S

SIMULATED = "manifests/overlays/simulated"
"""What gives a node that is labelled PROFILE=x the GPUs of that profile."""
PROFILE = "fairlead.dev/simulated"


def labelled(nodes: Iterable[NodeSpec]) -> tuple[NodeSpec, ...]:
    """The same nodes for SIMULATED: no driver of their own, but a label that a DaemonSet selects."""
    return tuple(replace(node, profile="", labels={**node.labels, PROFILE: node.profile}) for node in nodes)


@contextlib.asynccontextmanager
async def bare(options: ClusterOptions) -> AsyncIterator[Cluster]:
    """A cluster without Fairlead; what its `workloads` start ends with the block."""
    async with Cluster(replace(options, run_programs=False, install=False)) as cluster:
        try:
            yield cluster
        finally:
            await cluster.stop_programs()


@contextlib.asynccontextmanager
async def installed(options: ClusterOptions, objects: Iterable[Mapping[str, Any]]) -> AsyncIterator[Cluster]:
    """Ready when the block begins: every pod answers its probes, and kubelet has registered every node's driver."""
    async with bare(options) as cluster:
        await cluster.apply(objects)
        await cluster.workloads.start()
        await registered(cluster)
        yield cluster


async def registered(cluster: Cluster) -> None:
    """Until kubelet has registered the driver on each node that runs one."""
    on = {each.node for each in cluster.workloads.running.values() if each.workload.startswith(names.DRIVER_ACCOUNT)}
    async with asyncio.timeout(READY_TIMEOUT_S):
        for name in sorted(on):
            await cluster.nodes[name].kubelet.plugins.registered(names.DRIVER)
