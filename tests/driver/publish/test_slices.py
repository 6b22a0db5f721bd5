"""Slices: the names and values that claims select by, the API's limits, an order that repeats."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import msgspec
import pytest

from fairlead.api import withheld
from fairlead.api.mig_profiles import MigStrategy
from fairlead.driver.backend import device_names, geometry, profiles
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.backend.types import Gpu, Inventory
from fairlead.driver.publish import slices
from fairlead.driver.publish.node_labels import labels
from fairlead.driver.publish.slices import ALL_KEPT, Facts, Layout, Offer, PoolSlices
from fairlead.kube.quantity import Quantity
from fairlead.kube.resource import Device, DeviceTaint
from tests.support.driver.slices import check_limits

STATIC = "gpu-7-mig-3g40gb-9-0"


def inventory(name: str, node: str = "n1") -> Inventory:
    return SimulatedBackend(profiles.load(name), node=node).inventory()


def built(of: str | Inventory, *, on_demand: bool = False, **facts: Any) -> PoolSlices:
    """`on_demand`: MIG devices of all GPUs are created for claims."""
    whole = inventory(of) if isinstance(of, str) else of
    partitionable = frozenset(gpu.uuid for gpu in whole.gpus) if on_demand else frozenset()
    return slices.build(whole, Facts(partitionable=partitionable, **facts))


def named(found: PoolSlices, name: str) -> Device:
    return next(device for device in found.devices if device.name == name)


def attributes(device: Device) -> dict[str, object]:
    return {name: attribute.value for name, attribute in device.attributes.items()}


def capacities(device: Device) -> dict[str, str | int]:
    return {name: capacity.value for name, capacity in device.capacity.items()}


def copies(one: Gpu, *minors: int) -> tuple[Gpu, ...]:
    return tuple(dataclasses.replace(one, minor=minor, uuid=f"GPU-{minor}") for minor in minors)


class TestAttributes:
    def test_a_whole_h100(self) -> None:
        device = built("hgx-h100").devices[1]
        assert device.name == "gpu-1"
        assert attributes(device) | {"uuid": ""} == {
            "type": "gpu",
            "uuid": "",
            "productName": "NVIDIA H100 80GB HBM3",
            "brand": "Nvidia",
            "architecture": "Hopper",
            "cudaComputeCapability": "9.0.0",
            "driverVersion": "580.105.8",
            "cudaDriverVersion": "13.0.0",
            "addressingMode": "HMM",
            "resource.kubernetes.io/pciBusID": "0002:00:00.0",
            "resource.kubernetes.io/pcieRoot": "pci0002:00",
            "resource.kubernetes.io/numaNode": 0,
            "migCapable": True,
            "nvlinkLinks": 18,
            "nvlinkVersion": 4,
            "nvlinkPeers": "0xfd",
            "nvlinkDomain": 0,
            "rail": 1,
        }
        assert capacities(device) == {"memory": "81559Mi", "multiprocessors": "132"}

    def test_a_static_mig_device_with_its_zeros(self) -> None:
        device = named(built("dgx-a100"), STATIC)
        found = attributes(device)
        assert (found["type"], found["profile"], found["parentIndex"]) == ("mig", "3g.40gb", 7)
        assert (str(found["uuid"])[:4], str(found["parentUUID"])[:4]) == ("MIG-", "GPU-")
        assert not any(name.startswith("nvlink") for name in found)
        engines = {"copyEngines": "3", "decoders": "2", "encoders": "0", "jpegEngines": "0", "ofaEngines": "0"}
        memory = {"memory": "40192Mi"} | {f"memorySlice{at}": "1" for at in range(4)}
        assert capacities(device) == {"multiprocessors": "42"} | engines | memory
        assert msgspec.to_builtins(device)["capacity"]["encoders"] == {"value": "0"}

    def test_a_gpu_without_nvlink_names_no_domain_and_a_tray_of_a_rack_its_clique(self) -> None:
        assert not any(name.startswith("nvlink") for device in built("l40s").devices for name in device.attributes)
        clique = attributes(built("gb200-nvl72").devices[0])["nvlinkClique"]
        assert clique == "00000001-0000-0000-0000-000000000001.2"

    def test_every_device_uuid_differs_between_nodes(self) -> None:
        nodes = [built(inventory("dgx-a100", node)) for node in ("n1", "n2")]
        uuids = [attributes(device)["uuid"] for node in nodes for device in node.devices]
        assert len(uuids) == len(set(uuids))

    @pytest.mark.parametrize(
        ("change", "missing"),
        [
            ({"product_name": "x" * 65}, "productName"),
            ({"pci_bus_id": "00000000:07:00.0"}, "resource.kubernetes.io/pciBusID"),
            ({"cuda_compute_capability": "nine"}, "cudaComputeCapability"),
            ({"numa_node": -1}, "resource.kubernetes.io/numaNode"),
        ],
    )
    def test_a_value_that_the_api_would_refuse_is_left_out(self, change: dict[str, Any], missing: str) -> None:
        found = built(Inventory(gpus=(dataclasses.replace(inventory("hgx-h100").gpus[0], **change),)))
        assert missing not in found.devices[0].attributes
        assert bool(found.warnings) == (missing != "resource.kubernetes.io/numaNode")


class TestOrderAndChunks:
    def test_gpu_2_comes_before_gpu_10(self) -> None:
        found = built(Inventory(gpus=copies(inventory("hgx-h100").gpus[0], 10, 2, 0, 15)))
        assert [device.name for device in found.devices] == ["gpu-0", "gpu-2", "gpu-10", "gpu-15"]

    def test_no_devices_is_one_empty_slice(self) -> None:
        assert built(Inventory()).slices == (slices.SliceBody(),)

    def test_mig_mode_without_devices_publishes_nothing_and_says_so(self) -> None:
        found = built(Inventory(gpus=(dataclasses.replace(inventory("dgx-a100").gpus[6], mig_devices=()),)))
        assert found.devices == ()
        assert "gpu-6: MIG mode is on but no MIG device exists" in found.warnings[0]

    @pytest.mark.parametrize("gpus", [1, 9, 16])
    @pytest.mark.parametrize("name", ["dgx-a100", "hgx-h100", "hgx-b200", "a30"])
    @pytest.mark.parametrize("layout", ["split", "combined"])
    def test_all_placements_of_any_number_of_gpus_keep_the_apis_limits(
        self, gpus: int, name: str, layout: Layout
    ) -> None:
        one = dataclasses.replace(inventory(name).gpus[0], mig_mutable=True)
        many = copies(one, *range(gpus))
        taint = DeviceTaint(key="gpu.fairlead.dev/xid", value="79", effect="NoExecute")
        found = built(
            Inventory(driver_version="580.105.08", gpus=many),
            on_demand=True,
            taints={gpu.uuid: (taint,) for gpu in many},
            kept=dataclasses.replace(ALL_KEPT, counters=layout),
        )
        check_limits(found, layout)
        assert all(device.taints == (taint,) for device in found.devices)
        assert len(found.devices) == gpus * (1 + sum(len(p.starts) for p in one.mig_profiles))

    def test_the_same_inventory_gives_the_same_slices_in_any_order(self) -> None:
        whole = inventory("dgx-a100")
        assert built(whole) == built(dataclasses.replace(whole, gpus=whole.gpus[::-1]))


class TestPartitions:
    def test_ampere_out_of_mig_mode_offers_only_the_gpu_and_in_it_only_partitions(self) -> None:
        offered = [device.name for device in built("dgx-a100", on_demand=True).devices]
        assert [name for name in offered if name.startswith("gpu-0")] == ["gpu-0"]
        assert "gpu-6" not in offered
        assert sum(name.startswith("gpu-6-mig-") for name in offered) == 7 + 7 + 4 + 3 + 2 + 1 + 1

    def test_a_partition_has_no_uuid_and_no_slice_capacity(self) -> None:
        device = next(each for each in built("hgx-h100", on_demand=True).devices if "-mig-" in each.name)
        assert "uuid" not in device.attributes
        assert not any(name.startswith("memorySlice") for name in device.capacity)

    def test_a_gpu_without_mig_has_no_counters(self) -> None:
        assert built("l40s", on_demand=True) == built("l40s")

    def test_the_whole_gpu_has_all_its_memory_and_consumes_every_counter(self) -> None:
        found = built("hgx-h100", on_demand=True)
        [counter_set] = [s for body in found.slices for s in body.shared_counters if s.name == "gpu-0-counter-set"]
        device = named(found, "gpu-0")
        assert device.capacity == named(built("hgx-h100"), "gpu-0").capacity
        assert device.consumes_counters[0].counters == counter_set.counters
        assert {name: counter.value for name, counter in counter_set.counters.items()} == {
            "multiprocessors": "132",
            "copy-engines": "8",
            "decoders": "7",
            "encoders": "0",
            "jpeg-engines": "7",
            "ofa-engines": "1",
            "memory": "81152Mi",
        } | {f"memory-slice-{at}": "1" for at in range(8)}

    @pytest.mark.parametrize("name", ["hgx-h100", "dgx-a100", "a30", "hgx-h200"])
    def test_counters_refuse_every_pair_of_partitions_that_overlap(self, name: str) -> None:
        one = dataclasses.replace(inventory(name).gpus[0], mig_mutable=True)
        found = built(Inventory(gpus=(one,)), on_demand=True)

        def amounts(counters: Any) -> Counter[str]:
            return Counter({counter: int(Quantity.of(each.value)) for counter, each in counters.items()})

        total = amounts(found.slices[0].shared_counters[0].counters)
        used = {device.name: amounts(device.consumes_counters[0].counters) for device in found.devices}
        placements = [(p, start) for p in one.mig_profiles for start in p.starts]
        for first in placements:
            for second in placements:
                both = used[device_names.mig_name(0, *first)] + used[device_names.mig_name(0, *second)]
                overlap = not set(geometry.covered(*first)).isdisjoint(geometry.covered(*second))
                assert not (both <= total and overlap), (first[0].name, first[1], second[0].name, second[1])


class TestShared:
    @pytest.mark.parametrize(
        ("offer", "name", "value", "default"),
        [
            (Offer(shared=True), "gpu-0", "81559Mi", "81559Mi"),
            (Offer(shared=True, replicas=4), "gpu-0", "81559Mi", "20389Mi"),
            (Offer(shared_mig=True), STATIC, "40192Mi", "40192Mi"),
            (Offer(shared_mig=True, replicas=2), STATIC, "40192Mi", "20096Mi"),
        ],
        ids=["a GPU", "one of its replicas by default", "a MIG device", "one of its replicas"],
    )
    def test_a_shared_device_offers_its_memory_in_parts(
        self, offer: Offer, name: str, value: str, default: str
    ) -> None:
        device = named(built("hgx-h100" if offer.shared else "dgx-a100", offer=offer), name)
        assert device.allow_multiple_allocations is True
        assert msgspec.to_builtins(device.capacity["memory"]) == {
            "value": value,
            "requestPolicy": {"default": default, "validRange": {"min": "1Mi", "max": value, "step": "1Mi"}},
        }

    def test_claims_on_a_shared_gpu_consume_no_multiprocessors_unless_they_request_some(self) -> None:
        device = named(built("hgx-h100", offer=Offer(shared=True)), "gpu-0")
        assert msgspec.to_builtins(device.capacity["multiprocessors"]) == {
            "value": "132",
            "requestPolicy": {"default": "0", "validRange": {"min": "0", "max": "132"}},
        }

    def test_the_engines_of_a_shared_mig_device_are_for_all(self) -> None:
        capacity = msgspec.to_builtins(named(built("dgx-a100", offer=Offer(shared_mig=True)), STATIC).capacity)
        others = {name: entry for name, entry in capacity.items() if name != "memory" and entry["value"] != "0"}
        assert {"multiprocessors", "copyEngines", "memorySlice0", "memorySlice3"} <= set(others)
        assert {entry["requestPolicy"]["default"] for entry in others.values()} == {"0"}

    @pytest.mark.parametrize(("memory", "shown"), [(85_520_809_984 + 4096, "81559Mi"), (None, None)])
    def test_memory_is_rounded_down_to_whole_steps_and_without_it_nothing_is_shared(
        self, memory: int | None, shown: str | None
    ) -> None:
        gpu = dataclasses.replace(inventory("hgx-h100").gpus[0], memory_bytes=memory)
        device = built(Inventory(gpus=(gpu,)), offer=Offer(shared=True)).devices[0]
        assert (capacities(device).get("memory"), bool(device.allow_multiple_allocations)) == (shown, bool(shown))

    @pytest.mark.parametrize(
        ("profile", "on_demand", "offer", "gpus"),
        [
            ("dgx-a100", False, Offer(shared=True), range(6)),
            ("dgx-a100", False, Offer(shared_mig=True), (6, 7)),
            ("hgx-h100", True, Offer(shared=True), ()),
            ("hgx-h100", True, Offer(shared_mig=True), ()),
        ],
        ids=["GPUs", "MIG devices that an administrator made", "no GPUs cut on demand", "nor their partitions"],
    )
    def test_what_is_shared(self, profile: str, on_demand: bool, offer: Offer, gpus: range | tuple[int, ...]) -> None:
        found = built(profile, on_demand=on_demand, offer=offer).devices
        shared = {device.name.partition("-mig-")[0] for device in found if device.allow_multiple_allocations}
        assert shared == {f"gpu-{minor}" for minor in gpus}


class TestReleasing:
    """Devices of claims that are gone: what overlaps with them is tainted, and nothing else."""

    def tainted(self, found: PoolSlices) -> set[str]:
        return {each.name for each in found.devices if any(taint.key == withheld.RELEASING for taint in each.taints)}

    def test_of_a_gpu_cut_on_demand_only_what_overlaps(self) -> None:
        whole = inventory("hgx-h100")
        found = self.tainted(built(whole, on_demand=True, releasing={whole.gpus[0].uuid: frozenset({(4, 4)})}))
        assert "gpu-0" in found
        assert all(name.startswith("gpu-0") for name in found)
        assert {name.rpartition("-")[2] for name in found if "-1g10gb-" in name} == {"4", "5", "6"}
        assert all(not name.endswith("-9-0") for name in found)  # 3g.40gb at 0

    def test_the_whole_gpu_and_where_taints_are_not_kept_it_leaves_the_slices_with_its_reason(self) -> None:
        whole = inventory("hgx-h100")
        releasing = {whole.gpus[0].uuid: frozenset({None})}
        assert self.tainted(built(whole, releasing=releasing)) == {"gpu-0"}
        found = built(whole, releasing=releasing, kept=dataclasses.replace(ALL_KEPT, taints=False))
        assert {each.name for each in found.devices} == {f"gpu-{minor}" for minor in range(1, 8)}
        [said] = found.notes["gpu-0"]
        assert (said.key, said.effect) == (withheld.RELEASING, "NoSchedule")
        assert "containers that use it are being stopped" in said.reason


class TestResourceNames:
    """The attribute by which DeviceClasses stand for extended resources: the device plugin's strategies for MIG devices."""

    def names(self, of: str | Inventory, strategy: MigStrategy, *, on_demand: bool = False) -> Counter[object]:
        found = built(of, on_demand=on_demand, offer=Offer(mig_strategy=strategy))
        return Counter(attributes(device).get("resourceName") for device in found.devices)

    @pytest.mark.parametrize(
        ("profile", "strategy", "expected"),
        [
            ("dgx-a100", "none", {None: 16}),
            (
                "dgx-a100",
                "mixed",
                {
                    "nvidia.com/gpu": 6,
                    "nvidia.com/mig-1g.10gb": 7,
                    "nvidia.com/mig-3g.40gb": 1,
                    "nvidia.com/mig-2g.20gb": 1,
                    "nvidia.com/mig-1g.20gb": 1,
                },
            ),
            ("hgx-h100", "single", {"nvidia.com/gpu": 8}),
            ("dgx-a100", "single", {None: 16}),
        ],
        ids=["none", "each profile and whole GPUs", "whole GPUs", "nothing where GPUs are cut differently"],
    )
    def test_devices_are_named_by_the_strategy(
        self, profile: str, strategy: MigStrategy, expected: dict[object, int]
    ) -> None:
        assert self.names(profile, strategy) == expected

    def test_single_calls_mig_devices_gpus_where_all_are_of_one_profile_as_the_labels_count(self) -> None:
        backend = SimulatedBackend(profiles.load("hgx-h100"), node="n1")
        for gpu in backend.inventory().gpus:
            for start in range(7):
                backend.create_mig(gpu.uuid, 19, start)
        assert self.names(backend.inventory(), "single") == {"nvidia.com/gpu": 56}
        assert labels(backend.inventory(), "single")["nvidia.com/gpu.count"] == "56"
        assert labels(inventory("dgx-a100"), "single")["nvidia.com/gpu.count"] == "0"

    def test_gpus_that_are_cut_on_demand_count_as_whole(self) -> None:
        one = Inventory(gpus=inventory("hgx-h100").gpus[:1])
        assert self.names(one, "single", on_demand=True)["nvidia.com/gpu"] == 1
        mixed = self.names(one, "mixed", on_demand=True)
        assert (mixed["nvidia.com/gpu"], mixed["nvidia.com/mig-1g.10gb"]) == (1, 7)
