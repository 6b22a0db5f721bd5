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
from fairlead.driver.publish.monitor import HardwareMonitor
from fairlead.kube.timing import Time
from tests.support.driver.monitors import ON_DEMAND, monitor_of

GPU = "GPU-0"
XID = {"application": 31, "informational": 92, "recoverable": 63, "needs-reset": 48, "fatal": 79}


def status(responds: bool | None = True, recovery: RecoveryAction | None = "none") -> GpuStatus:
    return GpuStatus(uuid=GPU, responds=responds, recovery_action=recovery)


class TestXids:
    @pytest.mark.parametrize(("kind", "code"), XID.items())
    def test_the_table_classifies_each_xid(self, kind: str, code: int) -> None:
        assert xids.classify(code) == kind

    def test_a_code_that_the_table_lacks_is_taken_seriously(self) -> None:
        assert xids.classify(9999) == "needs-reset"
        assert xids.describe(9999) == "Xid 9999"


Poll = tuple[bool | None, RecoveryAction | None, int, str, float]
"""Whether the GPU responds, the recovery action that it asks for, an Xid, the taints after it, and seconds since the last poll."""
NOTHING, FATAL, SEVERE = "", f"xid={XID['fatal']}:NoExecute", f"xid={XID['needs-reset']}:NoSchedule"
RESET, LOST = "recovery-action=reset:NoSchedule", "gpu-lost=:NoExecute"
LAG_S, NOTE_S = faults.RECOVERY_ACTION_LAG_S, faults.NOTE_S


def fold(polls: list[Poll]) -> faults.Faults:
    """The faults after these polls of one GPU, each of which has the taints that it names."""
    found: faults.Faults = {}
    now_s = 1000.0
    for number, (responds, recovery, code, wanted, after_s) in enumerate(polls):
        now_s += after_s
        status = GpuStatus(uuid=GPU, responds=responds, recovery_action=recovery)
        found = faults.fold(found, [status], [Xid(uuid=GPU, code=code)] if code else [], now_s=now_s)
        taints = faults.taints(found).get(GPU, ())
        shown = " ".join(f"{taint.key.partition('/')[2]}={taint.value}:{taint.effect}" for taint in taints)
        assert shown == wanted, number
    return found


class TestFaults:
    @pytest.mark.parametrize(
        "polls",
        [
            pytest.param([(True, "none", XID["application"], NOTHING, 5)], id="a program's fault taints nothing"),
            pytest.param([(True, "none", XID["informational"], NOTHING, 5)], id="nor does a notice"),
            pytest.param(
                [(True, "reset", XID["needs-reset"], f"{RESET} {SEVERE}", 5)], id="one that needs a reset gets no pods"
            ),
            pytest.param([(True, None, XID["fatal"], FATAL, 5)], id="one beyond a reset evicts its pods"),
            pytest.param(
                [(False, "none", 0, LOST, 5), (None, "none", 0, LOST, 5), (True, "none", 0, NOTHING, 5)],
                id="a lost one evicts, and is healthy when it responds",
            ),
            pytest.param(
                [
                    (True, None, XID["fatal"], FATAL, 5),
                    (True, None, XID["recoverable"], FATAL, 5),
                    (True, None, XID["needs-reset"], FATAL, 0),
                ],
                id="a benign Xid does not take the place of a severe one",
            ),
            pytest.param(
                [
                    (True, "reset", XID["needs-reset"], f"{RESET} {SEVERE}", 5),
                    (True, "reset", 0, f"{RESET} {SEVERE}", 600),
                    (True, "none", 0, NOTHING, 5),
                ],
                id="a reset clears what it cures",
            ),
            pytest.param(
                [
                    (True, "none", XID["needs-reset"], SEVERE, 5),
                    (True, "reset", 0, f"{RESET} {SEVERE}", 5),
                    (True, "none", 0, NOTHING, LAG_S),
                ],
                id="an Xid waits for the action that follows it",
            ),
            pytest.param(
                [(True, None, XID["needs-reset"], SEVERE, 5), (True, None, 0, SEVERE, 100_000)],
                id="without recovery actions a severe Xid stays",
            ),
            pytest.param([(True, "imex", 0, NOTHING, 5)], id="a domain that needs recovery is not the GPU's fault"),
        ],
    )
    def test_a_gpu_is_tainted_by_its_faults(self, polls: list[Poll]) -> None:
        fold(polls)

    def test_a_note_is_forgotten_after_a_while(self) -> None:
        noted: list[Poll] = [(True, "none", XID["recoverable"], NOTHING, 5)]
        assert fold(noted)
        assert not fold([*noted, (True, "none", 0, NOTHING, NOTE_S)])

    def test_they_outlive_a_restart_and_not_a_boot(self) -> None:
        found = fold([(True, None, XID["fatal"], FATAL, 5)])
        kept = faults.encode(found, boot_id="b1")
        assert faults.decode(kept, boot_id="b1") == found
        assert faults.decode(kept, boot_id="b2") == {}
        assert faults.decode(kept[:20], boot_id="b1") == {}


