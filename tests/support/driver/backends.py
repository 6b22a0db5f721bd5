"""The two backends over a profile, with the levers that their hardware has: for tests of what every Backend has to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pynvml

from fairlead.driver.backend import profiles
from fairlead.driver.backend.interface import Backend
from fairlead.driver.backend.nvml.backend import NvmlBackend
from fairlead.driver.backend.nvml.sysfs import Kernel
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.backend.simulated.fault_file import Load, MemoryErrors
from fairlead.driver.backend.types import Process
from tests.support.driver.fake_nvml import FakeNvml


@dataclasses.dataclass
class Case:
    """A backend over a profile, with the levers that its hardware has."""

    backend: Backend
    lose: Callable[[int], None]
    keep_busy: Callable[[bool], None]
    report: Callable[[int, int], None]
    ask_for_reset: Callable[[int], None]
    load: Callable[[str, str, int, int], None]
    """Device's name, its UUID, utilisation in percent, memory used in bytes."""
    throttle: Callable[[int], None]
    """Heat holds the clocks of that GPU down."""
    break_memory: Callable[[int], None]
    """One uncorrected error."""
    run_on: Callable[[int], None]
    """A process, 4711, on that GPU."""


def nvml(name: str, path: Path) -> Case:
    fake = FakeNvml(profiles.load(name), node="n1", root=path)
    kernel = Kernel(sys=path / "sys", proc=path / "proc", dev=path / "dev")

    def load(device: str, uuid: str, utilization: int, memory: int) -> None:
        fake.utilization[uuid], fake.memory_used[uuid] = utilization, memory
        fake.activity[uuid] = (utilization * 0.9, utilization * 0.5, utilization * 0.4)

    def break_memory(minor: int) -> None:
        fake.ecc[minor], fake.remapped[minor] = (0, 1), (0, 1, 1, 0)

    return Case(
        NvmlBackend(fake, kernel=kernel, smi_runner=fake.smi),
        lose=fake.lost.add,
        keep_busy=lambda busy: setattr(fake, "busy", busy),
        report=lambda minor, code: fake.xids.append((minor, code)),
        ask_for_reset=lambda minor: fake.recovery.update({minor: 1}),
        load=load,
        throttle=lambda minor: fake.clock_events.update({minor: pynvml.nvmlClocksEventReasonHwThermalSlowdown}),
        break_memory=break_memory,
        run_on=lambda minor: fake.processes.update({minor: [4711]}),
    )


def simulated(name: str, path: Path) -> Case:
    backend = SimulatedBackend(profiles.load(name), node="n1")

    def keep_busy(busy: bool) -> None:
        backend.faults.busy = {(minor, start) for minor in range(8) for start in range(8)} if busy else set()

    return Case(
        backend,
        lose=backend.faults.lost.add,
        keep_busy=keep_busy,
        report=lambda minor, code: backend.faults.xids.append((minor, code)),
        ask_for_reset=lambda minor: backend.faults.recovery.update({minor: "reset"}),
        load=lambda device, uuid, utilization, memory: backend.faults.loads.update(
            {device: Load(utilization_percent=utilization, memory_used_bytes=memory)}
        ),
        throttle=lambda minor: backend.faults.throttled.update({minor: frozenset({"thermal_hw"})}),
        break_memory=lambda minor: backend.faults.memory_errors.update(
            {minor: MemoryErrors(uncorrected=1, pending=True)}
        ),
        run_on=lambda minor: backend.faults.processes.update({minor: (Process(pid=4711),)}),
    )
