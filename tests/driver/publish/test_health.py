"""Faults: what is kept, what taints, what proves a GPU healthy; and how they reach kubelet and the slices."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from fairlead.driver.backend import profiles, xids
from fairlead.driver.backend.interface import BackendError
from fairlead.driver.backend.simulated import fault_file
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.backend.types import GpuStatus, Inventory, RecoveryAction, Xid
from fairlead.driver.common.threads import Threads
from fairlead.driver.publish import faults
from fairlead.driver.publish.faults import Fault
from fairlead.driver.publish.monitor import HardwareMonitor
from fairlead.kube.timing import Time
from tests.support.driver.monitors import ON_DEMAND, monitor_of

GPU = "GPU-0"
XID = {"application": 31, "informational": 92, "recoverable": 63, "needs-reset": 48, "fatal": 79}


def status(responds: bool | None = True, recovery: RecoveryAction | None = "none") -> GpuStatus:
    return GpuStatus(uuid=GPU, responds=responds, recovery_action=recovery)


class Story:
    """Polls of one GPU, one after the other."""

    def __init__(self) -> None:
        self.faults: dict[str, tuple[Fault, ...]] = {}
        self.now_s = 1000.0

    def poll(self, status: GpuStatus, *codes: int, after_s: float = 5.0) -> dict[str, str]:
        """Taint effects by key after this poll."""
        self.now_s += after_s
        events = [Xid(uuid=GPU, code=code) for code in codes]
        self.faults = faults.fold(self.faults, [status], events, now_s=self.now_s)
        found = faults.taints(self.faults).get(GPU, ())
        return {f"{taint.key.partition('/')[2]}={taint.value}": taint.effect for taint in found}


@pytest.fixture
def story() -> Story:
    return Story()


class TestXids:
    @pytest.mark.parametrize(("kind", "code"), XID.items())
    def test_the_table_classifies_each_xid(self, kind: str, code: int) -> None:
        assert xids.classify(code) == kind

    def test_a_code_that_the_table_lacks_is_taken_seriously(self) -> None:
        assert xids.classify(9999) == "needs-reset"
        assert xids.describe(9999) == "Xid 9999"


class TestFaults:
    @pytest.mark.parametrize("kind", ["application", "informational", "recoverable"])
    def test_a_fault_of_a_program_does_not_taint(self, story: Story, kind: str) -> None:
        assert story.poll(status(), XID[kind]) == {}

    def test_a_gpu_that_needs_a_reset_gets_no_new_pods(self, story: Story) -> None:
        assert story.poll(status(recovery="reset"), XID["needs-reset"]) == {
            "recovery-action=reset": "NoSchedule",
            f"xid={XID['needs-reset']}": "NoSchedule",
        }

    def test_a_gpu_beyond_a_reset_evicts_its_pods(self, story: Story) -> None:
        assert story.poll(status(recovery=None), XID["fatal"]) == {f"xid={XID['fatal']}": "NoExecute"}

    def test_a_lost_gpu_evicts_its_pods_and_is_healthy_when_it_responds(self, story: Story) -> None:
        assert story.poll(status(responds=False)) == {"gpu-lost=": "NoExecute"}
        assert story.poll(status(responds=None)) == {"gpu-lost=": "NoExecute"}
        assert story.poll(status()) == {}

    def test_a_benign_xid_does_not_take_the_place_of_a_severe_one(self, story: Story) -> None:
        story.poll(status(recovery=None), XID["fatal"])
        assert story.poll(status(recovery=None), XID["recoverable"], XID["needs-reset"]) == {
            f"xid={XID['fatal']}": "NoExecute"
        }

    def test_a_reset_clears_what_it_cures(self, story: Story) -> None:
        story.poll(status(recovery="reset"), XID["needs-reset"])
        story.poll(status(recovery="reset"), after_s=600)
        assert story.poll(status(recovery="none")) == {}

    def test_an_xid_waits_for_the_action_that_follows_it(self, story: Story) -> None:
        assert story.poll(status(recovery="none"), XID["needs-reset"]) != {}
        assert story.poll(status(recovery="reset")) != {}
        assert story.poll(status(recovery="none"), after_s=faults.RECOVERY_ACTION_LAG_S) == {}

    def test_without_recovery_actions_a_severe_xid_stays(self, story: Story) -> None:
        story.poll(status(recovery=None), XID["needs-reset"])
        assert story.poll(status(recovery=None), after_s=100_000) != {}

    def test_a_note_is_forgotten_after_a_while(self, story: Story) -> None:
        story.poll(status(), XID["recoverable"])
        assert story.faults
        story.poll(status(), after_s=faults.NOTE_S)
        assert not story.faults

    def test_a_domain_that_needs_recovery_is_not_the_gpus_fault(self, story: Story) -> None:
        assert story.poll(status(recovery="imex")) == {}

    def test_it_outlives_a_restart_and_not_a_boot(self, story: Story) -> None:
        story.poll(status(recovery=None), XID["fatal"])
        kept = faults.encode(story.faults, boot_id="b1")
        assert faults.decode(kept, boot_id="b1") == story.faults
        assert faults.decode(kept, boot_id="b2") == {}
        assert faults.decode(kept[:20], boot_id="b1") == {}


class TestHardwareMonitor:
    def hardware(self, backend: SimulatedBackend, threads: Threads) -> HardwareMonitor:
        return monitor_of(backend, threads, timing=Time(wall=lambda: 1000.0))

    async def test_a_fault_reaches_all_mig_devices_of_the_gpu_and_the_stream(self, dgx: SimulatedBackend) -> None:
        threads = Threads()
        hardware = self.hardware(dgx, threads)
        assert await hardware.poll() is True
        assert await hardware.poll() is False
        dgx.faults.xids.append((6, XID["needs-reset"]))
        dgx.faults.recovery[6] = "reset"
        assert await hardware.poll() is True
        tainted = [device.name for device in hardware.built.devices if device.taints]
        assert len(tainted) == 7
        assert all(name.startswith("gpu-6-mig-") for name in tainted)
        unhealthy = [state for state in hardware.health.devices if state.state == "unhealthy"]
        assert [state.device for state in unhealthy] == tainted
        assert unhealthy[0].message == "the GPU needs a reset; Xid 48 (ROBUST_CHANNEL_GPU_ECC_DBE): needs-reset"
        threads.close()

    async def test_a_gpu_lost_at_run_time_stays_published_with_a_taint(self, hgx: SimulatedBackend) -> None:
        threads = Threads()
        hardware = self.hardware(hgx, threads)
        await hardware.poll()
        hgx.faults.lost.add(3)
        await hardware.poll()
        devices = {device.name: device for device in hardware.built.devices}
        assert len(devices) == 8
        assert [taint.key for taint in devices["gpu-3"].taints] == ["gpu.fairlead.dev/gpu-lost"]
        assert [name for name, device in devices.items() if device.taints] == ["gpu-3"]
        hgx.faults.lost.clear()
        await hardware.poll()
        assert not any(device.taints for device in hardware.built.devices)
        threads.close()

    async def test_a_fault_reaches_every_placement_of_a_partitionable_gpu(self, hgx: SimulatedBackend) -> None:
        threads = Threads()
        hardware = monitor_of(hgx, threads, offer=ON_DEMAND, timing=Time(wall=lambda: 1000.0))
        hgx.faults.recovery[2] = "reset"
        await hardware.poll()
        tainted = {device.name for device in hardware.built.devices if device.taints}
        assert tainted == {d.name for d in hardware.built.devices if d.name == "gpu-2" or d.name.startswith("gpu-2-")}
        assert len(tainted) == 26
        threads.close()

    async def test_hardware_that_fails_every_poll_needs_a_restart_and_one_that_hangs_does_not(
        self, hgx: SimulatedBackend
    ) -> None:
        threads, now = Threads(), [1000.0]
        hardware = monitor_of(hgx, threads, timing=Time(wall=lambda: now[0]), interval_s=0)
        await hardware.poll()
        problems = iter([*[BackendError("mismatch")] * 3, TimeoutError("hangs")])
        seen: list[tuple[str | None, bool]] = []

        async def poll(*, full: bool = True) -> bool:
            now[0] += 70.0
            seen.append((hardware.problem, hardware.restart_reason is not None))
            raise next(problems, asyncio.CancelledError())

        hardware.poll = poll  # type: ignore[method-assign]
        with pytest.raises(asyncio.CancelledError):
            await hardware.run(lambda built: None)
        assert seen == [
            (None, False),
            ("mismatch", False),
            ("mismatch", True),
            ("mismatch", True),
            ("hangs", False),
        ]
        threads.close()

    async def test_what_seldom_changes_is_read_in_full_polls_and_xids_in_each(self, hgx: SimulatedBackend) -> None:
        threads = Threads()
        hardware = self.hardware(hgx, threads)
        await hardware.poll()
        hgx.faults.memory_errors[2] = fault_file.MemoryErrors(uncorrected=1)
        hgx.faults.xids += [(2, 94), (2, 94)]
        await hardware.poll(full=False)
        uuid = hardware.inventory.gpus[2].uuid
        assert {each.ecc_uncorrected for each in hardware.conditions} == {0}
        assert hardware.xids.by_gpu == {uuid: {"94": 2}}
        hgx.faults.xids.append((2, 94))
        await hardware.poll()
        assert {each.uuid: each.ecc_uncorrected for each in hardware.conditions}[uuid] == 1
        assert hardware.xids.by_gpu == {uuid: {"94": 3}}
        threads.close()

    async def test_a_lost_gpu_has_no_condition_from_before(self, hgx: SimulatedBackend) -> None:
        threads = Threads()
        hardware = self.hardware(hgx, threads)
        await hardware.poll()
        hgx.faults.lost.add(3)
        await hardware.poll(full=False)
        assert len(hardware.conditions) == 7
        assert hardware.inventory.gpus[3].uuid not in {each.uuid for each in hardware.conditions}
        threads.close()

    async def test_each_poll_that_succeeds_is_told_after_the_slices(self, hgx: SimulatedBackend) -> None:
        threads = Threads()
        hardware = monitor_of(hgx, threads, timing=Time(wall=lambda: 1000.0), interval_s=0)
        told: list[object] = []

        def polled(at_s: float) -> None:
            told.append(at_s)
            if len(told) == 1:
                hgx.faults.recovery[2] = "reset"
            elif len(told) == 3:
                raise asyncio.CancelledError

        await hardware.poll()
        with pytest.raises(asyncio.CancelledError):
            await hardware.run(lambda built: told.append("changed"), polled)
        assert told == [1000.0, "changed", 1000.0]
        threads.close()

    async def test_a_gpu_that_is_taken_out_properly_leaves_the_slices(self, hgx: SimulatedBackend) -> None:
        threads = Threads()
        hardware = self.hardware(hgx, threads)
        await hardware.poll()
        del hgx._gpus[hardware.inventory.gpus[7].uuid]
        assert await hardware.poll() is True
        assert [device.name for device in hardware.built.devices] == [f"gpu-{minor}" for minor in range(7)]
        threads.close()

    async def test_a_device_can_be_unhealthy_though_its_gpu_is_healthy(self, hgx: SimulatedBackend) -> None:
        threads = Threads()
        hardware = self.hardware(hgx, threads)
        hardware.report_unhealthy({"gpu-3": "no MPS daemon"})
        await hardware.poll()
        unhealthy = [(state.device, state.message) for state in hardware.health.devices if state.state != "healthy"]
        assert unhealthy == [("gpu-3", "no MPS daemon")]
        assert not any(device.taints for device in hardware.built.devices)
        threads.close()

    async def test_hardware_that_hangs_leaves_what_was_seen_last_and_takes_one_thread(
        self, hgx: SimulatedBackend
    ) -> None:
        threads, release, calls = Threads(), threading.Event(), []
        hardware = monitor_of(hgx, threads)
        await hardware.poll()
        honest = hgx.inventory
        hardware.deadline_s = 0.02

        def hang() -> Inventory:
            calls.append(1)
            release.wait(30)
            return honest()

        hgx.inventory = hang  # type: ignore[method-assign]
        for _ in range(3):
            with pytest.raises(TimeoutError, match=r"no answer within 0\.02 s"):
                await hardware.poll()
        assert len(hardware.built.devices) == 8
        assert len(calls) == 1
        release.set()
        hardware.deadline_s = 30
        await hardware.poll()
        threads.close()


class TestFaultFile:
    def backend(self, path: Path) -> SimulatedBackend:
        return SimulatedBackend(profiles.load("hgx-h100"), node="n1", fault_file=path)

    def test_an_xid_from_before_the_start_is_not_reported_again(self, tmp_path: Path) -> None:
        path = tmp_path / "faults.json"
        fault_file.inject(path, 3, xid=XID["needs-reset"])
        fault_file.clear(path, 3)
        fault_file.inject(path, 4, xid=XID["needs-reset"])
        restarted = self.backend(path)
        assert restarted.xids() == ()
        assert [status.recovery_action for status in restarted.statuses()].count("reset") == 1
        fault_file.inject(path, 5, xid=XID["needs-reset"])
        assert len(restarted.xids()) == 1

    def test_an_injected_xid_is_reported_once_with_the_recovery_of_its_class(self, tmp_path: Path) -> None:
        path = tmp_path / "faults.json"
        backend = self.backend(path)
        fault_file.inject(path, 3, xid=XID["needs-reset"])
        [event] = backend.xids()
        assert event.code == XID["needs-reset"]
        assert backend.xids() == ()
        assert [status.recovery_action for status in backend.statuses()].count("reset") == 1
        fault_file.inject(path, 3, xid=XID["needs-reset"])
        assert len(backend.xids()) == 1
        fault_file.clear(path, 3)
        assert {status.recovery_action for status in backend.statuses()} == {"none"}
