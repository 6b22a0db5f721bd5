"""Opaque device configurations are decoded strictly for users and tolerantly for checkpoints."""

from typing import Any

import pytest

from fairlead.api.base import ManifestError
from fairlead.api.config import GpuConfig, MigDeviceConfig, decode

V = "gpu.fairlead.dev/v1alpha1"

REFUSED: list[tuple[Any, str]] = [
    ([], "list is no configuration"),
    ({}, "apiVersion: None is unknown: write gpu.fairlead.dev/v1alpha1"),
    ({"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}, "write gpu.fairlead.dev/v1alpha1"),
    ({"apiVersion": V, "kind": "VfioDeviceConfig"}, "kind: 'VfioDeviceConfig' is none of GpuConfig, MigDeviceConfig"),
    ({"apiVersion": V, "kind": ["GpuConfig"]}, "kind: ['GpuConfig'] is none of"),
    ({"apiVersion": V, "kind": "GpuConfig", "sharing": {}}, "sharing.strategy: is required"),
    ({"apiVersion": V, "kind": "GpuConfig", "shared": {}}, "shared: unknown field; did you mean sharing?"),
    (
        {"apiVersion": V, "kind": "GpuConfig", "sharing": {"strategy": "MPS", "timeSlicingConfig": {}}},
        "sharing: timeSlicingConfig: means nothing with strategy MPS",
    ),
    (
        {"apiVersion": V, "kind": "GpuConfig", "sharing": {"strategy": "TimeSlicing", "mpsConfig": {}}},
        "sharing: mpsConfig: means nothing with strategy TimeSlicing",
    ),
    (
        {
            "apiVersion": V,
            "kind": "MigDeviceConfig",
            "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}},
        },
        "sharing: timeSlicingConfig: interval: 'Long' cannot be set on a MIG device",
    ),
    (
        {
            "apiVersion": V,
            "kind": "GpuConfig",
            "sharing": {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 101}},
        },
        "sharing.mpsConfig.defaultActiveThreadPercentage: input should be less than or equal to 100, not 101",
    ),
    (
        {
            "apiVersion": V,
            "kind": "GpuConfig",
            "sharing": {"strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": "512Ki"}},
        },
        "sharing.mpsConfig.defaultPinnedDeviceMemoryLimit: '512Ki' is less than MPS counts in: write at least 1Mi",
    ),
    (
        {
            "apiVersion": V,
            "kind": "GpuConfig",
            "sharing": {"strategy": "MPS", "mpsConfig": {"defaultPerDevicePinnedMemoryLimit": {"first": "1Gi"}}},
        },
        "'first' names no device",
    ),
]


@pytest.mark.parametrize(("parameters", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_a_mistake_is_refused_with_the_claim_and_the_path(parameters: Any, message: str) -> None:
    with pytest.raises(ManifestError) as refused:
        decode(parameters, subject="ResourceClaim ml/train: spec.devices.config[0].opaque.parameters")
    assert str(refused.value).startswith("ResourceClaim ml/train: spec.devices.config[0].opaque.parameters: ")
    assert message in str(refused.value)


def test_nvidias_fields_are_ours() -> None:
    config = decode(
        {
            "apiVersion": V,
            "kind": "GpuConfig",
            "sharing": {
                "strategy": "MPS",
                "mpsConfig": {
                    "defaultActiveThreadPercentage": 50,
                    "defaultPinnedDeviceMemoryLimit": "10Gi",
                    "defaultPerDevicePinnedMemoryLimit": {"0": "4Gi", "GPU-1": "8Gi"},
                    "multiUser": True,
                },
            },
        },
        subject="x",
    )
    assert isinstance(config, GpuConfig)
    assert config.sharing is not None
    assert config.sharing.mps_config is not None
    assert config.sharing.mps_config.default_pinned_device_memory_limit == "10Gi"


def test_a_checkpoint_of_a_newer_version_is_read() -> None:
    parameters = {"apiVersion": V, "kind": "MigDeviceConfig", "partition": "new"}
    with pytest.raises(ManifestError):
        decode(parameters, subject="x")
    assert isinstance(decode(parameters, subject="x", strict=False), MigDeviceConfig)


@pytest.mark.parametrize("limit", ["1Mi", 1048576, "1048576", "2M", "0.5Gi", "1.1e6", "1E", "1048576000m", "1Ei"])
def test_a_memory_limit_of_a_mebibyte_or_more_is_accepted_in_every_notation(limit: str | int) -> None:
    sharing = {"strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": limit}}
    decode({"apiVersion": V, "kind": "GpuConfig", "sharing": sharing}, subject="c")


@pytest.mark.parametrize("limit", ["1e99999999999999999999", "9e999999999999999999"])
def test_an_absurd_one_is_refused_too(limit: str) -> None:
    sharing = {"strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": limit}}
    with pytest.raises(ManifestError, match="is no size of a memory"):
        decode({"apiVersion": V, "kind": "GpuConfig", "sharing": sharing}, subject="c")


@pytest.mark.parametrize("limit", [0, "1048575", "1M", "1023Ki", "1e6", "1048575999m"])
def test_a_smaller_one_is_not(limit: str | int) -> None:
    sharing = {"strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": limit}}
    with pytest.raises(ManifestError, match="write at least 1Mi"):
        decode({"apiVersion": V, "kind": "GpuConfig", "sharing": sharing}, subject="c")
