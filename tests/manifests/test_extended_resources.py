"""DeviceClasses that stand for the device plugin's resources take the devices that the plugin would offer under that name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead import cel
from fairlead.api.mig_profiles import MigStrategy
from fairlead.cel.device import DeviceView
from fairlead.driver.backend import profiles
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.publish import slices
from fairlead.kube.client import Client
from fairlead.sandbox.apiserver.server import ApiServer
from fairlead.sandbox.install.apply import Applier


def values(strategy: str = "mixed", *mig: str, fence: bool = False) -> dict[str, Any]:
    return {
        "policies": {"allocationFence": fence},
        "driver": {"nodeLabels": {"migStrategy": strategy}},
        "deviceClasses": {"extendedResources": {"enabled": True, "migProfiles": list(mig)}},
    }


def classes(objects: list[dict[str, Any]]) -> dict[str, str]:
    """The selector of each extended resource."""
    return {
        each["spec"]["extendedResourceName"]: each["spec"]["selectors"][0]["cel"]["expression"]
        for each in objects
        if each["kind"] == "DeviceClass" and "extendedResourceName" in each["spec"]
    }


def selected(expression: str, strategy: MigStrategy) -> list[str]:
    inventory = SimulatedBackend(profiles.load("dgx-a100"), node="n1").inventory()
    selector = cel.admit_selector(expression)
    built = slices.build(inventory, slices.Facts(offer=slices.Offer(mig_strategy=strategy)))
    return [device.name for device in built.devices if selector.matches(DeviceView.of("gpu.fairlead.dev", device))]


def test_mixed_has_a_class_for_gpus_and_one_for_each_profile(template: Callable[..., Any]) -> None:
    found = classes(template(values=values("mixed", "1g.10gb", "1g.10gb+me")))
    assert set(found) == {"nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-1g.10gb.me"}
    assert selected(found["nvidia.com/gpu"], "mixed") == [f"gpu-{minor}" for minor in range(6)]
    assert selected(found["nvidia.com/mig-1g.10gb"], "mixed") == [f"gpu-6-mig-1g10gb-19-{start}" for start in range(7)]
    assert selected(found["nvidia.com/mig-1g.10gb.me"], "mixed") == []
    assert selected(found["nvidia.com/gpu"], "none") == []


def test_with_single_the_class_of_gpus_takes_mig_devices_of_nodes_that_are_cut_alike(
    template: Callable[..., Any], refusal: Callable[..., str]
) -> None:
    """So does a limit of `nvidia.com/gpu`, which the webhook turns into a claim of that class."""
    given = {"driver": {"nodeLabels": {"migStrategy": "single"}}, "deviceClasses": {"singleMigAsGpu": True}}
    (found,) = (each for each in template(values=given) if each["metadata"]["name"] == "gpu.fairlead.dev")
    selector = cel.admit_selector(found["spec"]["selectors"][0]["cel"]["expression"])

    def taken(backend: SimulatedBackend) -> int:
        built = slices.build(backend.inventory(), slices.Facts(offer=slices.Offer(mig_strategy="single")))
        return sum(selector.matches(DeviceView.of("gpu.fairlead.dev", device)) for device in built.devices)

    backend = SimulatedBackend(profiles.load("hgx-h100"), node="n1")
    assert taken(backend) == 8
    for gpu in backend.inventory().gpus:
        backend.create_mig(gpu.uuid, 9, 0)
        backend.create_mig(gpu.uuid, 9, 4)
    assert taken(backend) == 16
    assert taken(SimulatedBackend(profiles.load("dgx-a100"), node="n1")) == 6  # cut in part: whole GPUs only
    assert "with driver.nodeLabels.migStrategy single only" in refusal({"deviceClasses": {"singleMigAsGpu": True}})


async def test_an_apiserver_takes_them(template: Callable[..., Any], tmp_path: Path) -> None:
    objects = template(values=values("single", "1g.10gb"))
    async with ApiServer(workdir=tmp_path) as server:
        (tmp_path / "admin").write_text(server.kubeconfig())
        async with Client.connect(tmp_path / "admin") as client:
            await Applier(client).apply([each for each in objects if each["kind"] == "DeviceClass"])


def test_by_default_no_class_stands_for_an_extended_resource(template: Callable[..., Any]) -> None:
    assert classes(template()) == {}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (values(fence=True), "policies.allocationFence keeps it off these devices"),
        (values("none"), "with driver.nodeLabels.migStrategy single or mixed only"),
    ],
)
def test_classes_that_could_never_be_used_are_refused(
    refusal: Callable[..., str], given: dict[str, Any], words: str
) -> None:
    assert words in refusal(given)


@pytest.mark.parametrize(("strategy", "enabled"), [("none", True), ("single", False), ("mixed", True)])
def test_the_driver_is_told_the_strategy_with_and_without_labels(
    template: Callable[..., Any], strategy: str, enabled: bool
) -> None:
    objects = template(values={"driver": {"nodeLabels": {"migStrategy": strategy, "enabled": enabled}}})
    (driver,) = (each for each in objects if each["kind"] == "DaemonSet")
    assert f"--mig-strategy={strategy}" in driver["spec"]["template"]["spec"]["containers"][0]["args"]
