"""Slices: the names and values that claims select by, the API's limits, an order that repeats."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.driver.backend import device_names, geometry, profiles
from fairlead.driver.backend.islands import islands
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.backend.types import Gpu, Inventory, MigProfile, NvLink
from fairlead.driver.publish import slices
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
        self, gpus: int, name: str, layout: slices.Layout
    ) -> None:
        one = dataclasses.replace(inventory(name).gpus[0], mig_mutable=True)
        many = tuple(dataclasses.replace(one, minor=minor, uuid=f"GPU-{minor}") for minor in range(gpus))
        whole = Inventory(driver_version="580.105.08", gpus=many)
        taint = DeviceTaint(key="gpu.fairlead.dev/xid", value="79", effect="NoExecute")
        built = slices.build(
            whole,
            partitionable=all_partitionable(whole),
            taints={gpu.uuid: (taint,) for gpu in many},
            layout=layout,
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
        offered = slices.build(whole, partitionable=all_partitionable(whole)).devices
        assert [d.name for d in offered if d.name.startswith("gpu-0")] == ["gpu-0"]
        assert "gpu-6" not in [d.name for d in offered]
        assert sum(d.name.startswith("gpu-6-mig-") for d in offered) == 7 + 7 + 4 + 3 + 2 + 1 + 1

    def test_a_partition_has_no_uuid_and_no_slice_capacity(self) -> None:
        whole = inventory("hgx-h100")
        device = next(
            d for d in slices.build(whole, partitionable=all_partitionable(whole)).devices if "-mig-" in d.name
        )
        assert "uuid" not in device.attributes
        assert not any(name.startswith("memorySlice") for name in device.capacity)

    def test_a_gpu_without_mig_has_no_counters(self) -> None:
        whole = inventory("l40s")
        assert slices.build(whole, partitionable=all_partitionable(whole)) == slices.build(whole)

    def test_a_partitionable_gpu_has_all_its_memory_and_not_its_largest_profiles(self) -> None:
        whole = inventory("hgx-h100")
        [uncut] = [d for d in slices.build(whole).devices if d.name == "gpu-0"]
        [cut] = [d for d in slices.build(whole, partitionable=all_partitionable(whole)).devices if d.name == "gpu-0"]
        assert cut.capacity == uncut.capacity

    def test_the_whole_gpu_consumes_every_counter(self) -> None:
        whole = inventory("hgx-h100")
        built = slices.build(whole, partitionable=all_partitionable(whole))
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
        built = slices.build(whole, partitionable=frozenset({one.uuid}))
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
        device = slices.build(inventory("hgx-h100"), shared=True).devices[0]
        assert device.allow_multiple_allocations is True
        assert msgspec.to_builtins(device.capacity["memory"]) == {
            "value": "81559Mi",
            "requestPolicy": {"default": "81559Mi", "validRange": {"min": "1Mi", "max": "81559Mi", "step": "1Mi"}},
        }

    def test_claims_on_a_shared_gpu_consume_no_multiprocessors_unless_they_request_some(self) -> None:
        device = slices.build(inventory("hgx-h100"), shared=True).devices[0]
        assert msgspec.to_builtins(device.capacity["multiprocessors"]) == {
            "value": "132",
            "requestPolicy": {"default": "0", "validRange": {"min": "0", "max": "132"}},
        }

    def test_memory_that_is_no_whole_number_of_steps_is_rounded_down(self) -> None:
        before = inventory("hgx-h100")
        odd = dataclasses.replace(before.gpus[0], memory_bytes=85_520_809_984 + 4096)
        device = slices.build(dataclasses.replace(before, gpus=(odd,)), shared=True).devices[0]
        assert device.capacity["memory"].value == "81559Mi"

    def test_a_claim_that_does_not_say_how_much_gets_one_of_the_replicas(self) -> None:
        device = slices.build(inventory("hgx-h100"), shared=True, shared_replicas=4).devices[0]
        assert msgspec.to_builtins(device.capacity["memory"]) == {
            "value": "81559Mi",
            "requestPolicy": {"default": "20389Mi", "validRange": {"min": "1Mi", "max": "81559Mi", "step": "1Mi"}},
        }
        cut = slices.build(inventory("dgx-a100"), shared_mig=True, shared_replicas=2).devices
        shared = next(device for device in cut if device.name == "gpu-7-mig-3g40gb-9-0")
        memory = msgspec.to_builtins(shared.capacity["memory"])
        assert (memory["value"], memory["requestPolicy"]["default"]) == ("40192Mi", "20096Mi")

    def test_mig_devices_and_partitions_are_not_shared(self) -> None:
        cut = slices.build(inventory("dgx-a100"), shared=True).devices
        assert {device.name for device in cut if device.allow_multiple_allocations} == {f"gpu-{m}" for m in range(6)}
        whole = inventory("hgx-h100")
        offered = slices.build(whole, shared=True, partitionable=all_partitionable(whole)).devices
        assert not any(device.allow_multiple_allocations for device in offered)

    def test_a_shared_mig_device_offers_its_memory_in_parts_and_its_engines_to_all(self) -> None:
        cut = slices.build(inventory("dgx-a100"), shared_mig=True).devices
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
        offered = slices.build(whole, shared_mig=True, partitionable=all_partitionable(whole)).devices
        assert not any(device.allow_multiple_allocations for device in offered)

    def test_without_memory_there_is_nothing_to_share(self) -> None:
        before = inventory("hgx-h100")
        blind = dataclasses.replace(before.gpus[0], memory_bytes=None)
        device = slices.build(dataclasses.replace(before, gpus=(blind,)), shared=True).devices[0]
        assert device.allow_multiple_allocations is None


class TestIslands:
    def gpu(self, minor: int, *peers: int, mig: bool = False) -> Gpu:
        return Gpu(
            minor=minor,
            uuid=f"GPU-{minor}",
            nvlink=NvLink(version=3, links=len(peers), peers=peers),
            mig_enabled=mig,
        )

    def test_all_to_all_is_one_island(self) -> None:
        assert islands(self.gpu(m, *(p for p in range(8) if p != m)) for m in range(8)) == dict.fromkeys(range(8), 0)

    def test_bridged_pairs_are_two(self) -> None:
        assert islands([self.gpu(0, 1), self.gpu(1, 0), self.gpu(2, 3), self.gpu(3, 2)]) == {0: 0, 1: 0, 2: 1, 3: 1}

    def test_a_cube_mesh_is_split_into_its_quads(self) -> None:
        quads = [(0, 1, 2, 3), (4, 5, 6, 7)]
        across = {0: 4, 1: 5, 2: 6, 3: 7, 4: 0, 5: 1, 6: 2, 7: 3}
        gpus = [self.gpu(m, *(p for p in quad if p != m), across[m]) for quad in quads for m in quad]
        assert islands(gpus) == {0: 0, 1: 0, 2: 0, 3: 0, 4: 1, 5: 1, 6: 1, 7: 1}

    def test_a_gpu_in_mig_mode_takes_no_part(self) -> None:
        gpus = [self.gpu(m, *(p for p in range(3) if p != m), mig=m == 1) for m in range(3)]
        assert islands(gpus) == {0: 0, 2: 0}

    def test_a_link_that_only_one_end_sees_is_none(self) -> None:
        assert islands([self.gpu(0, 1), self.gpu(1)]) == {}

    @given(st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda edge: edge[0] < edge[1])))
    @settings(max_examples=200, deadline=None)
    def test_every_island_is_a_clique_and_the_answer_does_not_depend_on_order(
        self, edges: set[tuple[int, int]]
    ) -> None:
        peers = {m: sorted({a + b - m for a, b in edges if m in (a, b)}) for m in range(8)}
        gpus = [self.gpu(m, *peers[m]) for m in range(8)]
        found = islands(gpus)
        assert islands(reversed(gpus)) == found
        for one, number in found.items():
            assert all(other == one or other in peers[one] for other, n in found.items() if n == number)
        assert sorted(set(found.values())) == list(range(len(set(found.values()))))


def possible(profiles: Sequence[MigProfile], placed: Sequence[tuple[MigProfile, int]]) -> list[tuple[MigProfile, int]]:
    """Every instance that could be created beside `placed`."""
    return [(p, start) for p in profiles for start in p.starts if geometry.fits(profiles, placed, (p, start))]


class TestGeometry:
    PROFILES = tuple(inventory("hgx-h100").gpus[0].mig_profiles)

    @given(st.lists(st.integers(0, 1000), max_size=12))
    @settings(max_examples=200, deadline=None)
    def test_no_two_instances_that_fit_overlap(self, choices: list[int]) -> None:
        placed: list[tuple[MigProfile, int]] = []
        for choice in choices:
            free = possible(self.PROFILES, placed)
            if not free:
                break
            placed.append(free[choice % len(free)])
        covered = [slice_ for one in placed for slice_ in geometry.covered(*one)]
        assert len(covered) == len(set(covered))
        assert all(0 <= slice_ < 8 for slice_ in covered)
        assert sum(p.compute_slices for p, _ in placed) <= 7


class TestFirstFit:
    """A scheduler takes the first published device that fits: the published order is the placement policy."""

    GPU = inventory("hgx-h100").gpus[0]
    PROFILES = GPU.mig_profiles
    PUBLISHED = tuple(
        device.name
        for device in slices.build(Inventory(gpus=(GPU,)), partitionable=frozenset({GPU.uuid})).devices
        if "-mig-" in device.name
    )

    def first(self, placed: list[tuple[MigProfile, int]], wanted: MigProfile) -> int | None:
        """The start at which first fit places the profile."""
        starts = {device_names.mig_name(0, wanted, start): start for start in wanted.starts}
        fitting = (starts[name] for name in self.PUBLISHED if name in starts)
        return next((s for s in fitting if geometry.fits(self.PROFILES, placed, (wanted, s))), None)

    @given(st.lists(st.integers(0, 6), max_size=8))
    @settings(max_examples=200, deadline=None)
    def test_first_fit_leaves_the_largest_profile_that_any_start_leaves(self, wanted: list[int]) -> None:
        placed: list[tuple[MigProfile, int]] = []

        def largest(profile: MigProfile, start: int) -> tuple[int, int]:
            left = possible(self.PROFILES, [*placed, (profile, start)])
            return max(((p.memory_slices, p.compute_slices) for p, _ in left), default=(0, 0))

        for profile in (self.PROFILES[number] for number in wanted):
            starts = [s for s in profile.starts if geometry.fits(self.PROFILES, placed, (profile, s))]
            first = self.first(placed, profile)
            assert (first is None) == (not starts)
            if first is None:
                continue
            assert first in starts
            assert largest(profile, first) == max(largest(profile, start) for start in starts)
            placed.append((profile, first))

    def test_an_empty_gpu_gives_its_first_small_instance_away_from_the_large_ones(self) -> None:
        assert self.first([], next(p for p in self.PROFILES if p.name == "1g.10gb")) == 6
