"""The node behind a fake NVML: GPUs, MIG instances, faults set by a test, and the check at the start of every call."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any, NoReturn

import pynvml

from fairlead.driver.backend.types import Gpu, MigProfile
from tests.support.driver.fake_nvml.kernel import FakeKernel


@dataclasses.dataclass
class ComputeInstance:
    address: int
    id: int
    profile_index: int
    mig: MigHandle


@dataclasses.dataclass
class GpuInstance:
    address: int
    id: int
    profile: MigProfile
    start: int
    device: Device
    compute_instances: list[ComputeInstance] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(eq=False)
class Device:
    """A GPU; also the opaque handle that NVML's calls take."""

    gpu: Gpu
    mode: int
    pending: int | None = None
    instances: list[GpuInstance] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(eq=False)
class MigHandle:
    """A MIG device; also its handle."""

    uuid: str
    gpu_instance: GpuInstance
    ci_id: int


class FakeNode:
    """Base of the groups of calls.

    `errors` makes a call fail with an NVML error code, by function's name; `lost` holds minors of GPUs off the bus;
    `busy` says that MIG devices have clients. `recovery` is NVML's recovery action by minor; `xids` are (minor, code)
    to be reported; `guests` holds minors of GPUs that a hypervisor lends, as vGPUs. `utilization` (percent) and
    `memory_used` (bytes) are by UUID; without `memory_v2` the driver is older than 510. `memory_affinity` is the NUMA node by
    minor where it is not the profile's. `clock_events` are NVML's bits by minor, `ecc` (corrected, uncorrected) errors,
    `remapped` (corrected, uncorrected, pending, failed) rows. `processes` are the PIDs on a GPU, by minor, or on a MIG
    device, by UUID, and `process_memory` what each uses (bytes), where NVML tells.
    `calls` counts the calls, by function's name.
    """

    def __init__(self, kernel: FakeKernel) -> None:
        self.errors: dict[str, int] = {}
        self.lost: set[int] = set()
        self.busy = False
        self.recovery: dict[int, int] = {}
        self.xids: list[tuple[int, int]] = []
        self.registered: set[int] = set()
        self.compute_modes: dict[int, int] = {}
        self.guests: set[int] = set()
        self.utilization: dict[str, int] = {}
        self.memory_used: dict[str, int] = {}
        self.memory_v2 = True
        self.clock_events: dict[int, int] = {}
        self.ecc: dict[int, tuple[int, int]] = {}
        self.remapped: dict[int, tuple[int, int, int, int]] = {}
        self.processes: dict[int | str, list[int]] = {}
        self.process_memory: dict[int, int] = {}
        self.calls: Counter[str] = Counter()
        self.open = 0
        self._kernel = kernel
        self._devices: list[Device] = []

    @staticmethod
    def _fail(code: int) -> NoReturn:
        raise pynvml.NVMLError(code)

    def _check(self, device: Device | MigHandle) -> Gpu:
        """The GPU of a handle; fails as the library does where it is lost or no session is open."""
        if not self.open:
            self._fail(pynvml.NVML_ERROR_UNINITIALIZED)
        gpu = device.gpu_instance.device.gpu if isinstance(device, MigHandle) else device.gpu
        if gpu.minor in self.lost:
            self._fail(pynvml.NVML_ERROR_GPU_IS_LOST)
        return gpu

    def _or_unsupported(self, value: Any) -> Any:
        return self._fail(pynvml.NVML_ERROR_NOT_SUPPORTED) if value is None else value
