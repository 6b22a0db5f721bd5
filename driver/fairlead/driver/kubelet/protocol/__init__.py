"""The protocols between kubelet and a DRA driver over unix sockets: messages, services and their names.

The driver and the simulated kubelet share this one definition. v1beta1 of the DRA service is v1 without a device's share_id, and so has
v1's messages. Source: kubelet's published APIs, in protos/. The messages in generated/ are made from them, with tools of an
environment of their own, since code of newer ones would demand the newest protobuf at run time:

    python -m venv /tmp/protoc && /tmp/protoc/bin/pip install grpcio-tools==1.74.0 mypy-protobuf==3.6.0
    cd driver/fairlead/driver/kubelet/protocol
    PATH=/tmp/protoc/bin:$PATH python -m grpc_tools.protoc -Iprotos --python_out=generated --mypy_out=generated protos/*.proto
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from fairlead.driver.kubelet.protocol.generated import dra_health_v1alpha1_pb2, dra_v1_pb2, pluginregistration_v1_pb2

__all__ = ["Service", "Stub", "dra_health_v1alpha1_pb2", "dra_v1_pb2", "pluginregistration_v1_pb2"]

PLUGIN_TYPE: Final = "DRAPlugin"
DRA_V1: Final = "v1.DRAPlugin"
DRA_V1BETA1: Final = "v1beta1.DRAPlugin"
HEALTH_V1ALPHA1: Final = "v1alpha1.DRAResourceHealth"
# kubelet uses the first DRAPlugin entry that it supports, so the newest comes first.
SUPPORTED_VERSIONS: Final = (DRA_V1, DRA_V1BETA1, HEALTH_V1ALPHA1)


@dataclasses.dataclass(frozen=True)
class Service:
    """A gRPC service by its full name, with the methods and messages of `described`."""

    name: str
    described: ServiceDescriptor

    def serve(self, servicer: object, server: grpc.aio.Server) -> None:
        """Let the coroutines of `servicer` answer the methods that they are named as."""
        handlers = {}
        for method in self.described.methods:
            kind = (
                grpc.unary_stream_rpc_method_handler if method.server_streaming else grpc.unary_unary_rpc_method_handler
            )
            handlers[method.name] = kind(
                getattr(servicer, method.name),
                request_deserializer=GetMessageClass(method.input_type).FromString,
                response_serializer=GetMessageClass(method.output_type).SerializeToString,
            )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(self.name, handlers),))


class Stub:
    """The service's methods, by name, as calls over a channel."""

    def __init__(self, channel: grpc.aio.Channel, service: Service) -> None:
        self._channel = channel
        self._service = service

    def __getattr__(self, name: str) -> Any:
        method: MethodDescriptor = self._service.described.methods_by_name[name]
        kind = self._channel.unary_stream if method.server_streaming else self._channel.unary_unary
        return kind(
            f"/{self._service.name}/{name}",
            request_serializer=GetMessageClass(method.input_type).SerializeToString,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )


_DRA: Final = dra_v1_pb2.DESCRIPTOR.services_by_name["DRAPlugin"]
DRA: Final = {
    DRA_V1: Service("k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin", _DRA),
    DRA_V1BETA1: Service("k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin", _DRA),
}
HEALTH: Final = Service(
    "v1alpha1.DRAResourceHealth", dra_health_v1alpha1_pb2.DESCRIPTOR.services_by_name["DRAResourceHealth"]
)
REGISTRATION: Final = Service(
    "pluginregistration.Registration", pluginregistration_v1_pb2.DESCRIPTOR.services_by_name["Registration"]
)
