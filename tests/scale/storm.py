"""A full cluster whose owner comes back: KAI's reclaim case against a real apiserver, played without kubelets and drivers.

Measures what thousands of evictions at once cost the controller and the apiserver. The controller is a process of its
own (CPU and memory are its own, a kill is a SIGKILL); apiserver, claim controller, garbage collector and scheduler are the
sandbox's. Nodes, slices and running pods are written as they would have come to be; `Kubelets` starts and ends pods at once.
Counted are requests by the controller's user, and what becomes of each pod.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

from fairlead.api import names
from fairlead.kube import errors, resources, timestamps
from fairlead.kube.client import Client, Patch
from fairlead.kube.informer import Change, Informer
from fairlead.kube.resources import PODS, Raw
from fairlead.sandbox.cluster import Cluster, ClusterOptions
from fairlead.sandbox.controllers.manager import ManagerOptions
from tests.support.engine.objects import gpu

GPUS = 8
AT_ONCE = 32
RICH, POOR, SMALL = "rich", "poor", "small"  # the borrower, the owner that reclaims, and a queue that only wants little
MODELS = {RICH: "h100", POOR: "h100", SMALL: "l4"}
CONTROLLER = f"system:serviceaccount:{names.NAMESPACE}:fairlead-controller"
RAW_PODS = resources.raw(PODS)
TICKS = os.sysconf("SC_CLK_TCK")


class Process:
    """One controller, started as its image would."""

    def __init__(self, kubeconfig: Path, log: Path, *, name: str, lease_s: float) -> None:
        words = ["controller", "--kubeconfig", kubeconfig, "--identity", name, "--lease-duration", lease_s]
        run = "from fairlead.cli.main import main; main()"
        with log.open("ab") as out:
            self._process = subprocess.Popen([sys.executable, "-c", run, *map(str, words)], stdout=out, stderr=out)

    @property
    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    @property
    def peak_mib(self) -> float:
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    async def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            await asyncio.to_thread(self._process.wait, 60)


class Kubelets:
    """All nodes' kubelets: a bound pod runs, a deleted pod is gone. Records what became of each pod, and when."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.pods = Informer(client, RAW_PODS)
        self.pods.subscribe(self._see)
        self.running: set[str] = set()
        self.evicted: Counter[str] = Counter()  # pod UID: how often it was evicted
        self.ran_at: dict[str, float] = {}
        self._todo: asyncio.Queue[tuple[str, Raw]] = asyncio.Queue()
        self._known: set[tuple[str, str]] = set()

    def _see(self, change: Change[Raw]) -> None:
        pod = change.new
        if pod is None:
            self.running.discard(change.key)
            return
        meta, uid = pod["metadata"], pod["metadata"]["uid"]
        if meta.get("deletionTimestamp"):
            self._once("end", uid, pod)
        elif pod.get("status", {}).get("phase") == "Running":
            self.running.add(change.key)
            self.ran_at.setdefault(change.key, time.monotonic())
        elif pod["spec"].get("nodeName"):
            self._once("start", uid, pod)

    def _once(self, what: str, uid: str, pod: Raw) -> None:
        if (what, uid) not in self._known:
            self._known.add((what, uid))
            self.evicted[uid] += what == "end"
            self._todo.put_nowait((what, pod))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.pods.run())
            for _ in range(8):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            what, pod = await self._todo.get()
            meta = pod["metadata"]
            with contextlib.suppress(errors.NotFound, errors.Conflict):
                if what == "end":
                    await self._client.delete(PODS, meta["name"], meta["namespace"], grace_period_s=0, uid=meta["uid"])
                else:
                    await run_pod(self._client, meta["name"], meta["namespace"])

    def count(self, namespace: str) -> int:
        return sum(key.startswith(f"{namespace}/") for key in self.running)


async def run_pod(client: Client, name: str, namespace: str) -> None:
    now = timestamps.seconds(time.time())
    status: dict[str, Any] = {
        "phase": "Running",
        "startTime": now,
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now}],
    }
    body = {"status": status}
    await client.patch(PODS, name, body, namespace=namespace, kind=Patch.STRATEGIC, subresource="status")


