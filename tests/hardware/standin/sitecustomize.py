"""Read by each Python with this directory in PYTHONPATH: its `pynvml` is the stand-in, and so is the kernel that the driver reads.

Device nodes stand on /dev/null, as on simulated nodes, and the stand-in of the MPS daemon takes the daemon's place.
"""

import contextlib
import dataclasses
import os
import types
from pathlib import Path
from typing import Any

import msgspec
import pynvml

from fairlead.driver.backend import profiles
from fairlead.driver.backend.nvml import sysfs
from fairlead.driver.backend.nvml.backend import NvmlBackend
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from tests.hardware.standin import state
from tests.support.driver.fake_nvml import FakeNvml


class StandIn(FakeNvml):
    """NVML whose GPUs do what the programs in the state directory do, and have the settings that are there."""

    def _check(self, device: Any) -> Any:
        gpu = super()._check(device)
        uuid = gpu.uuid.removeprefix("GPU-")
        self.utilization[gpu.uuid] = 99 if state.busy(uuid) else 0
        self.memory_used[gpu.uuid] = state.used_bytes(uuid)
        now = state.settings(uuid)
        self.compute_modes[gpu.minor] = now["compute_mode"]
        if hasattr(device, "mode") and not device.instances:
            device.mode = now["mig"]
        return gpu

    def nvmlDeviceGetComputeRunningProcesses(self, device: Any) -> list[Any]:
        """With the host's process IDs, which a program in a container does not know of itself."""
        uses = {use["file"]: use for use in state.uses(self._check(device).uuid.removeprefix("GPU-"))}
        found = {}
        for path in Path("/proc").glob("[0-9]*/fd/*") if uses else ():
            with contextlib.suppress(OSError):
                if (use := uses.get(path.readlink().name)) is not None:
                    found[int(path.parts[2])] = use["memory"]
        return [types.SimpleNamespace(pid=pid, usedGpuMemory=memory) for pid, memory in found.items()]

    def nvmlDeviceSetComputeMode(self, device: Any, mode: int) -> None:
        state.change(self._check(device).uuid.removeprefix("GPU-"), compute_mode=mode)

    def nvmlDeviceSetMigMode(self, device: Any, mode: int) -> int:
        uuid = self._check(device).uuid.removeprefix("GPU-")
        code = super().nvmlDeviceSetMigMode(device, mode)
        state.change(uuid, mig=mode)
        return code

    def nvmlDeviceGetPowerUsage(self, device: Any) -> int:
        uuid = self._check(device).uuid.removeprefix("GPU-")
        return int(1000 * (state.BUSY_W if state.busy(uuid) else state.IDLE_W))

    def nvmlEventSetWait_v2(self, events: object, timeout_ms: int) -> Any:
        self.xids += [(state.UUIDS.index(uuid), code) for uuid, code in state.take_xids()]
        return super().nvmlEventSetWait_v2(events, timeout_ms)


def install() -> None:
    root = Path(os.environ["GPU_STATE"]) / f"kernel-{os.getpid()}"
    profile = profiles.load(str(Path(__file__).with_name("h200-vm.yaml")))
    profile = msgspec.structs.replace(profile, gpus=profile.gpus[: len(state.UUIDS)])
    fake = StandIn(profile, node="n1", root=root, numa_nodes=1, virtual=True)
    for name in dir(pynvml):
        if name.startswith("nvml") and isinstance(getattr(pynvml, name), types.FunctionType):
            setattr(pynvml, name, _calling(fake, name))
    assert sysfs.Kernel.__init__.__kwdefaults__ is not None
    sysfs.Kernel.__init__.__kwdefaults__.update(sys=root / "sys", proc=root / "proc", dev=root / "dev")
    _on_dev_null("device_nodes")
    _on_dev_null("control_nodes")
    simulated = SimulatedBackend(profile, node="n1")
    NvmlBackend.set_time_slice = _set_time_slice  # type: ignore[method-assign]
    NvmlBackend.mps_program = lambda self: simulated.mps_program()  # type: ignore[method-assign]


def _set_time_slice(self: NvmlBackend, gpu_uuid: str, interval: str) -> None:
    state.change(gpu_uuid.removeprefix("GPU-"), time_slice=interval)


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
