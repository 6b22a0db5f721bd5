"""Flavor.spec.autoscaling: what is refused, and what each error says to do; what stands where nothing is written."""

from typing import Any

import pytest

from fairlead.api.base import ManifestError
from fairlead.api.flavor import Flavor


def flavor(measure: dict[str, Any] | None = None, **autoscaling: Any) -> dict[str, Any]:
    return {
        "apiVersion": "fairlead.dev/v1alpha1",
        "kind": "Flavor",
        "metadata": {"name": "h100"},
        "spec": {"deviceSelector": "true", **(measure or {}), "autoscaling": autoscaling},
    }


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (flavor(mode="Visble"), "Flavor h100: spec.autoscaling.mode: 'Visble' is none of 'Off', 'Visible'"),
        (flavor(mod="Visible"), "spec.autoscaling.mod: unknown field; did you mean mode?"),
        (flavor(mode="Placeholder"), "spec.autoscaling: extendedResource: is required with mode Placeholder"),
        (flavor(mode="ProvisioningRequest"), "write the resource that their node templates have, such as nvidia.com/gpu"),
        (flavor(mode="Placeholder", extendedResource="gpu"), "'gpu' is no extended resource: write domain/name"),
        (flavor(mode="Placeholder", extendedResource="kubernetes.io/gpu"), "is a name of Kubernetes' own"),
        (flavor(mode="Visible", extendedResource="nvidia.com/gpu"), "extendedResource: means nothing with mode Visible"),
        (flavor(mode="Visible", nodeSelector={"a": "b"}), "nodeSelector: means nothing with mode Visible"),
        (flavor(mode="Visible", provisioningClass="a.b"), "provisioningClass: means nothing with mode Visible: remove it"),
        (flavor(mode="Visible", max=-1), "spec.autoscaling.max: -1 is negative"),
        (flavor(mode="Visible", patience="10"), "spec.autoscaling.patience: '10' is no duration"),
        (flavor(mode="Visible", patience="59s"), "patience: 59s is too short for any autoscaler: write at least 1m"),
        (flavor(mode="Visible", deviceClasses=["A"]), "spec.autoscaling.deviceClasses[0]: 'A' is no object name"),
        (
            flavor({"measure": "Capacity", "capacityName": "memory"}, mode="Visible", deviceClasses=["gpu"]),
            "autoscaling.deviceClasses: means nothing with measure Capacity",
        ),
    ],
)  # fmt: skip
def test_bad_values_are_refused_with_the_next_step(raw: dict[str, Any], said: str):
    with pytest.raises(ManifestError) as refused:
        Flavor.read(raw)
    assert said in str(refused.value)
