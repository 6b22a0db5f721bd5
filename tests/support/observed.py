"""A sandbox cluster as an operator installs it, scraped by a real Prometheus as the chart's ServiceMonitor would, and work for it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlead.api import names
from fairlead.driver.backend.simulated import fault_file
from fairlead.kube import errors
from fairlead.kube.resources import PODS, raw
from fairlead.sandbox import files
from fairlead.sandbox.cluster import Cluster, ClusterOptions, NodeSpec
from fairlead.sandbox.install import manifests
from fairlead.sandbox.install.workloads import Running
from fairlead.sandbox.installation import SIMULATED, installed, labelled
from fairlead.sandbox.objects import Obj, name_of
from tests.support import prometheus
from tests.support.kubernetes import of_this_run
from tests.support.prometheus import Server, Target
from tests.support.sandbox import FAST, FAST_MANAGER, FOREVER, gang_of, job, pod, template, until

NODES = (NodeSpec("h100", "hgx-h100"), NodeSpec("a100", "dgx-a100"))
METRICS_PORT = 8080
COMPONENT = "app.kubernetes.io/component"
BUSY = fault_file.Load(utilization_percent=95.0, memory_used_bytes=20 * 2**30)

IDLE = fault_file.Load(utilization_percent=2.0, memory_used_bytes=2**30)


@dataclass(frozen=True)
class Observed:
    cluster: Cluster
    server: Server

    def of(self, component: str) -> list[Running]:
        """The programs of one component."""
        running = self.cluster.workloads.running.values()
        return [each for each in running if each.pod["metadata"]["labels"].get(COMPONENT) == component]

    def faults(self, node: str) -> Path:
        """The file by which `fairlead load` and `fairlead fault` change a node's simulated hardware."""
        return self.cluster.nodes[node].plugins_dir / names.DRIVER / fault_file.NAME


def target(each: Running) -> Target:
    """The labels are those that the Prometheus operator gives the pods of a Service, and the ServiceMonitor's."""
    component = each.pod["metadata"]["labels"][COMPONENT]
    address = f"127.0.0.1:{each.ports[METRICS_PORT]}"
    labels = {
        "job": f"fairlead-{component}",
        "instance": address,
        "node": each.node,
        "pod": name_of(each.pod),
        "namespace": names.NAMESPACE,
        "container": component,
        "endpoint": "metrics",
        "service": "fairlead-metrics",
    }
    return Target(address, labels)


@contextlib.asynccontextmanager
async def observed(
    groups: list[dict[str, Any]], *, nodes: Sequence[NodeSpec] = NODES, change: Callable[[Obj], None] = lambda _: None
) -> AsyncIterator[Observed]:
    """`groups`: rules for Prometheus. `change` may change each object before it is applied."""
    prometheus.program("prometheus")
    with tempfile.TemporaryDirectory(prefix="fl-") as path:
        directory = Path(path)
        options = ClusterOptions(
            workdir=directory / "cluster", nodes=labelled(nodes), times=FAST, manager=FAST_MANAGER,
            scheduler_backoff_s=(0.1, 1.0), release=of_this_run(),
        )  # fmt: skip
        objects = manifests.load(files.find(SIMULATED))
        for each in objects:
            change(each)
        async with installed(options, objects) as cluster, prometheus.running(directory, groups) as server:
            server.scrape(target(each) for each in cluster.workloads.running.values())
            yield Observed(cluster, server)


# -- work ----------------------------------------------------------------------------------------------------------


def queue(name: str, *, deserved: int, limit: int | None = None, **spec: Any) -> list[Obj]:
    """A namespace, and a queue of H100s for it."""
    flavors = [{"flavor": "h100", "deserved": deserved} | ({"limit": limit} if limit is not None else {})]
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": name}}},
        {
            "apiVersion": "fairlead.dev/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {"namespaceSelector": {"matchLabels": {"team": name}}, "flavors": flavors, **spec},
        },
    ]


def h100(name: str, *, count: int, namespace: str) -> Obj:
    product = f'device.attributes["{names.DRIVER}"].productName.contains("H100")'
    return template(name, count=count, selector=product, namespace=namespace)


def gang(name: str, *, claim: str, size: int, namespace: str) -> Obj:
    """A Job whose pods run until they are deleted."""
    annotations = {**gang_of(name, size), names.CHECKPOINT_GRACE: "1s"}
    made = pod(
        name,
        claim=claim,
        command=FOREVER,
        namespace=namespace,
        annotations=annotations,
        terminationGracePeriodSeconds=1,
    )
    return job(name, made, size=size)


FLAVORS: list[Obj] = [
    {
        "apiVersion": "fairlead.dev/v1alpha1",
        "kind": "Flavor",
        "metadata": {"name": "h100"},
        "spec": {
            "deviceSelector": f'device.driver == "{names.DRIVER}" && device.attributes["{names.DRIVER}"].type == "gpu" '
            f'&& device.attributes["{names.DRIVER}"].productName.contains("H100")',
            "measure": "Devices",
        },
    }
]


async def work(site: Observed) -> None:
    """Two queues on eight H100s: one borrows and is evicted, one works, one gang can never start, one waits."""
    cluster = site.cluster
    for name in cluster.nodes:
        fault_file.load_held(site.faults(name), BUSY)
    for idle in ("gpu-0", "gpu-5"):
        fault_file.load(site.faults("h100"), idle, IDLE)
    budget = {"gpuHours": "1000", "per": "month"}
    await cluster.apply(
        [
            *FLAVORS,
            *queue("research", deserved=2),
            *queue("production", deserved=6, limit=8, waitTarget="10m", budget=budget),
        ]
    )
    await cluster.apply(files.find("manifests/policies/sizes.yaml"))
    claims = [("research", "four", 4), ("production", "two", 2), ("production", "one", 1)]
    await cluster.apply([h100(name, count=count, namespace=space) for space, name, count in claims])
    await cluster.apply([gang("wide", claim="four", size=2, namespace="research")])
    await until(lambda: site.server.query("sum(fairlead_driver_device_claim) >= 8"), what="the gang wide has its GPUs")
    await cluster.apply([gang("train", claim="two", size=2, namespace="production")])
    await cluster.apply([gang("never", claim="four", size=3, namespace="research")])


async def traffic(site: Observed) -> None:
    """Until cancelled: short pods that start or wait, some that are withdrawn, and some that the webhook refuses."""
    cluster = site.cluster
    for number in itertools.count():
        short = pod(f"short-{number}", claim="one", command=("sleep", "1"), namespace="production")
        await cluster.apply([short])
        if number % 14 == 0:  # what comes meanwhile has to wait, and so has a forecast
            batch = pod(
                f"batch-{number}",
                claim="one",
                command=("sleep", "5"),
                namespace="production",
                annotations=gang_of(f"batch-{number}", 4),
            )
            await cluster.apply([job(f"batch-{number}", batch, size=4)])
        if number % 4 == 3:
            with contextlib.suppress(errors.NotFound):
                await cluster.admin.delete(raw(PODS), f"short-{number}", "production", grace_period_s=0)
        for size in ("0", "1000"):  # no size; larger than the policy allows
            refused = pod(
                f"refused-{number}",
                claim="one",
                namespace="production",
                annotations={names.GANG: "g", names.GANG_SIZE: size},
            )
            with contextlib.suppress(errors.ApiError):
                await cluster.apply([refused])
        await asyncio.sleep(0.7)
