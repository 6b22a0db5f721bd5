"""The attribute by which DeviceClasses stand for extended resources: the device plugin's strategies for MIG devices."""

from __future__ import annotations

import dataclasses
from collections import Counter

from fairlead.api.mig_profiles import MigStrategy
from fairlead.driver.backend import profiles
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.backend.types import Inventory
from fairlead.driver.publish import slices
from fairlead.driver.publish.node_labels import labels


def inventory(profile: str) -> Inventory:
    return SimulatedBackend(profiles.load(profile), node="n1").inventory()


def names(found: Inventory, strategy: MigStrategy, partitionable: frozenset[str] = frozenset()) -> Counter[str | None]:
    built = slices.build(found, slices.Facts(partitionable=partitionable, offer=slices.Offer(mig_strategy=strategy)))
    resources = [device.attributes.get("resourceName") for device in built.devices]
    return Counter(None if resource is None else resource.string for resource in resources)


def all_cut_alike() -> Inventory:
    backend = SimulatedBackend(profiles.load("hgx-h100"), node="n1")
    for gpu in backend.inventory().gpus:
        for start in range(7):
            backend.create_mig(gpu.uuid, 19, start)
    return backend.inventory()


def test_without_a_strategy_devices_have_no_names() -> None:
    assert names(inventory("dgx-a100"), "none") == {None: 16}


def test_mixed_names_each_profile_and_whole_gpus() -> None:
    assert names(inventory("dgx-a100"), "mixed") == {
        "nvidia.com/gpu": 6,
        "nvidia.com/mig-1g.10gb": 7,
        "nvidia.com/mig-3g.40gb": 1,
        "nvidia.com/mig-2g.20gb": 1,
        "nvidia.com/mig-1g.20gb": 1,
    }


def test_single_calls_mig_devices_gpus_where_all_are_of_one_profile() -> None:
    assert names(all_cut_alike(), "single") == {"nvidia.com/gpu": 56}
    assert names(inventory("hgx-h100"), "single") == {"nvidia.com/gpu": 8}


def test_single_names_nothing_on_a_node_that_is_cut_otherwise_as_the_labels_count_none() -> None:
    found = inventory("dgx-a100")
    assert names(found, "single") == {None: 16}
    assert labels(found, "single")["nvidia.com/gpu.count"] == "0"
    assert labels(all_cut_alike(), "single")["nvidia.com/gpu.count"] == "56"


def test_gpus_that_are_cut_on_demand_count_as_whole() -> None:
    found = inventory("hgx-h100")
    one = dataclasses.replace(found, gpus=found.gpus[:1])
    everything = frozenset({one.gpus[0].uuid})
    assert names(one, "single", everything)["nvidia.com/gpu"] == 1
    mixed = names(one, "mixed", everything)
    assert mixed["nvidia.com/gpu"] == 1
    assert mixed["nvidia.com/mig-1g.10gb"] == 7