class Storm:
    """`nodes` nodes of eight GPUs full of `rich` pods, and one that is free for `small`."""

    def __init__(self, cluster: Cluster, client: Client, controller: Client, workdir: Path, nodes: int) -> None:
        self._controller = controller  # with the account that alone may allocate
        self.cluster = cluster
        self.client = client
        self.nodes = nodes
        self.kubelets = Kubelets(client)
        self.requests: Counter[str] = Counter()  # by the controller: "verb resource/subresource"
        self.renewals: list[float] = []
        self._log = workdir / "controller.log"
        self._few = asyncio.Semaphore(AT_ONCE)
        cluster.server.state.audit = self._audit

    @property
    def gpus(self) -> int:
        return self.nodes * GPUS

    @property
    def writes(self) -> Counter[str]:
        return Counter(
            {what: n for what, n in self.requests.items() if what.split()[0] not in {"get", "list", "watch"}}
        )

    def _audit(self, user: Any, access: Any, allowed: bool) -> None:
        if user.name == CONTROLLER and access.resource:
            where = f"{access.resource}/{access.subresource}" if access.subresource else access.resource
            self.requests[f"{access.verb} {where}"] += 1
            if access.resource == "leases" and access.verb in {"update", "patch"}:
                self.renewals.append(time.monotonic())

    def controller(self, name: str = "first", *, lease_s: float = 15.0) -> Process:
        return Process(self.cluster.kubeconfig(CONTROLLER), self._log, name=name, lease_s=lease_s)

    async def until(self, holds: Callable[[], bool], what: str, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not holds():
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"not within {timeout_s:.0f} s: {what}; see the end of the log:\n{self.log()[-3000:]}"
                )
            await asyncio.sleep(0.05)

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    # -- what there is ---------------------------------------------------------------------------------------------

    async def populate(self) -> None:
        """Nodes, slices, queues; one more node, of another model, for `small`."""
        client = self.client
        await self._all(self._node(number) for number in range(self.nodes + 1))
        half = self.gpus // 2
        for team, deserved in ((RICH, half), (POOR, half), (SMALL, GPUS)):
            selector = f"device.attributes['{names.DRIVER}'].productName == '{MODELS[team]}'"
            await client.create(resources.NAMESPACES, {"metadata": {"name": team}})
            exactly = {
                "deviceClassName": names.GPU_CLASS,
                "allocationMode": "ExactCount",
                "count": 1,
                "selectors": [{"cel": {"expression": selector}}],
            }
            spec = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}
            template = {"metadata": {"name": "gpu", "namespace": team}, "spec": spec}
            await client.create(resources.raw(resources.RESOURCE_CLAIM_TEMPLATES), template)
            with contextlib.suppress(errors.AlreadyExists):
                flavor = {"deviceSelector": selector, "measure": "Devices"}
                await client.create(resources.FLAVORS, {"metadata": {"name": MODELS[team]}, "spec": flavor})
            quota = {"flavors": [{"flavor": MODELS[team], "deserved": deserved}]}
            labels = {"matchLabels": {"kubernetes.io/metadata.name": team}}
            await client.create(
                resources.QUEUES, {"metadata": {"name": team}, "spec": quota | {"namespaceSelector": labels}}
            )

    async def _node(self, number: int) -> None:
        name, model = f"node-{number:04d}", MODELS[RICH if number < self.nodes else SMALL]
        room = {"cpu": "128", "memory": "1Ti", "pods": "110"}
        made = await self.client.create(
            resources.raw(resources.NODES), {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}}
        )
        status = {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
        await self.client.patch(resources.raw(resources.NODES), name, {"status": status}, subresource="status")
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": made["metadata"]["uid"], "controller": True}
        await self.client.create(
            resources.raw(resources.RESOURCE_SLICES),
            {
                "metadata": {"name": f"{name}-gpus", "ownerReferences": [owner]},
                "spec": {
                    "driver": names.DRIVER,
                    "nodeName": name,
                    "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                    "devices": [gpu(minor, product=model) for minor in range(GPUS)],
                },
            },
        )

    async def fill(self) -> None:
        """Every GPU but those of the last node runs a pod of `rich`, as an earlier controller would have left it."""
        await self._all(self._filled(number) for number in range(self.gpus))

    async def _filled(self, number: int) -> None:
        """By a claim of its own name: for a template the claim controller would make one, too."""
        name, node, device = f"rich-{number:05d}", f"node-{number // GPUS:04d}", f"gpu-{number % GPUS}"
        exactly = {"deviceClassName": names.GPU_CLASS, "allocationMode": "ExactCount", "count": 1}
        claim = {
            "metadata": {"name": name, "namespace": RICH, "finalizers": ["resource.kubernetes.io/delete-protection"]},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        }
        await self.client.create(resources.raw(resources.RESOURCE_CLAIMS), claim)
        pod = await self.client.create(RAW_PODS, body(name, RICH, node=node, claim=name))
        pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        allocation = {
            "devices": {"results": [{"request": "gpu", "driver": names.DRIVER, "pool": node, "device": device}]},
            "nodeSelector": {"nodeSelectorTerms": [pin]},
            "allocationTimestamp": timestamps.seconds(time.time() - 3600),
        }
        reference = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
        await self._controller.patch(
            resources.raw(resources.RESOURCE_CLAIMS), name,
            {"status": {"allocation": allocation, "reservedFor": [reference]}},
            namespace=RICH, subresource="status",
        )  # fmt: skip
        await run_pod(self.client, name, RICH)

    async def ask(self, count: int, team: str = POOR, prefix: str = "") -> None:
        """So many pods of one GPU each, gated as the webhook would leave them."""
        await self._all(
            self.client.create(RAW_PODS, body(f"{prefix or team}-{number:05d}", team)) for number in range(count)
        )

    async def passes_by(self, number: int) -> float:
        """How long a small gang that has its own node waits until it runs, in seconds; then it goes again."""
        name = f"small-{number:05d}"
        began = time.monotonic()
        await self.client.create(RAW_PODS, body(name, SMALL))
        await self.until(lambda: f"{SMALL}/{name}" in self.kubelets.ran_at, f"{name} runs", 300)
        took_s = self.kubelets.ran_at[f"{SMALL}/{name}"] - began
        with contextlib.suppress(errors.NotFound):
            await self.client.delete(PODS, name, SMALL, grace_period_s=0)
        return took_s

    async def _all(self, work: Iterable[Any]) -> None:
        async def one(each: Any) -> None:
            async with self._few:
                await each

        await asyncio.gather(*(one(each) for each in work))


def body(name: str, namespace: str, *, node: str = "", claim: str = "") -> Raw:
    use = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": "gpu"}
    spec: Raw = {
        "restartPolicy": "Never",
        "resourceClaims": [{"name": "gpu", **use}],
        "containers": [{"name": "main", "image": "busybox", "resources": {"claims": [{"name": "gpu"}]}}],
    }
    spec |= {"nodeName": node} if node else {"schedulingGates": [{"name": names.ADMISSION_GATE}]}
    return {"metadata": {"name": name, "namespace": namespace, "labels": {"team": namespace}}, "spec": spec}


@contextlib.asynccontextmanager
async def storm(workdir: Path, nodes: int) -> AsyncIterator[Storm]:
    options = ClusterOptions(workdir=workdir, run_programs=False, manager=ManagerOptions(node_grace_s=1e6))
    async with Cluster(options) as cluster, cluster.client() as client, cluster.client(CONTROLLER) as controller:
        made = Storm(cluster, client, controller, workdir, nodes)
        playing = asyncio.create_task(made.kubelets.run())
        try:
            await made.kubelets.pods.synced.wait()
            await made.populate()
            await made.fill()
            yield made
        finally:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)
