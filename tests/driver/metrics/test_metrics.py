"""What a scrape says of a node's devices: each metric, and what it does where hardware does not tell."""

from __future__ import annotations

import pytest

from fairlead.driver.backend.simulated.fault_file import Load, MemoryErrors
from fairlead.driver.backend.types import Inventory, Xid
from fairlead.driver.publish.known_faults import CODES_MAX, XidCounts
from tests.support.driver.metrics_node import IDLE_H100, Node


@pytest.fixture
def h100() -> Node:
    return Node("hgx-h100", dcgm=True)


class TestReadings:
    def test_an_idle_gpu_has_every_metric(self, h100: Node) -> None:
        h100.poll()
        assert h100.of(h100.inventory.gpus[3].uuid) == IDLE_H100

    def test_a_load_shows_in_all_that_follows_it(self, h100: Node) -> None:
        h100.backend.faults.loads["gpu-0"] = Load(utilization_percent=90, memory_used_bytes=40 * 2**30)
        h100.poll()
        h100.poll(passed_s=2)
        found = h100.of(h100.inventory.gpus[0].uuid)
        assert found["utilization_percent", ""] == 90
        assert found["memory_used_bytes", ""] == 40 * 2**30
        assert 400 < found["power_watts", ""] < found["power_limit_watts", ""]
        assert 60 < found["temperature_celsius", ""] < 85
        assert found["sm_clock_hertz", ""] == 1980e6
        assert found["nvlink_sent_bytes_total", ""] == pytest.approx((5 + 2) * 0.9 * 18 * 5e9)
        assert 0 < found["dram_active_ratio", ""] < found["tensor_active_ratio", ""] < found["sm_active_ratio", ""] < 1

    def test_throttling_takes_the_clock_and_names_the_reason(self, h100: Node) -> None:
        h100.backend.faults.loads["gpu-0"] = Load(utilization_percent=90)
        h100.backend.faults.throttled[0] = frozenset({"thermal_hw", "hw_slowdown"})
        h100.poll()
        found = h100.of(h100.inventory.gpus[0].uuid)
        reasons = {reason for (name, reason), value in found.items() if name == "throttled" and value}
        assert reasons == {"thermal_hw", "hw_slowdown"}
        assert found["sm_clock_hertz", ""] == 990e6
        assert found["temperature_celsius", ""] > 85

    def test_errors_of_memory_are_counted_by_kind_with_the_rows_that_they_cost(self, h100: Node) -> None:
        h100.backend.faults.memory_errors[0] = MemoryErrors(corrected=5, uncorrected=2, pending=True)
        h100.poll()
        found = h100.of(h100.inventory.gpus[0].uuid)
        assert {label: value for (name, label), value in found.items() if name == "ecc_errors_total"} == {
            "corrected": 5,
            "uncorrected": 2,
        }
        assert {label: value for (name, label), value in found.items() if name == "remapped_rows"} == {
            "corrected": 0,
            "uncorrected": 2,
            "pending": 1,
            "failed": 0,
        }

    def test_xids_are_counted_by_code_and_a_gpu_without_one_has_no_series(self, h100: Node) -> None:
        h100.backend.faults.xids += [(0, 31), (0, 31), (0, 94)]
        h100.poll()
        h100.backend.faults.xids.append((0, 31))
        h100.poll()
        found = h100.of(h100.inventory.gpus[0].uuid)
        assert {label: value for (name, label), value in found.items() if name == "xids_total"} == {"31": 3, "94": 1}
        assert "xids_total" not in {name for name, _ in h100.of(h100.inventory.gpus[1].uuid)}

    @pytest.mark.parametrize(
        ("profile", "absent"),
        [
            ("dgx-a100", {"sm_active_ratio", "tensor_active_ratio", "dram_active_ratio"}),
            (
                "t4",
                {"sm_active_ratio", "tensor_active_ratio", "dram_active_ratio", "remapped_rows"}
                | {"nvlink_active_links", "nvlink_sent_bytes_total", "nvlink_received_bytes_total"},
            ),
        ],
    )
    def test_what_hardware_does_not_tell_is_absent_not_zero(self, profile: str, absent: set[str]) -> None:
        node = Node(profile)
        node.poll()
        names = {name for name, _ in node.of(node.inventory.gpus[0].uuid)}
        assert {name for name, _ in IDLE_H100} - names == absent

    def test_a_gpu_that_is_lost_keeps_only_its_memory_and_its_xids(self, h100: Node) -> None:
        uuid = h100.inventory.gpus[3].uuid
        h100.backend.faults.xids.append((3, 79))
        h100.poll()
        known = h100.inventory
        h100.backend.faults.lost.add(3)
        h100.poll()
        h100.inventory = known  # the monitor keeps a GPU that was lost
        assert {name for name, _ in h100.of(uuid)} == {"memory_bytes", "xids_total"}

    def test_before_the_first_poll_there_are_no_series(self) -> None:
        node = Node("l40s")
        node.inventory = Inventory()
        assert list(node.samples()) == []


