"""The messages are kubelet's: packages, services, field numbers. A wrong number would be silence, not an error."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.driver.kubelet import protocol

DRA: dict[str, dict[str, int]] = {
    "Claim": {"namespace": 1, "uid": 2, "name": 3},
    "NodePrepareResourcesRequest": {"claims": 1},
    "NodePrepareResourcesResponse": {"claims": 1},
    "NodePrepareResourceResponse": {"devices": 1, "error": 2},
    "NodeUnprepareResourcesRequest": {"claims": 1},
    "NodeUnprepareResourcesResponse": {"claims": 1},
    "NodeUnprepareResourceResponse": {"error": 1},
}
EXPECTED: dict[str, tuple[Any, str, dict[str, dict[str, int]]]] = {
    "dra-v1": (
        protocol.dra_v1_pb2,
        "k8s.io.kubelet.pkg.apis.dra.v1",
        DRA | {"Device": {"request_names": 1, "pool_name": 2, "device_name": 3, "cdi_device_ids": 4, "share_id": 5}},
    ),
    "registration": (
        protocol.pluginregistration_v1_pb2,
        "pluginregistration",
        {
            "PluginInfo": {"type": 1, "name": 2, "endpoint": 3, "supported_versions": 4},
            "RegistrationStatus": {"plugin_registered": 1, "error": 2},
            "RegistrationStatusResponse": {},
            "InfoRequest": {},
        },
    ),
    "health": (
        protocol.dra_health_v1alpha1_pb2,
        "v1alpha1",
        {
            "NodeWatchResourcesRequest": {},
            "NodeWatchResourcesResponse": {"devices": 1},
            "DeviceIdentifier": {"pool_name": 1, "device_name": 2},
            "DeviceHealth": {
                "device": 1,
                "health": 2,
                "last_updated_time": 3,
                "health_check_timeout_seconds": 4,
                "message": 5,
            },
        },
    ),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_messages_have_kubelets_names_and_numbers(name: str) -> None:
    module, package, messages = EXPECTED[name]
    assert module.DESCRIPTOR.package == package
    found = {
        message: {field.name: field.number for field in descriptor.fields}
        for message, descriptor in module.DESCRIPTOR.message_types_by_name.items()
    }
    assert found == messages


def test_services_have_kubelets_methods() -> None:
    methods = {
        f"/{service.name}/{method.name}"
        for service in (*protocol.DRA.values(), protocol.HEALTH, protocol.REGISTRATION)
        for method in service.described.methods
    }
    assert methods == {
        "/pluginregistration.Registration/GetInfo",
        "/pluginregistration.Registration/NotifyRegistrationStatus",
        "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
        "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources",
        "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources",
        "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodeUnprepareResources",
        "/v1alpha1.DRAResourceHealth/NodeWatchResources",
    }


def test_a_claim_on_the_wire_is_what_kubelet_sends() -> None:
    wire = b"\x0a\x02ml\x12\x02u1\x1a\x05train"
    claim = protocol.dra_v1_pb2.Claim.FromString(wire)
    assert (claim.namespace, claim.uid, claim.name) == ("ml", "u1", "train")
    assert claim.SerializeToString(deterministic=True) == wire


def test_health_values_are_kubelets() -> None:
    pb2 = protocol.dra_health_v1alpha1_pb2
    assert (pb2.UNKNOWN, pb2.HEALTHY, pb2.UNHEALTHY) == (0, 1, 2)


def test_the_newest_version_is_offered_first() -> None:
    assert protocol.SUPPORTED_VERSIONS == ("v1.DRAPlugin", "v1beta1.DRAPlugin", "v1alpha1.DRAResourceHealth")
