"""A client that calls the driver's sockets as kubelet does."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio

from fairlead.driver.kubelet import protocol
from fairlead.kube.resource import ResourceClaim


class Kubelet:
    """The two sockets as kubelet uses them: generated stubs over unix channels."""

    def __init__(self, dra: grpc.aio.Channel, registration: grpc.aio.Channel) -> None:
        # The stubs' types are those of synchronous channels; over an aio channel calls are awaitable.
        self.v1: Any = protocol.dra_v1_pb2_grpc.DRAPluginStub(dra)
        self.v1beta1: Any = protocol.dra_v1beta1_pb2_grpc.DRAPluginStub(dra)
        self.health: Any = protocol.dra_health_v1alpha1_pb2_grpc.DRAResourceHealthStub(dra)
        self.registration: Any = protocol.pluginregistration_v1_pb2_grpc.RegistrationStub(registration)

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(cls, registration_socket: Path) -> AsyncIterator[Kubelet]:
        """As kubelet finds a plugin: GetInfo on the registration socket, then dial the endpoint in the answer."""
        async with grpc.aio.insecure_channel(f"unix:{registration_socket}") as registration:
            stub: Any = protocol.pluginregistration_v1_pb2_grpc.RegistrationStub(registration)
            info = await stub.GetInfo(protocol.pluginregistration_v1_pb2.InfoRequest())
            async with grpc.aio.insecure_channel(f"unix:{info.endpoint}") as dra:
                yield cls(dra, registration)

    async def prepare(self, *claims: ResourceClaim, version: str = "v1") -> dict[str, Any]:
        """The answers by UID."""
        pb2: Any = protocol.dra_v1_pb2 if version == "v1" else protocol.dra_v1beta1_pb2
        request = pb2.NodePrepareResourcesRequest(claims=[_wire(pb2, one) for one in claims])
        return dict((await getattr(self, version).NodePrepareResources(request)).claims)

    async def unprepare(self, *claims: ResourceClaim, version: str = "v1") -> dict[str, Any]:
        pb2: Any = protocol.dra_v1_pb2 if version == "v1" else protocol.dra_v1beta1_pb2
        request = pb2.NodeUnprepareResourcesRequest(claims=[_wire(pb2, one) for one in claims])
        return dict((await getattr(self, version).NodeUnprepareResources(request)).claims)


def _wire(pb2: Any, one: ResourceClaim) -> Any:
    return pb2.Claim(namespace=one.metadata.namespace, name=one.metadata.name, uid=one.metadata.uid)