class TestMig:
    def test_a_mig_device_has_its_memory_and_activity_and_nothing_of_its_gpu(self, h100: Node) -> None:
        h100.cut()
        h100.inventory = h100.backend.inventory()
        mig = h100.inventory.gpus[0].mig_devices[2]
        h100.backend.faults.loads["gpu-0-mig-1g10gb-19-2"] = Load(utilization_percent=100, memory_used_bytes=2**30)
        h100.poll()
        assert h100.of(mig.uuid) == {
            ("memory_bytes", ""): mig.profile.memory_bytes,
            ("memory_used_bytes", ""): 2**30,
            ("memory_reserved_bytes", ""): 0,
            ("sm_active_ratio", ""): 0.85,
            ("tensor_active_ratio", ""): 0.5,
            ("dram_active_ratio", ""): 0.4,
        }
        whole = h100.of(h100.inventory.gpus[0].uuid)
        assert ("utilization_percent", "") not in whole
        assert whole["sm_active_ratio", ""] == pytest.approx(0.85 / 7)


class TestHeld:
    def test_a_load_on_what_claims_hold_comes_and_goes_with_the_claim(self, h100: Node) -> None:
        first, second = h100.inventory.gpus[:2]
        h100.backend.faults.held = Load(utilization_percent=80, memory_used_bytes=60 * 2**30)
        h100.hold("u1", first.uuid)
        h100.poll()
        assert h100.of(first.uuid)["utilization_percent", ""] == 80
        assert h100.of(second.uuid) == IDLE_H100
        h100.records.clear()
        h100.poll()
        assert h100.of(first.uuid)["power_watts", ""] == 60

    def test_a_mig_device_has_no_more_of_it_than_its_memory(self, h100: Node) -> None:
        h100.cut()
        h100.inventory = h100.backend.inventory()
        mig = h100.inventory.gpus[0].mig_devices[0]
        h100.backend.faults.held = Load(utilization_percent=80, memory_used_bytes=60 * 2**30)
        h100.hold("u1", mig.uuid)
        h100.poll()
        assert h100.of(mig.uuid)["memory_used_bytes", ""] == mig.profile.memory_bytes

    def test_a_load_of_its_own_goes_before(self, h100: Node) -> None:
        gpu = h100.inventory.gpus[0]
        h100.backend.faults.held = Load(utilization_percent=80)
        h100.backend.faults.loads["gpu-0"] = Load()
        h100.hold("u1", gpu.uuid)
        h100.poll()
        assert h100.of(gpu.uuid)["utilization_percent", ""] == 0


class TestSlices:
    def test_the_time_is_absent_until_the_slices_were_right_once(self) -> None:
        node = Node("l40s")
        assert "fairlead_driver_slices_synced_timestamp_seconds" not in {name for name, _, _ in node.samples()}
        node.synced_at_s = 1234.5
        assert ("fairlead_driver_slices_synced_timestamp_seconds", {}, 1234.5) in list(node.samples())


class TestXidCounts:
    def test_codes_beyond_the_limit_count_together(self) -> None:
        counts = XidCounts()
        counts.add(Xid(uuid="GPU-1", code=code) for code in range(CODES_MAX + 10))
        counts.add([Xid(uuid="GPU-1", code=0), Xid(uuid="GPU-1", code=999)])
        assert len(counts.by_gpu["GPU-1"]) == CODES_MAX + 1
        assert counts.by_gpu["GPU-1"]["other"] == 11
        assert counts.by_gpu["GPU-1"]["0"] == 2
        assert counts.last == {"GPU-1": 999}
