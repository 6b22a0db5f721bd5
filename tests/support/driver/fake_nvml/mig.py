"""NVML's calls for MIG: mode, profiles, placements, GPU and compute instances, MIG devices.

As the library does, it reuses instance IDs, calls a taken placement "insufficient resources", and wants a reset to
switch the MIG mode of an Ampere.
"""

from __future__ import annotations

import ctypes
import types
import uuid
from typing import Any

import pynvml

from fairlead.driver.backend import geometry
from fairlead.driver.backend.types import MigDevice, MigProfile
from tests.support.driver.fake_nvml.kernel import FakeKernel
from tests.support.driver.fake_nvml.node import ComputeInstance, Device, FakeNode, GpuInstance, MigHandle

_CI_SLICES = {0: 1, 1: 2, 2: 3, 3: 4, 4: 7, 5: 8, 6: 6, 7: 1}
_MIB = 1024 * 1024


class MigCalls(FakeNode):
    def __init__(self, kernel: FakeKernel) -> None:
        super().__init__(kernel)
        self._address = 0x1000
        self._created = 0
        self._by_address: dict[int, GpuInstance | ComputeInstance] = {}

    # -- MIG: mode, profiles, placements -------------------------------------------------------------------------------

    def nvmlDeviceGetMigMode(self, device: Device) -> list[int]:
        if self._check(device).mig_enabled is None:
            self._fail(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [device.mode, device.mode if device.pending is None else device.pending]

    def nvmlDeviceSetMigMode(self, device: Device, mode: int) -> int:
        if self._check(device).architecture == "Ampere":
            device.pending = None if mode == device.mode else mode
            return 0 if mode == device.mode else int(pynvml.NVML_ERROR_RESET_REQUIRED)
        if device.instances:
            self._fail(pynvml.NVML_ERROR_IN_USE)
        device.mode = mode
        return 0

    def nvmlDeviceGetGpuInstanceProfileInfo(self, device: Device, index: int) -> Any:
        profiles = self._check(device).mig_profiles
        if index >= len(profiles):
            self._fail(pynvml.NVML_ERROR_NOT_SUPPORTED)
        found = profiles[index]
        info = pynvml.c_nvmlGpuInstanceProfileInfo_v2_t()
        info.id, info.sliceCount, info.instanceCount = found.id, found.compute_slices, len(found.starts)
        info.multiprocessorCount, info.copyEngineCount = found.multiprocessors or 0, found.copy_engines or 0
        info.decoderCount, info.encoderCount = found.decoders or 0, found.encoders or 0
        info.jpegCount, info.ofaCount = found.jpeg_engines or 0, found.ofa_engines or 0
        info.memorySizeMB = (found.memory_bytes or 0) // _MIB
        info.name = f"MIG {found.name}".encode()
        return info

    def nvmlDeviceGetGpuInstancePossiblePlacements(
        self, device: Device, profile_id: int, array: Any, count: Any
    ) -> int:
        found = self._profile_of(device, profile_id)
        if array is not None:
            for at, start in enumerate(found.starts):
                array[at].start, array[at].size = start, found.memory_slices
        count._obj.value = len(found.starts)
        return 0

    def _profile_of(self, device: Device, profile_id: int) -> MigProfile:
        for found in self._check(device).mig_profiles:
            if found.id == profile_id:
                return found
        return self._fail(pynvml.NVML_ERROR_INVALID_ARGUMENT)

    # -- MIG: instances ------------------------------------------------------------------------------------------------

    def nvmlDeviceCreateGpuInstanceWithPlacement(self, device: Device, profile_id: int, placement: Any) -> Any:
        found, start = self._profile_of(device, profile_id), int(placement._obj.start)
        if not device.mode:
            self._fail(pynvml.NVML_ERROR_NOT_SUPPORTED)
        placed = [(gi.profile, gi.start) for gi in device.instances]
        if not geometry.fits(device.gpu.mig_profiles, placed, (found, start)):
            self._fail(pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES)
        return self._pointer(self._add_gi(device, found, start), pynvml.c_nvmlGpuInstance_t)

    def nvmlGpuInstanceCreateComputeInstance(self, handle: Any, profile_id: int) -> Any:
        gi = self._gi(handle)
        if gi.compute_instances:
            self._fail(pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES)
        self._created += 1
        ci = self._add_ci(
            gi, 0, profile_id, f"MIG-{uuid.uuid5(uuid.NAMESPACE_OID, f'{gi.device.gpu.uuid}/{self._created}')}"
        )
        return self._pointer(ci, pynvml.c_nvmlComputeInstance_t)

    def nvmlGpuInstanceDestroy(self, handle: Any) -> int:
        gi = self._gi(handle)
        if gi.compute_instances:
            self._fail(pynvml.NVML_ERROR_IN_USE)
        gi.device.instances.remove(gi)
        self._kernel.revoke(gi.device.gpu.minor, gi.id, None)
        return 0

    def nvmlComputeInstanceDestroy(self, handle: Any) -> int:
        ci = self._by_address[_address(handle)]
        assert isinstance(ci, ComputeInstance)
        if self.busy:
            self._fail(pynvml.NVML_ERROR_IN_USE)
        ci.mig.gpu_instance.compute_instances.remove(ci)
        self._kernel.revoke(ci.mig.gpu_instance.device.gpu.minor, ci.mig.gpu_instance.id, ci.id)
        return 0

    def nvmlDeviceGetGpuInstances(self, device: Device, profile_id: int, array: Any, count: Any) -> int:
        self._check(device)
        found = [gi for gi in device.instances if gi.profile.id == profile_id]
        for at, gi in enumerate(found):
            array[at] = self._pointer(gi, pynvml.c_nvmlGpuInstance_t)
        count._obj.value = len(found)
        return 0

    def nvmlDeviceGetGpuInstanceById(self, device: Device, gi_id: int) -> Any:
        self._check(device)
        for gi in device.instances:
            if gi.id == gi_id:
                return self._pointer(gi, pynvml.c_nvmlGpuInstance_t)
        return self._fail(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlGpuInstanceGetInfo(self, handle: Any) -> Any:
        gi = self._gi(handle)
        info = pynvml.c_nvmlGpuInstanceInfo_t()
        info.id, info.profileId = gi.id, gi.profile.id
        info.placement.start, info.placement.size = gi.start, gi.profile.memory_slices
        return info

    def nvmlGpuInstanceGetComputeInstanceProfileInfo(self, handle: Any, index: int, engines: int) -> Any:
        gi, slices = self._gi(handle), _CI_SLICES.get(index, 99)
        if slices > gi.profile.compute_slices:
            self._fail(pynvml.NVML_ERROR_NOT_SUPPORTED)
        info = pynvml.c_nvmlComputeInstanceProfileInfo_v2_t()
        info.id, info.sliceCount = index, slices
        info.instanceCount = gi.profile.compute_slices // slices
        return info

    def nvmlGpuInstanceGetComputeInstances(self, handle: Any, profile_id: int, array: Any, count: Any) -> int:
        found = [ci for ci in self._gi(handle).compute_instances if ci.profile_index == profile_id]
        for at, ci in enumerate(found):
            array[at] = self._pointer(ci, pynvml.c_nvmlComputeInstance_t)
        count._obj.value = len(found)
        return 0

    def nvmlComputeInstanceGetInfo_v2(self, handle: Any) -> Any:
        ci = self._by_address[_address(handle)]
        assert isinstance(ci, ComputeInstance)
        return types.SimpleNamespace(device=ci.mig, id=ci.id, profileId=ci.profile_index)

    # -- MIG devices ---------------------------------------------------------------------------------------------------

    def nvmlDeviceGetMaxMigDeviceCount(self, device: Device) -> int:
        return 7 if self._check(device).mig_profiles else 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Device, index: int) -> MigHandle:
        self._check(device)
        migs = [ci.mig for gi in sorted(device.instances, key=lambda gi: gi.id) for ci in gi.compute_instances]
        if index >= len(migs):
            self._fail(pynvml.NVML_ERROR_NOT_FOUND)
        return migs[index]

    def nvmlDeviceGetGpuInstanceId(self, mig: MigHandle) -> int:
        self._check(mig)
        if all(ci.mig is not mig for ci in mig.gpu_instance.compute_instances):
            self._fail(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return mig.gpu_instance.id

    def nvmlDeviceGetComputeInstanceId(self, mig: MigHandle) -> int:
        self._check(mig)
        return mig.ci_id

    def nvmlDeviceGetAttributes(self, mig: MigHandle) -> Any:
        self._check(mig)
        info = pynvml.c_nvmlDeviceAttributes()
        info.gpuInstanceSliceCount = mig.gpu_instance.profile.compute_slices
        ci = next(ci for ci in mig.gpu_instance.compute_instances if ci.id == mig.ci_id)
        info.computeInstanceSliceCount = _CI_SLICES[ci.profile_index]
        return info

    # -- inside --------------------------------------------------------------------------------------------------------

    def split(self, minor: int, start: int) -> None:
        """An administrator puts a second compute instance into a GPU instance."""
        [gi] = [
            gi for device in self._devices for gi in device.instances if (device.gpu.minor, gi.start) == (minor, start)
        ]
        self._add_ci(gi, len(gi.compute_instances), 0, "MIG-second")

    def _add(self, device: Device, found: MigProfile, start: int, mig: MigDevice) -> None:
        gi = self._add_gi(device, found, start)
        gi.id = mig.gi_id
        index = next(index for index, slices in _CI_SLICES.items() if slices == found.compute_slices)
        self._add_ci(gi, mig.ci_id, index, mig.uuid)
        self._kernel.grant(gi.device.gpu.minor, gi.id, None)

    def _add_gi(self, device: Device, found: MigProfile, start: int) -> GpuInstance:
        taken = {gi.id for gi in device.instances}
        gi = GpuInstance(
            address=self._next(),
            id=next(number for number in range(1, 16) if number not in taken),
            profile=found,
            start=start,
            device=device,
        )
        self._by_address[gi.address] = gi
        device.instances.append(gi)
        self._kernel.grant(gi.device.gpu.minor, gi.id, None)
        return gi

    def _add_ci(self, gi: GpuInstance, ci_id: int, index: int, mig_uuid: str) -> ComputeInstance:
        ci = ComputeInstance(
            address=self._next(),
            id=ci_id,
            profile_index=index,
            mig=MigHandle(uuid=mig_uuid, gpu_instance=gi, ci_id=ci_id),
        )
        self._by_address[ci.address] = ci
        gi.compute_instances.append(ci)
        self._kernel.grant(gi.device.gpu.minor, gi.id, ci_id)
        return ci

    def _next(self) -> int:
        self._address += 0x100
        return self._address

    def _gi(self, handle: Any) -> GpuInstance:
        gi = self._by_address[_address(handle)]
        assert isinstance(gi, GpuInstance)
        self._check(gi.device)
        return gi

    @staticmethod
    def _pointer(of: GpuInstance | ComputeInstance, kind: Any) -> Any:
        return ctypes.cast(ctypes.c_void_p(of.address), kind)


def _address(handle: Any) -> int:
    return int(ctypes.cast(handle, ctypes.c_void_p).value or 0)
