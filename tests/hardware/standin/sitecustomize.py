"""Read by each Python with this directory in PYTHONPATH: its `pynvml` is the stand-in, and so is the kernel that the driver reads.

Device nodes stand on /dev/null, as on simulated nodes, and the stand-in of the MPS daemon takes the daemon's place.
"""

import dataclasses
import os
import types
from pathlib import Path
from typing import Any

import pynvml

from fairlead.driver.backend import profiles
from fairlead.driver.backend.nvml import sysfs
from fairlead.driver.backend.nvml.backend import NvmlBackend
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from tests.hardware.standin import state
from tests.support.driver.fake_nvml import FakeNvml


class StandIn(FakeNvml):
    """NVML whose GPU does what the programs in the state directory do."""

    def _check(self, device: Any) -> Any:
        gpu = super()._check(device)
        self.utilization[gpu.uuid] = 99 if state.busy() else 0
        self.memory_used[gpu.uuid] = state.used_bytes()
        return gpu

    def nvmlDeviceGetPowerUsage(self, device: Any) -> int:
        self._check(device)
        return int(1000 * (state.BUSY_W if state.busy() else state.IDLE_W))

    def nvmlEventSetWait_v2(self, events: object, timeout_ms: int) -> Any:
        self.xids += [(0, code) for code in state.take_xids()]
        return super().nvmlEventSetWait_v2(events, timeout_ms)


def install() -> None:
    root = Path(os.environ["GPU_STATE"]) / f"kernel-{os.getpid()}"
    profile = profiles.load(str(Path(__file__).with_name("h200-vm.yaml")))
    fake = StandIn(profile, node="n1", root=root, numa_nodes=1, virtual=True)
    for name in dir(pynvml):
        if name.startswith("nvml") and isinstance(getattr(pynvml, name), types.FunctionType):
            setattr(pynvml, name, _calling(fake, name))
    assert sysfs.Kernel.__init__.__kwdefaults__ is not None
    sysfs.Kernel.__init__.__kwdefaults__.update(sys=root / "sys", proc=root / "proc", dev=root / "dev")
    _on_dev_null("device_nodes")
    _on_dev_null("control_nodes")
    simulated = SimulatedBackend(profile, node="n1")
    NvmlBackend.mps_program = lambda self: simulated.mps_program()  # type: ignore[method-assign]


def _calling(fake: FakeNvml, name: str) -> Any:
    """By name at each call: what the stand-in lacks raises as an old library does."""

    def call(*arguments: Any) -> Any:
        if name not in dir(type(fake)):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return getattr(fake, name)(*arguments)

    return call


def _on_dev_null(name: str) -> None:
    before = getattr(NvmlBackend, name)

    def nodes(self: NvmlBackend, *arguments: Any) -> Any:
        return tuple(dataclasses.replace(each, host_path="/dev/null") for each in before(self, *arguments))

    setattr(NvmlBackend, name, nodes)


if "GPU_STATE" in os.environ:
    install()
