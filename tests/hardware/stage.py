"""The node on which the checks run: a sandbox with one node, its driver on the hardware, and pods that are processes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import time
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from fairlead.api import names
from fairlead.api.drivers import NVIDIA
from fairlead.kube.resources import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Raw, raw
from fairlead.sandbox.cluster import Cluster, ClusterOptions, NodeSpec
from fairlead.sandbox.node import Node
from fairlead.sandbox.objects import phase_of
from tests.hardware.runtime import INSIDE, Kind, ProcessRuntime
from tests.hardware.smi import Smi

NODE = "gpu-node"
NAMESPACE = "default"
POLL_S = 0.1
PATIENCE_S = 60.0
CONFIG_VERSIONS = {names.DRIVER: names.CONFIG_API_VERSION, NVIDIA: "resource.nvidia.com/v1beta1"}


class SkippedError(Exception):
    """What the check looks at is not here; says why."""


@dataclasses.dataclass(kw_only=True)
class Stage:
    """`settings`: the checks may change settings of the GPUs, and put them back."""

    cluster: Cluster
    runtime: ProcessRuntime
    smi: Smi
    metrics_url: str
    settings: bool
    driver: str = names.DRIVER
    _seen: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    @property
    def node(self) -> Node:
        return self.cluster.nodes[NODE]

    async def devices(self) -> list[Raw]:
        """What the driver publishes."""
        slices = (await self.cluster.admin.list(raw(RESOURCE_SLICES))).items
        return [device for each in slices for device in each["spec"].get("devices") or ()]

    async def start(self, name: str, *words: object, claim: Raw | None = None, **config: Any) -> str:
        """A pod that runs the GPU program with these words; `claim` is its request's `exactly`, None: it has no claim."""
        spec: Raw = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 2,
            "containers": [
                {"name": "main", "image": "none", "command": ["python3", INSIDE, *(str(each) for each in words)]}
            ],
        }
        if claim is not None:
            await self._create_claim(name, claim, config)
            spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
            spec["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
        await self.cluster.admin.create(raw(PODS), pod, NAMESPACE)
        return name

    async def _create_claim(self, name: str, exactly: Raw, config: dict[str, Any]) -> None:
        devices: Raw = {
            "requests": [{"name": "gpu", "exactly": {"deviceClassName": self.driver, **exactly}}],
        }
        if config:
            kind = {"apiVersion": CONFIG_VERSIONS[self.driver], "kind": "GpuConfig"}
            devices["config"] = [{"opaque": {"driver": self.driver, "parameters": {**kind, **config}}}]
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"devices": devices},
        }
        await self.cluster.admin.create(raw(RESOURCE_CLAIMS), claim, NAMESPACE)

    async def phase(self, name: str, *phases: str, timeout_s: float = PATIENCE_S) -> Raw:
        """The pod once it is in one of these phases. Raises AssertionError."""
        until_s = time.monotonic() + timeout_s
        while True:
            pod = await self.cluster.admin.get(raw(PODS), name, NAMESPACE)
            self._seen[name] = await self._claim_of(name) or self._seen.get(name, [])
            if phase_of(pod) in phases:
                return pod
            if time.monotonic() > until_s:
                said = self.said(name)
                raise AssertionError(f"pod {name} is {phase_of(pod)} after {timeout_s:.0f} s: {said or pod['status']}")
            await asyncio.sleep(POLL_S)

    async def result(self, name: str, *, timeout_s: float = PATIENCE_S, fails: bool = False) -> Raw:
        """What the pod printed when it has ended; it and its claim are removed. Raises AssertionError."""
        pod = await self.phase(name, "Succeeded", "Failed", timeout_s=timeout_s)
        said, claimed = self.said(name), self.claimed(name)
        await self.remove(name)
        assert fails or phase_of(pod) == "Succeeded", f"pod {name} failed: {said[-600:]}"
        try:
            found: Raw = json.loads(said.splitlines()[-1])
        except (IndexError, ValueError):
            raise AssertionError(f"pod {name} printed no result: {said[-600:]}") from None
        return {**found, "claimed": claimed}

    def claimed(self, name: str) -> list[str]:
        """UUIDs of the published devices that the pod's claim had when its phase was last asked for, sorted: it loses them when the pod ends."""
        return self._seen[name]

    async def _claim_of(self, name: str) -> list[str]:
        uuids = {
            each["name"]: found["string"]
            for each in await self.devices()
            if (found := each["attributes"].get("uuid")) is not None
        }
        return sorted(
            uuids[result["device"]]
            for claim in await self._listed(RESOURCE_CLAIMS)
            if claim["metadata"]["name"] == name
            for result in ((claim.get("status") or {}).get("allocation") or {"devices": {"results": ()}})["devices"][
                "results"
            ]
            if result["device"] in uuids
        )

    async def run(self, name: str, *words: object, claim: Raw | None = None, **config: Any) -> Raw:
        return await self.result(await self.start(name, *words, claim=claim, **config))

    def said(self, name: str) -> str:
        with contextlib.suppress(OSError):
            return self.runtime.output(name).read_text(errors="replace").strip()
        return ""

    async def remove(self, *pods: str) -> None:
        """The pods and their claims, until the node has nothing of them any more."""
        for name in pods:
            for resource in (PODS, RESOURCE_CLAIMS):
                with contextlib.suppress(Exception):
                    await self.cluster.admin.delete(raw(resource), name, NAMESPACE)
        for name in pods:
            for resource in (PODS, RESOURCE_CLAIMS):
                await self.until(lambda resource=resource, name=name: self._gone(resource, name), f"{name} is removed")

    async def clear(self) -> None:
        """Remove what a check that failed has left."""
        with contextlib.suppress(AssertionError):
            await self.remove(*(pod["metadata"]["name"] for pod in await self._listed(PODS)))

    async def _gone(self, resource: Any, name: str) -> bool:
        return all(each["metadata"]["name"] != name for each in await self._listed(resource))

    async def _listed(self, resource: Any) -> list[Raw]:
        return (await self.cluster.admin.list(raw(resource), NAMESPACE)).items

    async def until(self, found: Any, what: str, timeout_s: float = PATIENCE_S) -> Any:
        """What `found` returned (or its coroutine) when it was first true. Raises AssertionError."""
        until_s = time.monotonic() + timeout_s
        while not (value := await found()):
            assert time.monotonic() < until_s, f"{what}: not within {timeout_s:.0f} s"
            await asyncio.sleep(POLL_S)
        return value

    async def metrics(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """The driver's metrics by name and labels."""
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(self.metrics_url, timeout=10).read().decode())
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    async def metric(self, name: str, **labels: str) -> float | None:
        """The first value with that name and these labels."""
        wanted = set(labels.items())
        return next((v for (n, has), v in (await self.metrics()).items() if n == name and wanted <= set(has)), None)


@contextlib.asynccontextmanager
async def stage(
    *, kind: Kind, smi: Smi, workdir: Path, driver_root: Path, settings: bool, port: int
) -> AsyncIterator[Stage]:
    """Up when the driver has published its devices; nothing is left of it afterwards."""
    runtime = ProcessRuntime(kind, workdir / "containers")
    flags = (
        "--backend=nvml",
        f"--driver-root={driver_root}",
        "--shared-gpus",
        "--dcgm-metrics",
        f"--metrics-bind=127.0.0.1:{port}",
    )
    options = ClusterOptions(
        workdir=workdir / "c", nodes=(NodeSpec(NODE, "nvml", flags=flags),), runtime=lambda: runtime
    )
    async with Cluster(options) as cluster:
        yield Stage(
            cluster=cluster,
            runtime=runtime,
            smi=smi,
            metrics_url=f"http://127.0.0.1:{port}/metrics",
            settings=settings,
        )
