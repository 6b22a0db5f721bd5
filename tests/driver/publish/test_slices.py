"""Slices: the names and values that claims select by, the API's limits, an order that repeats."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from fairlead.driver.backend import device_names, geometry, profiles
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.backend.types import Inventory
from fairlead.driver.publish import slices
from fairlead.driver.publish.slices import ALL_KEPT, Layout
from fairlead.kube.quantity import Quantity
from fairlead.kube.resource import Device, DeviceTaint
from tests.support.driver.slices import check_limits


def inventory(name: str, node: str = "n1") -> Inventory:
    return SimulatedBackend(profiles.load(name), node=node).inventory()


def attributes(device: Device) -> dict[str, object]:
    return {name: attribute.value for name, attribute in device.attributes.items()}


def all_partitionable(of: Inventory) -> frozenset[str]:
    return frozenset(gpu.uuid for gpu in of.gpus)


class TestAttributes:
    def test_a_whole_h100(self) -> None:
        device = slices.build(inventory("hgx-h100")).devices[1]
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
        assert {name: capacity.value for name, capacity in device.capacity.items()} == {
            "memory": "81559Mi",
            "multiprocessors": "132",
        }

    def test_a_static_mig_device(self) -> None:
        device = next(d for d in slices.build(inventory("dgx-a100")).devices if d.name == "gpu-7-mig-3g40gb-9-0")
        found = attributes(device)
        assert (found["type"], found["profile"], found["parentIndex"]) == ("mig", "3g.40gb", 7)
        assert str(found["uuid"]).startswith("MIG-")
        assert str(found["parentUUID"]).startswith("GPU-")
        assert not any(name.startswith("nvlink") for name in found)
        capacity = {name: value.value for name, value in device.capacity.items()}
        assert capacity == {
            "multiprocessors": "42",
            "copyEngines": "3",
            "decoders": "2",
            "encoders": "0",
            "jpegEngines": "0",
            "ofaEngines": "0",
            "memory": "40192Mi",
            "memorySlice0": "1",
            "memorySlice1": "1",
            "memorySlice2": "1",
            "memorySlice3": "1",
        }

    def test_values_that_are_zero_are_written_all_the_same(self) -> None:
        device = next(d for d in slices.build(inventory("dgx-a100")).devices if d.name == "gpu-7-mig-3g40gb-9-0")
        assert msgspec.to_builtins(device)["capacity"]["encoders"] == {"value": "0"}

    def test_a_gpu_without_nvlink_names_no_domain(self) -> None:
        for device in slices.build(inventory("l40s")).devices:
            assert not any(name.startswith("nvlink") for name in device.attributes)

    def test_a_tray_of_a_rack_names_its_clique(self) -> None:
        device = slices.build(inventory("gb200-nvl72")).devices[0]
        assert attributes(device)["nvlinkClique"] == "00000001-0000-0000-0000-000000000001.2"

    def test_every_device_uuid_differs_between_nodes(self) -> None:
        uuids = [
            str(attributes(device)["uuid"])
            for node in ("n1", "n2")
            for device in slices.build(inventory("dgx-a100", node)).devices
        ]
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
    def test_a_value_that_the_api_would_refuse_is_left_out(self, change: dict[str, object], missing: str) -> None:
        before = inventory("hgx-h100")
        changed = dataclasses.replace(before, gpus=(dataclasses.replace(before.gpus[0], **change),))  # type: ignore[arg-type]
        built = slices.build(changed)
        assert missing not in built.devices[0].attributes
        assert bool(built.warnings) == (missing != "resource.kubernetes.io/numaNode")


class TestOrderAndChunks:
    def test_gpu_2_comes_before_gpu_10(self) -> None:
        one = inventory("hgx-h100").gpus[0]
        many = tuple(dataclasses.replace(one, minor=minor, uuid=f"GPU-{minor}") for minor in (10, 2, 0, 15))
        built = slices.build(Inventory(gpus=many))
        assert [device.name for device in built.devices] == ["gpu-0", "gpu-2", "gpu-10", "gpu-15"]

    def test_no_devices_is_one_empty_slice(self) -> None:
        assert slices.build(Inventory()).slices == (slices.SliceBody(),)

    def test_mig_mode_without_devices_publishes_nothing_and_says_so(self) -> None:
        one = dataclasses.replace(inventory("dgx-a100").gpus[6], mig_devices=())
        built = slices.build(Inventory(gpus=(one,)))
        assert built.devices == ()
        assert "gpu-6: MIG mode is on but no MIG device exists" in built.warnings[0]

    @pytest.mark.parametrize("gpus", [1, 8, 9, 16])
    @pytest.mark.parametrize("name", ["dgx-a100", "hgx-h100", "hgx-b200", "a30"])
    @pytest.mark.parametrize("layout", ["split", "combined"])
    def test_all_placements_of_any_number_of_gpus_keep_the_apis_limits(
        self, gpus: int, name: str, layout: Layout
    ) -> None:
        one = dataclasses.replace(inventory(name).gpus[0], mig_mutable=True)
        many = tuple(dataclasses.replace(one, minor=minor, uuid=f"GPU-{minor}") for minor in range(gpus))
        whole = Inventory(driver_version="580.105.08", gpus=many)
        taint = DeviceTaint(key="gpu.fairlead.dev/xid", value="79", effect="NoExecute")
        built = slices.build(
            whole,
            slices.Facts(
                partitionable=all_partitionable(whole),
                taints={gpu.uuid: (taint,) for gpu in many},
                kept=dataclasses.replace(ALL_KEPT, counters=layout),
            ),
        )
        check_limits(built, layout)
        assert all(device.taints == (taint,) for device in built.devices)
        placements = sum(len(p.starts) for p in one.mig_profiles)
        assert len(built.devices) == gpus * (1 + placements)

    def test_the_same_inventory_gives_the_same_slices_in_any_order(self) -> None:
        whole = inventory("dgx-a100")
        backwards = dataclasses.replace(whole, gpus=whole.gpus[::-1])
        assert slices.build(whole) == slices.build(backwards)


class TestPartitions:
    def test_ampere_out_of_mig_mode_offers_only_the_gpu_and_in_it_only_partitions(self) -> None:
        whole = inventory("dgx-a100")
        offered = slices.build(whole, slices.Facts(partitionable=all_partitionable(whole))).devices
        assert [d.name for d in offered if d.name.startswith("gpu-0")] == ["gpu-0"]
        assert "gpu-6" not in [d.name for d in offered]
        assert sum(d.name.startswith("gpu-6-mig-") for d in offered) == 7 + 7 + 4 + 3 + 2 + 1 + 1

    def test_a_partition_has_no_uuid_and_no_slice_capacity(self) -> None:
        whole = inventory("hgx-h100")
        device = next(
            d
            for d in slices.build(whole, slices.Facts(partitionable=all_partitionable(whole))).devices
            if "-mig-" in d.name
        )
        assert "uuid" not in device.attributes
        assert not any(name.startswith("memorySlice") for name in device.capacity)

    def test_a_gpu_without_mig_has_no_counters(self) -> None:
        whole = inventory("l40s")
        assert slices.build(whole, slices.Facts(partitionable=all_partitionable(whole))) == slices.build(whole)

    def test_a_partitionable_gpu_has_all_its_memory_and_not_its_largest_profiles(self) -> None:
        whole = inventory("hgx-h100")
        [uncut] = [d for d in slices.build(whole).devices if d.name == "gpu-0"]
        [cut] = [
            d
            for d in slices.build(whole, slices.Facts(partitionable=all_partitionable(whole))).devices
            if d.name == "gpu-0"
        ]
        assert cut.capacity == uncut.capacity

    def test_the_whole_gpu_consumes_every_counter(self) -> None:
        whole = inventory("hgx-h100")
        built = slices.build(whole, slices.Facts(partitionable=all_partitionable(whole)))
        [counter_set] = [s for body in built.slices for s in body.shared_counters if s.name == "gpu-0-counter-set"]
        [device] = [d for d in built.devices if d.name == "gpu-0"]
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
        whole = Inventory(gpus=(one,))
        built = slices.build(whole, slices.Facts(partitionable=frozenset({one.uuid})))
        total = {name: int_of(counter.value) for name, counter in built.slices[0].shared_counters[0].counters.items()}
        by_name = {device.name: device for device in built.devices}
        placements = [(p, start) for p in one.mig_profiles for start in p.starts]
        for first in placements:
            for second in placements:
                pair = [by_name[device_names.mig_name(0, *placed)] for placed in (first, second)]
                used = {
                    name: sum(
                        int_of(d.consumes_counters[0].counters[name].value)
                        for d in pair
                        if name in d.consumes_counters[0].counters
                    )
                    for name in total
                }
                fits = all(used[name] <= total[name] for name in total)
                overlap = not set(geometry.covered(*first)).isdisjoint(geometry.covered(*second))
                assert not (fits and overlap), (first[0].name, first[1], second[0].name, second[1])


def int_of(value: str | int) -> int:
    return int(Quantity.of(value))


class TestShared:
    def test_a_shared_gpu_offers_its_memory_in_parts(self) -> None:
        device = slices.build(inventory("hgx-h100"), slices.Facts(offer=slices.Offer(shared=True))).devices[0]
        assert device.allow_multiple_allocations is True
        assert msgspec.to_builtins(device.capacity["memory"]) == {
            "value": "81559Mi",
            "requestPolicy": {"default": "81559Mi", "validRange": {"min": "1Mi", "max": "81559Mi", "step": "1Mi"}},
        }

    def test_claims_on_a_shared_gpu_consume_no_multiprocessors_unless_they_request_some(self) -> None:
        device = slices.build(inventory("hgx-h100"), slices.Facts(offer=slices.Offer(shared=True))).devices[0]
        assert msgspec.to_builtins(device.capacity["multiprocessors"]) == {
            "value": "132",
            "requestPolicy": {"default": "0", "validRange": {"min": "0", "max": "132"}},
        }

    def test_memory_that_is_no_whole_number_of_steps_is_rounded_down(self) -> None:
        before = inventory("hgx-h100")
        odd = dataclasses.replace(before.gpus[0], memory_bytes=85_520_809_984 + 4096)
        device = slices.build(
            dataclasses.replace(before, gpus=(odd,)), slices.Facts(offer=slices.Offer(shared=True))
        ).devices[0]
        assert device.capacity["memory"].value == "81559Mi"

    def test_a_claim_that_does_not_say_how_much_gets_one_of_the_replicas(self) -> None:
        device = slices.build(inventory("hgx-h100"), slices.Facts(offer=slices.Offer(shared=True, replicas=4))).devices[
            0
        ]
        assert msgspec.to_builtins(device.capacity["memory"]) == {
            "value": "81559Mi",
            "requestPolicy": {"default": "20389Mi", "validRange": {"min": "1Mi", "max": "81559Mi", "step": "1Mi"}},
        }
        cut = slices.build(inventory("dgx-a100"), slices.Facts(offer=slices.Offer(shared_mig=True, replicas=2))).devices
        shared = next(device for device in cut if device.name == "gpu-7-mig-3g40gb-9-0")
        memory = msgspec.to_builtins(shared.capacity["memory"])
        assert (memory["value"], memory["requestPolicy"]["default"]) == ("40192Mi", "20096Mi")

    def test_mig_devices_and_partitions_are_not_shared(self) -> None:
        cut = slices.build(inventory("dgx-a100"), slices.Facts(offer=slices.Offer(shared=True))).devices
        assert {device.name for device in cut if device.allow_multiple_allocations} == {f"gpu-{m}" for m in range(6)}
        whole = inventory("hgx-h100")
        offered = slices.build(
            whole, slices.Facts(partitionable=all_partitionable(whole), offer=slices.Offer(shared=True))
        ).devices
        assert not any(device.allow_multiple_allocations for device in offered)

    def test_a_shared_mig_device_offers_its_memory_in_parts_and_its_engines_to_all(self) -> None:
        cut = slices.build(inventory("dgx-a100"), slices.Facts(offer=slices.Offer(shared_mig=True))).devices
        shared = {device.name: device for device in cut if device.allow_multiple_allocations}
        assert {name.split("-mig-")[0] for name in shared} == {"gpu-6", "gpu-7"}
        capacity = msgspec.to_builtins(shared["gpu-7-mig-3g40gb-9-0"].capacity)
        assert capacity["memory"]["requestPolicy"] == {
            "default": capacity["memory"]["value"],
            "validRange": {"min": "1Mi", "max": capacity["memory"]["value"], "step": "1Mi"},
        }
        others = {name: entry for name, entry in capacity.items() if name != "memory" and entry["value"] != "0"}
        assert {"multiprocessors", "copyEngines", "memorySlice0", "memorySlice3"} <= set(others)
        assert {entry["requestPolicy"]["default"] for entry in others.values()} == {"0"}

    def test_mig_devices_that_are_made_on_demand_are_not_shared(self) -> None:
        whole = inventory("hgx-h100")
        offered = slices.build(
            whole, slices.Facts(partitionable=all_partitionable(whole), offer=slices.Offer(shared_mig=True))
        ).devices
        assert not any(device.allow_multiple_allocations for device in offered)

    def test_without_memory_there_is_nothing_to_share(self) -> None:
        before = inventory("hgx-h100")
        blind = dataclasses.replace(before.gpus[0], memory_bytes=None)
        device = slices.build(
            dataclasses.replace(before, gpus=(blind,)), slices.Facts(offer=slices.Offer(shared=True))
        ).devices[0]
        assert device.allow_multiple_allocations is None