class TestHardwareMonitor:
    @pytest.fixture
    async def hardware(self, hgx: SimulatedBackend, threads: Threads) -> HardwareMonitor:
        """That of eight H100s, polled once."""
        made = monitor_of(hgx, threads, timing=Time(wall=lambda: 1000.0), interval_s=0)
        await made.poll()
        return made

    async def test_a_fault_reaches_all_mig_devices_of_the_gpu_and_the_stream(
        self, dgx: SimulatedBackend, threads: Threads
    ) -> None:
        hardware = monitor_of(dgx, threads, timing=Time(wall=lambda: 1000.0))
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

    async def test_a_gpu_lost_at_run_time_stays_published_with_a_taint(
        self, hgx: SimulatedBackend, hardware: HardwareMonitor
    ) -> None:
        hgx.faults.lost.add(3)
        await hardware.poll()
        devices = {device.name: device for device in hardware.built.devices}
        assert len(devices) == 8
        assert [taint.key for taint in devices["gpu-3"].taints] == ["gpu.fairlead.dev/gpu-lost"]
        assert [name for name, device in devices.items() if device.taints] == ["gpu-3"]
        hgx.faults.lost.clear()
        await hardware.poll()
        assert not any(device.taints for device in hardware.built.devices)

    async def test_a_fault_reaches_every_placement_of_a_partitionable_gpu(
        self, hgx: SimulatedBackend, threads: Threads
    ) -> None:
        hardware = monitor_of(hgx, threads, offer=ON_DEMAND, timing=Time(wall=lambda: 1000.0))
        hgx.faults.recovery[2] = "reset"
        await hardware.poll()
        tainted = {device.name for device in hardware.built.devices if device.taints}
        assert tainted == {d.name for d in hardware.built.devices if d.name == "gpu-2" or d.name.startswith("gpu-2-")}
        assert len(tainted) == 26

    async def test_hardware_that_fails_every_poll_needs_a_restart_and_one_that_hangs_does_not(
        self, hgx: SimulatedBackend, threads: Threads
    ) -> None:
        now = [1000.0]
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

    async def test_what_seldom_changes_is_read_in_full_polls_and_xids_in_each(
        self, hgx: SimulatedBackend, hardware: HardwareMonitor
    ) -> None:
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

    async def test_a_lost_gpu_has_no_condition_from_before(
        self, hgx: SimulatedBackend, hardware: HardwareMonitor
    ) -> None:
        hgx.faults.lost.add(3)
        await hardware.poll(full=False)
        assert len(hardware.conditions) == 7
        assert hardware.inventory.gpus[3].uuid not in {each.uuid for each in hardware.conditions}

    async def test_each_poll_that_succeeds_is_told_after_the_slices(
        self, hgx: SimulatedBackend, hardware: HardwareMonitor
    ) -> None:
        told: list[object] = []

        def polled(at_s: float) -> None:
            told.append(at_s)
            if len(told) == 1:
                hgx.faults.recovery[2] = "reset"
            elif len(told) == 3:
                raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError):
            await hardware.run(lambda built: told.append("changed"), polled)
        assert told == [1000.0, "changed", 1000.0]

    async def test_a_gpu_that_is_taken_out_properly_leaves_the_slices(
        self, hgx: SimulatedBackend, hardware: HardwareMonitor
    ) -> None:
        del hgx._gpus[hardware.inventory.gpus[7].uuid]
        assert await hardware.poll() is True
        assert [device.name for device in hardware.built.devices] == [f"gpu-{minor}" for minor in range(7)]

    async def test_a_device_can_be_unhealthy_though_its_gpu_is_healthy(self, hardware: HardwareMonitor) -> None:
        hardware.report_unhealthy({"gpu-3": "no MPS daemon"})
        await hardware.poll()
        unhealthy = [(state.device, state.message) for state in hardware.health.devices if state.state != "healthy"]
        assert unhealthy == [("gpu-3", "no MPS daemon")]
        assert not any(device.taints for device in hardware.built.devices)

    async def test_hardware_that_hangs_leaves_what_was_seen_last_and_takes_one_thread(
        self, hgx: SimulatedBackend, hardware: HardwareMonitor
    ) -> None:
        release, calls = threading.Event(), []
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
