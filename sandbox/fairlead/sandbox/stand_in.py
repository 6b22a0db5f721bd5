"""What kubelet asks of a DRA driver on one node, and the slices that it publishes: what stand-ins for other projects' drivers have in common.

A driver says which devices it publishes and what its answer for a prepared claim is. It refuses a device that another claim has prepared.
No health, nothing survives it.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import grpc.aio
import msgspec

from fairlead.driver.backend import factory
from fairlead.driver.kubelet import protocol
from fairlead.driver.kubelet.protocol import dra_v1_pb2
from fairlead.driver.kubelet.server import RegistrationService, plugin_paths
from fairlead.driver.publish import slices
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import RESOURCE_CLAIMS, RESOURCE_SLICES, raw

Json = dict[str, Any]
_GRACE_S: Final = 1.0


class StandIn(abc.ABC):
    """`driver.running(...)` serves one node while the block lasts."""

    driver: ClassVar[str]

    def __init__(self, client: Client, *, node: str, profile: str) -> None:
        self.client = client
        self.node = node
        self.profile = profile
        self._prepared: dict[str, tuple[str, ...]] = {}  # claim UID: its devices

    @abc.abstractmethod
    def devices(self) -> list[list[Json]]:
        """Of each slice of the node's pool the devices."""

    @abc.abstractmethod
    async def prepare(self, claim: Json, results: Sequence[Mapping[str, Any]]) -> list[Json]:
        """Prepares what of the claim's allocation is this driver's; the devices of the answer. Raises ValueError, and errors of the API."""

    @abc.abstractmethod
    def unprepare(self, uid: str) -> None: ...

    @contextlib.asynccontextmanager
    async def running(self, *, plugins_dir: Path, registry_dir: Path) -> AsyncIterator[None]:
        """Its slices are published and its sockets listen; kubelet registers it then."""
        paths = plugin_paths(driver=self.driver, plugins_dir=plugins_dir, registry_dir=registry_dir, pod_uid=None)
        paths.data.mkdir(parents=True, exist_ok=True)
        await self._publish()
        async with contextlib.AsyncExitStack() as stack:
            dra, registrar = grpc.aio.server(), grpc.aio.server()
            protocol.DRA[protocol.DRA_V1].serve(self, dra)
            protocol.REGISTRATION.serve(_Registration(driver=self.driver, endpoint=str(paths.dra)), registrar)
            for server, path in ((dra, paths.dra), (registrar, paths.registration)):
                server.add_insecure_port(f"unix:{path}")
                await server.start()
                stack.push_async_callback(server.stop, _GRACE_S)
                stack.callback(path.unlink, missing_ok=True)
            yield

    async def _publish(self) -> None:
        bodies = self.devices()
        pool = {"name": self.node, "generation": 1, "resourceSliceCount": len(bodies)}
        for number, devices in enumerate(bodies):
            spec: Json = {"driver": self.driver, "nodeName": self.node, "pool": pool, "devices": devices}
            name = f"{self.node}-{self.driver}-{number}"
            made = {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": name},
                "spec": spec,
            }
            await self.client.create(raw(RESOURCE_SLICES), made)

    # -- what kubelet calls ----------------------------------------------------------------------------------------

    async def NodePrepareResources(self, request: Any, context: object) -> Any:  # noqa: N802
        response: Any = dra_v1_pb2.NodePrepareResourcesResponse()
        for ref in request.claims:
            entry = response.claims[ref.uid]
            try:
                claim = await self._claim(ref)
                results = self._results(claim)
                wanted = self._free(ref.uid, results)
                for device in await self.prepare(claim, results):
                    entry.devices.add(**device)
                self._prepared[ref.uid] = wanted
            except (errors.ApiError, ValueError) as error:
                entry.error = str(error)
        return response

    async def NodeUnprepareResources(self, request: Any, context: object) -> Any:  # noqa: N802
        response: Any = dra_v1_pb2.NodeUnprepareResourcesResponse()
        for ref in request.claims:
            self._prepared.pop(ref.uid, None)
            self.unprepare(ref.uid)
            response.claims[ref.uid].SetInParent()
        return response

    async def _claim(self, ref: Any) -> Json:
        """The claim, which is allocated. Raises ValueError, and errors of the API."""
        claim = await self.client.get(raw(RESOURCE_CLAIMS), ref.name, ref.namespace)
        where = f"ResourceClaim {ref.namespace}/{ref.name}"
        if claim["metadata"]["uid"] != ref.uid:
            raise ValueError(f"{where}: was recreated; kubelet asks for UID {ref.uid}")
        if not (claim.get("status") or {}).get("allocation"):
            raise ValueError(f"{where}: is not allocated")
        return claim

    def _results(self, claim: Json) -> list[Mapping[str, Any]]:
        """What of the allocation is this driver's, on this node."""
        results = claim["status"]["allocation"]["devices"]["results"]
        return [each for each in results if each["driver"] == self.driver and each["pool"] == self.node]

    def _free(self, uid: str, results: list[Mapping[str, Any]]) -> tuple[str, ...]:
        """The devices that the claim takes. Raises ValueError where another one has prepared one of them."""
        wanted = tuple(each["device"] for each in results if not each.get("adminAccess"))
        for other, devices in self._prepared.items():
            if other != uid and (both := sorted({*devices} & {*wanted})):
                raise ValueError(f"device {both[0]} is prepared for claim {other} already")
        return wanted


def simulated(profile: str, node: str) -> list[list[Json]]:
    """Of each slice that our driver would publish for the profile the devices."""
    backend = factory.open_backend(f"simulated:{profile}", node=node, data=None)
    try:
        return [msgspec.to_builtins(body.devices) for body in slices.build(backend.inventory()).slices]
    finally:
        backend.close()


class _Registration(RegistrationService):
    async def GetInfo(self, request: object, context: object) -> Any:  # noqa: N802
        """It serves no health stream and no older version."""
        info = await super().GetInfo(request, context)
        del info.supported_versions[:]
        info.supported_versions.append(protocol.DRA_V1)
        return info
