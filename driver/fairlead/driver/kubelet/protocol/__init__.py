"""The protocols between kubelet and a DRA driver over unix sockets: messages, services and their names.

The driver and the simulated kubelet share this one definition. Holds names and re-exports only; the definitions are in
protos/, the code generated from them in generated/ (see generate.py). Source: kubelet's published APIs.
"""

from typing import Final

from fairlead.driver.kubelet.protocol.generated import (
    dra_health_v1alpha1_pb2,
    dra_health_v1alpha1_pb2_grpc,
    dra_v1_pb2,
    dra_v1_pb2_grpc,
    dra_v1beta1_pb2,
    dra_v1beta1_pb2_grpc,
    pluginregistration_v1_pb2,
    pluginregistration_v1_pb2_grpc,
)

PLUGIN_TYPE: Final = "DRAPlugin"
DRA_V1: Final = "v1.DRAPlugin"
DRA_V1BETA1: Final = "v1beta1.DRAPlugin"
HEALTH_V1ALPHA1: Final = "v1alpha1.DRAResourceHealth"
# kubelet uses the first DRAPlugin entry that it supports, so the newest comes first.
SUPPORTED_VERSIONS: Final = (DRA_V1, DRA_V1BETA1, HEALTH_V1ALPHA1)

__all__ = [
    "DRA_V1",
    "DRA_V1BETA1",
    "HEALTH_V1ALPHA1",
    "PLUGIN_TYPE",
    "SUPPORTED_VERSIONS",
    "dra_health_v1alpha1_pb2",
    "dra_health_v1alpha1_pb2_grpc",
    "dra_v1_pb2",
    "dra_v1_pb2_grpc",
    "dra_v1beta1_pb2",
    "dra_v1beta1_pb2_grpc",
    "pluginregistration_v1_pb2",
    "pluginregistration_v1_pb2_grpc",
]
