"""For tests that run a cluster: one that starts quickly and lies in a short directory, objects to apply, and waiting.

`until` polls, because what is waited for happens in other processes; no test sleeps for a fixed time.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from fairlead.api import names
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.informer import Change, Informer
from fairlead.kube.resources import GANGS, PODS, RESOURCE_CLAIMS, Raw, Resource, raw
from fairlead.sandbox.cluster import Cluster, ClusterOptions, NodeSpec, NodeTimes
from fairlead.sandbox.controllers.manager import ManagerOptions
from fairlead.sandbox.informers import RECONNECT
from fairlead.sandbox.objects import Obj, phase_of, results_of
from tests.support.kubernetes import of_this_run

POLL_S = 0.02
FOREVER = ("sleep", "infinity")
FAST = NodeTimes(lease_s=1.0, wiping_delay_s=1.0, reconcile_s=1.0, sync_s=1.0, backoff_s=0.2)
# Twenty heartbeats may be late before a node counts as gone: tests share a machine, and a slow one must not evict pods.
FAST_MANAGER = ManagerOptions(job_backoff_s=0.2, node_grace_s=5.0, node_eviction_s=0.2)


@contextlib.asynccontextmanager
async def cluster(*nodes: NodeSpec, **options: Any) -> AsyncIterator[Cluster]:
    """A cluster with short patience, in a directory of its own that goes away with it."""
    chosen: dict[str, Any] = {
        "times": FAST,
        "manager": FAST_MANAGER,
        "scheduler_backoff_s": (0.1, 1.0),
        "release": of_this_run(),
    } | options
    with tempfile.TemporaryDirectory(prefix="fl-") as path:
        async with Cluster(ClusterOptions(workdir=Path(path), nodes=nodes, **chosen)) as made:
            yield made


async def until(check: Callable[[], Any], *, timeout_s: float = 30.0, what: str = "") -> Any:
    """What `check` returned when it was first true; it may be a coroutine function. Raises AssertionError."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        found = check()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        if time.monotonic() > deadline_s:
            raise AssertionError(f"{what or inspect.getsource(check).strip()}: not within {timeout_s:.0f} s")
        await asyncio.sleep(POLL_S)


class View:
    """One user's view of a cluster: its objects now, and waiting for a state."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def get(self, resource: Resource[Any], name: str, namespace: str | None = "default") -> Raw | None:
        try:
            return await self.client.get(raw(resource), name, namespace if resource.namespaced else None)
        except errors.NotFound:
            return None

    async def all(self, resource: Resource[Any], namespace: str | None = None) -> list[Raw]:
        return (await self.client.list(raw(resource), namespace)).items

    async def pod(self, name: str, namespace: str = "default") -> Raw:
        found = await self.get(PODS, name, namespace)
        assert found is not None, f"pod {namespace}/{name} does not exist"
        return found

    async def claims(self, namespace: str | None = None) -> list[Raw]:
        return await self.all(RESOURCE_CLAIMS, namespace)

    async def phase(self, name: str, *phases: str, namespace: str = "default", timeout_s: float = 30.0) -> Raw:
        """The pod, once it is in one of these phases."""
        return await self._reached(PODS, name, phases, namespace, timeout_s)

    async def gang(self, name: str, *phases: str, namespace: str = "default", timeout_s: float = 30.0) -> Raw:
        """The Gang, once it is in one of these phases."""
        return await self._reached(GANGS, name, phases, namespace, timeout_s)

    async def _reached(
        self, resource: Resource[Any], name: str, phases: tuple[str, ...], namespace: str, timeout_s: float
    ) -> Raw:
        seen: Raw | None = None

        async def reached() -> bool:
            nonlocal seen
            seen = await self.get(resource, name, namespace)
            return seen is not None and phase_of(seen) in phases

        try:
            await until(reached, timeout_s=timeout_s)
        except AssertionError:
            status = (seen or {}).get("status")
            kind = resource.kind
            raise AssertionError(f"{kind} {namespace}/{name} is not {' or '.join(phases)}: {status}") from None
        assert seen is not None
        return seen

    async def gone(self, resource: Resource[Any], name: str, namespace: str = "default") -> None:
        async def absent() -> bool:
            return await self.get(resource, name, namespace) is None

        await until(absent, what=f"{resource} {namespace}/{name} is gone")

    async def no_claims(self) -> None:
        """Until no claim is left that holds or reserves anything."""

        async def free() -> bool:
            return not any(
                c.get("status", {}).get("allocation") or c.get("status", {}).get("reservedFor")
                for c in await self.claims()
            )

        await until(free, what="all claims are free")


def template(name: str, *, count: int = 1, selector: str = "", namespace: str = "default", **devices: Any) -> Obj:
    exactly: Obj = {"deviceClassName": names.GPU_CLASS, "count": count}
    if selector:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}], **devices}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"spec": spec},
    }


def pod(
    name: str,
    *,
    claim: str = "",
    command: tuple[str, ...] = ("sleep", "0.3"),
    namespace: str = "default",
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Obj:
    """A pod that ends by itself; `claim` names a template."""
    container: Obj = {"name": "main", "image": "busybox:1.37", "command": list(command)}
    made: Obj = {"restartPolicy": "Never", "containers": [container], **spec}
    if claim:
        made["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": claim}]
        container["resources"] = {"claims": [{"name": "gpu"}]}
    metadata: Obj = {"name": name, "namespace": namespace}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made}


def gang_of(name: str, size: int | None = None) -> dict[str, str]:
    """Annotations that make a pod a member of a gang."""
    return {names.GANG: name} | ({names.GANG_SIZE: str(size)} if size is not None else {})


def job(name: str, template_of: Obj, *, size: int, **spec: Any) -> Obj:
    """An Indexed Job of `size` pods like `template_of`."""
    metadata = {key: value for key, value in template_of["metadata"].items() if key in {"labels", "annotations"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": template_of["metadata"]["namespace"]},
        "spec": {
            "completionMode": "Indexed",
            "completions": size,
            "parallelism": size,
            **spec,
            "template": {"metadata": metadata, "spec": template_of["spec"]},
        },
    }


class Ledger:
    """Watches all claims and records every device that was ever in two of them at a time."""

    def __init__(self) -> None:
        self.doubles: list[str] = []
        self._holders: dict[tuple[str, str, str], set[str]] = {}

    def note(self, change: Change[Raw]) -> None:
        for claim, adds in ((change.old, False), (change.new, True)):
            for each in results_of(claim) if claim is not None else ():
                if each.get("adminAccess") or each.get("shareID"):
                    continue
                device = (str(each["driver"]), str(each["pool"]), str(each["device"]))
                holders = self._holders.setdefault(device, set())
                holders.add(change.key) if adds else holders.discard(change.key)
                if len(holders) > 1:
                    self.doubles.append(f"{'/'.join(device)} is in claims {', '.join(sorted(holders))}")


@contextlib.asynccontextmanager
async def ledger(client: Client) -> AsyncIterator[Ledger]:
    """Watch for the length of the block; the caller asserts that `doubles` is empty."""
    made = Ledger()
    informer = Informer(client, raw(RESOURCE_CLAIMS), backoff=RECONNECT)
    informer.subscribe(made.note)
    task = asyncio.create_task(informer.run())
    try:
        await informer.synced.wait()
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
