"""An apiserver with one Node, and directories for a driver on it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from fairlead.driver.app import DriverOptions, run
from fairlead.kube.client import Client
from fairlead.kube.resource import ResourceClaim
from fairlead.kube.resources import NODES, RESOURCE_CLAIMS, RESOURCE_SLICES, raw
from fairlead.sandbox.apiserver.server import ApiServer
from fairlead.sandbox.release import Release
from tests.support.driver.claims import claim
from tests.support.kubernetes import of_this_run

CLAIMS = raw(RESOURCE_CLAIMS)
SLICES = raw(RESOURCE_SLICES)


@dataclasses.dataclass
class DriverCluster:
    """An apiserver with one Node, and directories for a driver on it."""

    server: ApiServer
    client: Client
    path: Path
    kubeconfig: Path

    @classmethod
    @contextlib.asynccontextmanager
    async def start(cls, path: Path, *, release: Release | None = None) -> AsyncIterator[DriverCluster]:
        async with ApiServer(workdir=path, release=release or of_this_run()) as server:
            kubeconfig = path / "kubeconfig"
            kubeconfig.write_text(server.kubeconfig())
            async with Client.connect(kubeconfig) as client:
                await client.create(raw(NODES), {"metadata": {"name": "n1"}})
                yield cls(server, client, path, kubeconfig)

    @property
    def options(self) -> DriverOptions:
        return DriverOptions(
            node_name="n1",
            kubeconfig=self.kubeconfig,
            backend="simulated:dgx-a100",
            plugins_dir=self.path / "plugins",
            registry_dir=self.path / "registry",
            cdi_dir=self.path / "cdi",
            sync_delay_s=0.01,
        )

    @property
    def registration(self) -> Path:
        return self.path / "registry" / "gpu.fairlead.dev-reg.sock"

    @contextlib.asynccontextmanager
    async def driver(self, **changes: Any) -> AsyncIterator[asyncio.Task[None]]:
        """A running driver; it is stopped as SIGTERM stops it, unless it has ended before."""
        ready = asyncio.Event()
        task = asyncio.create_task(run(dataclasses.replace(self.options, **changes), ready=ready))
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if task.done():
            task.result()
        try:
            yield task
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def allocate(
        self,
        *devices: str | dict[str, Any],
        name: str = "train",
        pod: str | None = None,
        config: Sequence[dict[str, Any]] = (),
    ) -> ResourceClaim:
        """A claim in the cluster with these devices, reserved for a pod, as the controller leaves it."""
        wanted = claim("unused", *devices)
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.fairlead.dev"}}]}}
        made = await self.client.create(
            CLAIMS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec}, "default"
        )
        assert wanted.status.allocation is not None
        made["status"] = {
            "allocation": {
                "devices": {
                    "results": [
                        {"request": r.request, "driver": r.driver, "pool": r.pool, "device": r.device}
                        | ({"shareID": r.share_id, "consumedCapacity": r.consumed_capacity} if r.share_id else {})
                        | ({"adminAccess": True} if r.admin_access else {})
                        for r in wanted.status.allocation.devices.results
                    ]
                }
            }
        }
        if config:
            made["status"]["allocation"]["devices"]["config"] = list(config)
        if pod is not None:
            made["status"]["reservedFor"] = [{"resource": "pods", "name": pod, "uid": f"{pod}-uid"}]
        await self.client.replace(CLAIMS, made, subresource="status")
        return await self.client.get(RESOURCE_CLAIMS, name, "default")

    async def slices(self) -> list[dict[str, Any]]:
        return sorted((await self.client.list(SLICES)).items, key=lambda slice_: str(slice_["metadata"]["name"]))

    async def until(self, condition: Any) -> None:
        """Wait for something that the driver will do on its own."""
        async with asyncio.timeout(20):
            while not await condition():  # noqa: ASYNC110 - what is waited for happens in an apiserver
                await asyncio.sleep(0.01)


def share_id(number: int) -> str:
    """A share's ID, as the allocator makes them."""
    return f"3f3a8d6e-0000-4000-8000-{number:012x}"
