"""A client that calls the driver's sockets as kubelet does."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import grpc.aio

from fairlead.driver.kubelet import protocol
from fairlead.driver.kubelet.protocol import dra_v1_pb2
from fairlead.kube.resource import ResourceClaim


class Kubelet:
    """The two sockets as kubelet uses them: stubs over unix channels."""

    def __init__(self, dra: grpc.aio.Channel, registration: grpc.aio.Channel) -> None:
        self._dra = dra
        self.health = protocol.Stub(dra, protocol.HEALTH)
        self.registration = protocol.Stub(registration, protocol.REGISTRATION)

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(cls, registration_socket: Path) -> AsyncIterator[Kubelet]:
        """As kubelet finds a plugin: GetInfo on the registration socket, then dial the endpoint in the answer."""
        async with grpc.aio.insecure_channel(f"unix:{registration_socket}") as registration:
            stub = protocol.Stub(registration, protocol.REGISTRATION)
            info = await stub.GetInfo(protocol.pluginregistration_v1_pb2.InfoRequest())
            async with grpc.aio.insecure_channel(f"unix:{info.endpoint}") as dra:
                yield cls(dra, registration)

    async def prepare(self, *claims: ResourceClaim, version: str = "v1") -> dict[str, Any]:
        """The answers by UID."""
        return await self._call("NodePrepareResources", claims, version)

    async def unprepare(self, *claims: ResourceClaim, version: str = "v1") -> dict[str, Any]:
        return await self._call("NodeUnprepareResources", claims, version)

    async def _call(self, method: str, claims: Iterable[ResourceClaim], version: str) -> dict[str, Any]:
        wire = [
            dra_v1_pb2.Claim(namespace=one.metadata.namespace, name=one.metadata.name, uid=one.metadata.uid)
            for one in claims
        ]
        stub = protocol.Stub(self._dra, protocol.DRA[f"{version}.DRAPlugin"])
        return dict((await getattr(stub, method)(getattr(dra_v1_pb2, f"{method}Request")(claims=wire))).claims)
