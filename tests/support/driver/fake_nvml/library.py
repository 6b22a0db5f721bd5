"""FakeNvml: the library's session and system calls, over the other groups of calls."""

from __future__ import annotations

import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pynvml

from fairlead.driver.backend.interface import BackendError
from fairlead.driver.backend.profiles.schema import NodeProfile
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from tests.support.driver.fake_nvml.gpm import GpmCalls
from tests.support.driver.fake_nvml.gpu import GpuCalls
from tests.support.driver.fake_nvml.kernel import FakeKernel
from tests.support.driver.fake_nvml.mig import MigCalls
from tests.support.driver.fake_nvml.node import Device, MigHandle
from tests.support.driver.fake_nvml.nvlink import NvLinkCalls


class FakeNvml(GpuCalls, NvLinkCalls, GpmCalls, MigCalls):
    """`nv` for NvmlBackend. With `root`, the node's /sys, /proc and /dev are files under it."""

    def __init__(
        self,
        node_profile: NodeProfile,
        *,
        node: str,
        root: Path | None = None,
        numa_nodes: int = 2,
        virtual: bool = False,
    ) -> None:
        super().__init__(FakeKernel(root, numa_nodes=numa_nodes, virtual=virtual))
        inventory = SimulatedBackend(node_profile, node=node).inventory()
        self._versions = inventory.driver_version, inventory.cuda_driver_version
        self._devices = [Device(gpu=gpu, mode=int(bool(gpu.mig_enabled))) for gpu in inventory.gpus]
        for device in self._devices:
            self._kernel.add_gpu(device.gpu)
            for mig in device.gpu.mig_devices:
                self._add(device, mig.profile, mig.start, mig)

    def __getattr__(self, name: str) -> Any:
        """The real module's constants and types; a call that is not faked is one that the library lacks."""
        real = getattr(pynvml, name)
        if name.startswith("nvml") and isinstance(real, types.FunctionType):
            return lambda *_: self._fail(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return real

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml"):
            object.__getattribute__(self, "calls")[name] += 1
            code = object.__getattribute__(self, "errors").get(name)
            if code is not None:
                return lambda *_: self._fail(code)
        return object.__getattribute__(self, name)

    def nvmlInitWithFlags(self, flags: int) -> None:
        self.open += 1

    def nvmlShutdown(self) -> None:
        if not self.open:
            self._fail(pynvml.NVML_ERROR_UNINITIALIZED)
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return str(self._or_unsupported(self._versions[0]))

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        major, minor = str(self._or_unsupported(self._versions[1])).split(".")
        return int(major) * 1000 + int(minor) * 10

    def nvmlDeviceGetCount(self) -> int:
        return len(self._devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Device:
        # Index order is the library's own; here the reverse of the minors, so that a test fails that confuses them.
        device = self._devices[len(self._devices) - 1 - index]
        self._check(device)
        return device

    def nvmlDeviceGetHandleByUUID(self, wanted: str) -> Device | MigHandle:
        for device in self._devices:
            if device.gpu.uuid == wanted:
                self._check(device)
                return device
            for mig in (ci.mig for gi in device.instances for ci in gi.compute_instances):
                if mig.uuid == wanted:
                    self._check(mig)
                    return mig
        return self._fail(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlEventSetCreate(self) -> object:
        return object()

    def nvmlDeviceRegisterEvents(self, device: Device, kinds: int, events: object) -> None:
        self.registered.add(self._check(device).minor)

    def nvmlEventSetWait_v2(self, events: object, timeout_ms: int) -> Any:
        while self.xids:
            minor, code = self.xids.pop(0)
            if minor in self.registered:
                device = next(device for device in self._devices if device.gpu.minor == minor)
                return types.SimpleNamespace(
                    device=device, eventType=pynvml.nvmlEventTypeXidCriticalError, eventData=code
                )
        return self._fail(pynvml.NVML_ERROR_TIMEOUT)

    def smi(self, arguments: Sequence[str]) -> None:
        """nvidia-smi: `--gpu-reset -i UUID,…` of GPUs that no process has open, this process with a session of NVML included."""
        if arguments[0] != "--gpu-reset":
            return
        wanted = [device for device in self._devices if device.gpu.uuid in arguments[2].split(",")]
        minors = {device.gpu.minor for device in wanted}
        if self.open or self.busy or minors & self.processes.keys():
            raise BackendError("exit status 3: GPU 00000000:07:00.0 is currently in use by another client")
        for device in wanted:
            linked = set(device.gpu.nvlink.peers) if device.gpu.nvlink and not device.gpu.nvlink.switched else set()
            if linked - minors:
                raise BackendError("exit status 3: these GPUs must be reset, too")
            device.instances.clear()
            if device.gpu.architecture != "Ampere":
                device.mode = 0
            self.recovery.pop(device.gpu.minor, None)
            self.compute_modes.pop(device.gpu.minor, None)
            corrected, uncorrected, _, failed = self.remapped.get(device.gpu.minor, (0, 0, 0, 0))
            self.remapped[device.gpu.minor] = corrected, uncorrected, 0, failed

    def bind(self, minor: int, driver: str = "vfio-pci") -> None:
        """Bind a GPU to another kernel driver: NVML no longer lists it."""
        [device] = [device for device in self._devices if device.gpu.minor == minor]
        self._devices.remove(device)
        self._kernel.bind(device.gpu, driver)
