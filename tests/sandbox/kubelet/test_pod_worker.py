"""One pod on a node: when a failed prepare is tried again, and in which order a pod that stops is taken apart."""

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from fairlead.sandbox.kubelet.cdi import Edits
from fairlead.sandbox.kubelet.dra import PrepareError
from fairlead.sandbox.kubelet.pod_worker import KubeletAccess, PodWorker
from fairlead.sandbox.kubelet.runtime import Runtime

Obj = dict[str, Any]
DEAF = ["sh", "-c", "trap '' TERM; sleep infinity"]


class Node:
    """The rest of a kubelet; `did` has its calls in their order."""

    def __init__(self) -> None:
        self.runtime = Runtime()
        self.did: list[str] = []
        self.broken = False

    async def prepare(self, _pod: Obj) -> None:
        self.did.append("prepare")
        if self.broken:
            raise PrepareError("not found")

    async def unprepare(self, _uid: str) -> None:
        self.did.append(f"unprepare beside {len(self.runtime.running)} containers")

    def cdi_ids(self, _pod: Obj, _container: Obj) -> list[str]:
        return []

    async def patch_status(self, pod: Obj, status: Obj) -> Obj:
        self.did.append(f"{status['phase']} {status.get('reason', '')}".strip())
        return {**pod, "status": {**pod["status"], **status}}

    async def remove(self, _pod: Obj) -> None:
        self.did.append("remove")

    def access(self) -> KubeletAccess:
        dra: Any = self
        return KubeletAccess(
            sync_s=3600.0,
            backoff_s=3600.0,
            dra=dra,
            runtime=self.runtime,
            wall=lambda: 0.0,
            jitter=lambda backoff, _: backoff.base_s,
            resolve=lambda _: Edits(),
            patch_status=self.patch_status,
            remove=self.remove,
            warn=lambda _, reason, __: self.did.append(reason),
            host_ip="10.0.0.1",
            pod_ip="10.1.0.1",
        )


def pod(command: list[str] | None = None, **metadata: Any) -> Obj:
    return {
        "metadata": {"name": "p", "namespace": "ml", "uid": "u", **metadata},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "command": command or ["serve"]}]},
        "status": {"phase": "Pending"},
    }


@contextlib.asynccontextmanager
async def working(worker: PodWorker) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(worker.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - the worker does not say when
            await asyncio.sleep(0.01)


async def idle() -> None:
    """Until the worker has had many turns."""
    for _ in range(100):
        await asyncio.sleep(0)


def deleted(worker: PodWorker, grace_s: int) -> Obj:
    marked = copy.deepcopy(worker.pod)
    marked["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace_s}
    return marked


async def test_a_failed_prepare_waits_for_a_change_of_more_than_the_status() -> None:
    """The names of a pod's claims are in its status: their correction alone starts no sync."""
    node = Node()
    node.broken = True
    worker = PodWorker(kubelet=node.access(), pod=pod())
    async with working(worker):
        await until(lambda: node.did == ["prepare", "FailedPrepareDynamicResources", "Pending"])
        node.broken = False
        renamed = copy.deepcopy(worker.pod)
        renamed["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "right"}]
        worker.update(renamed)
        await idle()
        assert node.did.count("prepare") == 1
        noted = copy.deepcopy(renamed)
        noted["metadata"]["annotations"] = {"a": "b"}
        worker.update(noted)
        await until(lambda: "Running" in node.did)
        assert node.did.count("prepare") == 2


@pytest.mark.slow
async def test_claims_are_unprepared_once_the_containers_have_stopped_and_then_the_pod_is_removed() -> None:
    node = Node()
    worker = PodWorker(kubelet=node.access(), pod=pod(DEAF))
    async with working(worker) as task:
        await until(lambda: "Running" in node.did)
        node.did.clear()
        worker.update(deleted(worker, 3600))
        await idle()
        assert node.did == []
        assert node.runtime.running
        worker.update(deleted(worker, 1))
        await task
    assert node.did == ["unprepare beside 0 containers", "Failed", "remove"]


async def test_a_pod_that_the_api_forgot_has_its_whole_grace_period() -> None:
    node = Node()
    worker = PodWorker(kubelet=node.access(), pod=pod(DEAF))
    worker.pod["spec"]["terminationGracePeriodSeconds"] = 3600
    async with working(worker):
        await until(lambda: "Running" in node.did)
        node.did.clear()
        worker.update(None)
        await idle()
        assert node.runtime.running
        assert node.did == []
