"""What every Backend has to do when a GPU is reset, on simulated hardware and on NVML over a stand-in for its Python module."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from fairlead.driver.backend import links
from fairlead.driver.backend.interface import BackendError, InUse
from fairlead.driver.backend.types import Process, Xid
from tests.support.driver.backends import Case


class TestReset:
    def test_it_cures_what_waits_for_one_and_removes_mig_devices(self, make: Callable[[str], Case]) -> None:
        case = make("dgx-a100")
        backend = case.backend
        gpus = {gpu.minor: gpu for gpu in backend.inventory().gpus}
        case.ask_for_reset(7)
        case.break_memory(7)
        backend.set_compute_mode(gpus[7].uuid, "ExclusiveProcess")
        assert gpus[7].mig_devices
        backend.reset([gpus[7].uuid])
        found = backend.inventory().gpu(gpus[7].uuid)
        assert found is not None
        assert (found.mig_enabled, found.mig_devices) == (True, ())  # Ampere keeps the mode
        status = next(each for each in backend.statuses() if each.uuid == gpus[7].uuid)
        assert (status.responds, status.recovery_action) == (True, "none")
        rows = next(each for each in backend.conditions() if each.uuid == gpus[7].uuid).remapped_rows
        assert rows is not None
        assert (rows.uncorrected, rows.pending) == (1, False)
        assert backend.compute_mode(gpus[7].uuid) == "Default"
        assert [gpu.mig_devices for gpu in backend.inventory().gpus if gpu.minor != 7] == [
            gpu.mig_devices for minor, gpu in sorted(gpus.items()) if minor != 7
        ]

    def test_hopper_is_out_of_mig_mode_afterwards(self, make: Callable[[str], Case]) -> None:
        backend = make("hgx-h100").backend
        uuid = backend.inventory().gpus[2].uuid
        backend.set_mig_mode(uuid, True)
        backend.reset([uuid])
        assert backend.mig_mode(uuid) is False

    def test_a_gpu_with_processes_is_not_reset_and_they_are_named(self, make: Callable[[str], Case]) -> None:
        case = make("hgx-h100")
        uuid = case.backend.inventory().gpus[2].uuid
        case.run_on(2)
        assert case.backend.processes(uuid) == (Process(pid=4711),)
        with pytest.raises(InUse, match="in use by another client"):
            case.backend.reset([uuid])

    def test_xids_are_reported_after_a_reset_as_before(self, make: Callable[[str], Case]) -> None:
        case = make("hgx-h100")
        gpus = case.backend.inventory().gpus
        case.backend.xids()
        case.backend.reset([gpus[2].uuid])
        case.report(2, 79)
        case.backend.xids()
        case.report(3, 48)
        assert Xid(uuid=gpus[3].uuid, code=48) in case.backend.xids()

    def test_gpus_that_bridges_join_are_reset_together_or_not_at_all(self, make: Callable[[str], Case]) -> None:
        backend = make("a100-pcie-nvlink-pairs").backend
        gpus = backend.inventory().gpus
        with pytest.raises(BackendError, match="reset"):
            backend.reset([gpus[2].uuid])
        backend.reset([each.uuid for each in links.reset_together(gpus, gpus[2])])

    @pytest.mark.parametrize(
        ("profile", "minor", "together"),
        [("hgx-h100", 3, [3]), ("a100-pcie-nvlink-pairs", 3, [2, 3]), ("l40s", 1, [1]), ("dgx-a100", 7, [7])],
    )
    def test_who_is_reset_together(
        self, make: Callable[[str], Case], profile: str, minor: int, together: list[int]
    ) -> None:
        gpus = make(profile).backend.inventory().gpus
        [gpu] = [each for each in gpus if each.minor == minor]
        assert [each.minor for each in links.reset_together(gpus, gpu)] == together
        old = dataclasses.replace(gpu, cuda_compute_capability="7.0")
        if gpu.nvlink and gpu.nvlink.peers:  # before Ampere all that are connected, over switches as well
            assert len(links.reset_together(gpus, old)) == len(gpu.nvlink.peers) + 1
