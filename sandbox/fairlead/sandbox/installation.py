"""A cluster on which Fairlead is installed from manifests, as an operator does it, and runs from them.

For e2e and for the tests of the chart. The plain `Cluster` starts the programs itself; here nothing starts but the pods of
what was applied, in the order of docs/install.md. Both run the same command line in the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from fairlead.api import names
from fairlead.kube.quantity import Quantity
from fairlead.sandbox import files, other_driver
from fairlead.sandbox.cluster import Cluster, ClusterOptions, NodeSpec
from fairlead.sandbox.cpu_driver import CPUS, CpuDriver, Mode
from fairlead.sandbox.install import manifests
from fairlead.sandbox.install.programs import ProgramError
from fairlead.sandbox.install.workloads import READY_TIMEOUT_S
from fairlead.sandbox.network_driver import DRANET, NetworkDriver
from fairlead.sandbox.node import Node
from fairlead.sandbox.other_driver import OtherDriver
from fairlead.sandbox.stand_in import StandIn

SIMULATED = "manifests/overlays/simulated"
"""What gives a node that is labelled PROFILE=x the GPUs of that profile."""
NVIDIA_DRIVER = "manifests/overlays/nvidia-driver"
"""Fairlead for the devices of NVIDIA's own DRA driver, without a driver of its own."""
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
        await _install(cluster, objects)
        yield cluster


async def _install(cluster: Cluster, objects: Iterable[Mapping[str, Any]]) -> None:
    await cluster.apply(objects)
    await cluster.workloads.start()
    await registered(cluster)


@contextlib.asynccontextmanager
async def nvidia_gpus(cluster: Cluster) -> AsyncIterator[None]:
    """The GPUs of the profiles that its nodes are labelled with, as those of a stand-in for NVIDIA's driver, and its classes."""
    await cluster.apply(other_driver.classes())
    async with _on_nodes(
        cluster, lambda node, profile: OtherDriver(cluster.admin, node=node.name, profile=profile, cdi_dir=node.cdi_dir)
    ):
        yield


@contextlib.asynccontextmanager
async def nics(cluster: Cluster) -> AsyncIterator[None]:
    """NICs beside the GPUs of the nodes' profiles, as those of a stand-in for DRANET."""
    async with _on_nodes(cluster, lambda node, profile: NetworkDriver(cluster.admin, node=node.name, profile=profile)):
        yield


@contextlib.asynccontextmanager
async def cpus(cluster: Cluster, mode: Mode = "grouped") -> AsyncIterator[None]:
    """The nodes' CPUs, as those of a stand-in for dra-driver-cpu, and its class."""
    expression = f"device.driver == '{CPUS}'"
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": CPUS}}
    await cluster.apply([head | {"spec": {"selectors": [{"cel": {"expression": expression}}]}}])

    def made(node: Node, profile: str) -> StandIn:
        number = int(Quantity.of(node.spec.cpu))
        return CpuDriver(cluster.admin, node=node.name, profile=profile, cpus=number, cdi_dir=node.cdi_dir, mode=mode)

    async with _on_nodes(cluster, made):
        yield


@contextlib.asynccontextmanager
async def _on_nodes(cluster: Cluster, make: Callable[[Node, str], StandIn]) -> AsyncIterator[None]:
    """A driver on each node with a profile, which its kubelet has registered."""
    async with contextlib.AsyncExitStack() as stack:
        for spec in cluster.options.nodes:
            node, profile = cluster.nodes[spec.name], spec.profile or spec.labels.get(PROFILE, "")
            if not profile:
                continue
            driver = make(node, profile)
            await stack.enter_async_context(
                driver.running(plugins_dir=node.plugins_dir, registry_dir=node.registry_dir)
            )
            async with asyncio.timeout(READY_TIMEOUT_S):
                await node.kubelet.plugins.registered(driver.driver)
        yield


@contextlib.asynccontextmanager
async def installed_for(options: ClusterOptions, driver: str, *, with_more: bool = False) -> AsyncIterator[Cluster]:
    """Fairlead installed for the simulated GPUs of labelled nodes, which this driver publishes: ours, or NVIDIA's beside none of ours.

    `with_more`: for the NICs of DRANET beside them, too, and the CPUs of dra-driver-cpu where claims can consume a part of a device.
    """
    objects = manifests.load(files.find(overlay_of(driver)))
    async with bare(options) as cluster, contextlib.AsyncExitStack() as stack:
        if driver != names.DRIVER:
            await stack.enter_async_context(nvidia_gpus(cluster))
        if with_more:
            await stack.enter_async_context(nics(cluster))
            more = [DRANET]
            if cluster.release.has("consumable-capacity"):
                await stack.enter_async_context(cpus(cluster))
                more.append(CPUS)
            objects = also_managing(objects, *more)
        await _install(cluster, objects)
        yield cluster


def also_managing(objects: Iterable[Mapping[str, Any]], *drivers: str) -> list[manifests.Manifest]:
    """What the chart renders with more drivers in `managedDrivers`: the programs' arguments, and the allocation fence with its messages."""
    text = json.dumps(list(objects))
    for pattern, more in (
        (r'("--managed-driver=[^"]*")()', "".join(f', "--managed-driver={driver}"' for driver in drivers)),
        (r"(r\.driver in \['[^\]]*)(\])", "".join(f", '{driver}'" for driver in drivers)),
        (r"(devices of [^ ]+)( are allocated| are taken back| from)", "".join(f", {driver}" for driver in drivers)),
    ):
        text = re.sub(pattern, rf"\1{more}\2", text)
    made: list[manifests.Manifest] = json.loads(text)
    return made


def overlay_of(driver: str) -> str:
    return SIMULATED if driver == names.DRIVER else NVIDIA_DRIVER


def example(path: str, driver: str, *, gpus: int) -> list[manifests.Manifest]:
    """Manifests below examples/ as a user of this driver would write them; `gpus`: how many they want on one island."""
    found = manifests.load(files.find(f"examples/{path}"))
    if driver == names.DRIVER:
        return found
    made: list[manifests.Manifest] = json.loads(other_driver.for_driver(json.dumps(found), driver, gpus=gpus))
    return made


async def registered(cluster: Cluster) -> None:
    """Until kubelet has registered the driver on each node that runs one. Raises ProgramError with the end of a driver's log."""
    for each in list(cluster.workloads.running.values()):
        if not each.workload.startswith(names.DRIVER_ACCOUNT):
            continue
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await cluster.nodes[each.node].kubelet.plugins.registered(names.DRIVER)
        except TimeoutError:
            failure = each.process.failure(READY_TIMEOUT_S)
            raise ProgramError(f"kubelet of {each.node} has not registered {names.DRIVER}: {failure}") from None
