"""MIG through NVML: what a GPU can be cut into, what it is cut into, cutting and mending.

Exists apart from discovery because this changes the hardware. MIG mode is only ever switched where that needs no reset
(Hopper and later, not in a vGPU guest), on with the first instance and off with the last; never at start.
Not locked: NvmlBackend lets one call at a GPU at a time.
"""

from __future__ import annotations

import logging
from typing import Any

from fairlead.driver.backend.nvml.calls import Calls, GpuInstance, text
from fairlead.driver.backend.types import BackendError, DeviceGone, MigDevice, MigProfile

log = logging.getLogger(__name__)

_MIB = 1024 * 1024
_HOPPER = 9


class NvmlMig:
    """`device` is NVML's handle of a GPU throughout."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def profiles(self, device: Any) -> tuple[MigProfile, ...]:
        found = []
        for info in self._calls.profiles(device):
            placements = self._calls.placements(device, info.id)
            sizes = {size for _, size in placements}
            if len(sizes) != 1:
                continue  # nowhere to put it
            name = (text(info.name) or "").lower().removeprefix("mig ")
            found.append(
                MigProfile(
                    name=name or f"{info.sliceCount}g.{_gigabytes(int(info.memorySizeMB))}gb",
                    id=int(info.id),
                    compute_slices=int(info.sliceCount),
                    memory_slices=sizes.pop(),
                    starts=tuple(start for start, _ in placements),
                    memory_bytes=int(info.memorySizeMB) * _MIB,  # NVML's MB is a MiB
                    multiprocessors=int(info.multiprocessorCount),
                    copy_engines=int(info.copyEngineCount),
                    decoders=int(info.decoderCount),
                    encoders=int(info.encoderCount),
                    jpeg_engines=int(info.jpegCount),
                    ofa_engines=int(info.ofaCount),
                )
            )
        return tuple(found)

    def devices(self, device: Any, uuid: str, minor: int, warnings: list[str]) -> tuple[MigDevice, ...]:
        """The MIG devices of a GPU, sorted by placement; those whose compute instance does not fill its GPU instance
        are left out with a warning.
        """
        if not (self._calls.ask("DeviceGetMigMode", device) or (0,))[0]:
            return ()
        found: dict[int, list[tuple[Any, GpuInstance]]] = {}
        for index in range(self._calls.ask("DeviceGetMaxMigDeviceCount", device) or 0):
            mig = self._calls.ask("DeviceGetMigDeviceHandleByIndex", device, index)
            if mig is None:
                continue
            gi_id = int(self._calls.must("DeviceGetGpuInstanceId", mig))
            instance = self._calls.gpu_instance(self._calls.must("DeviceGetGpuInstanceById", device, gi_id))
            found.setdefault(gi_id, []).append((mig, instance))
        made = []
        by_id = {profile.id: profile for profile in self.profiles(device)}
        for gi_id, in_instance in sorted(found.items()):
            mig, instance = in_instance[0]
            profile = by_id.get(instance.profile_id)
            if len(in_instance) > 1 or profile is None or not self._fills(mig):
                warnings.append(
                    f"gpu-{minor}: GPU instance {gi_id} is shared by {len(in_instance)} compute instances or not "
                    "filled by one; its MIG devices are left out"
                )
                continue
            made.append(
                MigDevice(
                    uuid=text(self._calls.must("DeviceGetUUID", mig)) or "",
                    parent_uuid=uuid,
                    parent_minor=minor,
                    profile=profile,
                    start=instance.start,
                    gi_id=gi_id,
                    ci_id=int(self._calls.must("DeviceGetComputeInstanceId", mig)),
                )
            )
        return tuple(sorted(made, key=lambda mig: mig.start))

    def _fills(self, mig: Any) -> bool:
        attributes = self._calls.ask("DeviceGetAttributes", mig)
        return attributes is None or attributes.gpuInstanceSliceCount == attributes.computeInstanceSliceCount

    def create(self, device: Any, uuid: str, minor: int, profile_id: int, start: int) -> MigDevice:
        """One GPU instance with a compute instance that fills it. Raises as Backend.create_mig."""
        profile = next((p for p in self.profiles(device) if p.id == profile_id), None)
        if profile is None or start not in profile.starts:
            raise BackendError(f"gpu-{minor}: no MIG profile {profile_id} at slice {start}", permanent=True)
        self._switch_on(device, minor)
        instance = self._calls.create_gpu_instance(device, profile_id, start, profile.memory_slices)
        try:
            kind = self._calls.filling_profile(instance, profile.compute_slices)
            compute = self._calls.must("GpuInstanceCreateComputeInstance", instance, kind)
            info = self._calls.must("ComputeInstanceGetInfo_v2", compute)
            return MigDevice(
                # From the compute instance's own handle: walking all MIG devices takes seconds under load.
                uuid=text(self._calls.must("DeviceGetUUID", info.device)) or "",
                parent_uuid=uuid,
                parent_minor=minor,
                profile=profile,
                start=start,
                gi_id=self._calls.gpu_instance(instance).id,
                ci_id=int(info.id),
            )
        except BackendError as error:
            error.left_behind = not self._clear(instance)
            raise

    def destroy(self, device: Any, profile_id: int, start: int) -> bool:
        """The instance at that placement and what is in it. Raises as Backend.destroy_mig."""
        infos = self._calls.profiles(device)
        there = [
            instance
            for info in infos
            if int(info.id) == profile_id
            for instance in self._calls.gpu_instances(device, profile_id, int(info.instanceCount))
            if instance.start == start
        ]
        for instance in there:
            for compute in self._calls.compute_instances(instance.handle):
                self._calls.must("ComputeInstanceDestroy", compute)
            self._calls.must("GpuInstanceDestroy", instance.handle)
        if there:
            self._switch_off(device, infos)
        return bool(there)

    def mutable(self, device: Any) -> bool:
        """Whether MIG mode can be switched without a reset; what cannot be told, cannot."""
        try:
            architecture = self._calls.ask("DeviceGetArchitecture", device) or 0
            guest = self._calls.ask("DeviceGetVirtualizationMode", device)
        except DeviceGone:
            raise
        except BackendError:
            return False
        return bool(
            _HOPPER <= architecture < self._calls.nv.NVML_DEVICE_ARCH_UNKNOWN
            and guest != self._calls.nv.NVML_GPU_VIRTUALIZATION_MODE_VGPU
        )

    def _clear(self, instance: Any) -> bool:
        """Whether a GPU instance whose compute instance failed could be taken back."""
        try:
            for compute in self._calls.compute_instances(instance):
                self._calls.must("ComputeInstanceDestroy", compute)
            self._calls.must("GpuInstanceDestroy", instance)
        except BackendError as error:
            log.error("a GPU instance could not be taken back: %s", error)
            return False
        return True

    def _switch_on(self, device: Any, minor: int) -> None:
        mode = self._calls.ask("DeviceGetMigMode", device)
        if mode is not None and mode[0]:
            return
        if mode is None or not self.mutable(device):
            raise BackendError(
                f"gpu-{minor}: MIG mode is off, and switching it here needs a reset of the GPU; run "
                "`nvidia-smi -mig 1` and reset it",
                permanent=True,
            )
        status = self._calls.must("DeviceSetMigMode", device, self._calls.nv.NVML_DEVICE_MIG_ENABLE)
        if status:
            raise self._calls.translated(self._calls.nv.NVMLError(status), "DeviceSetMigMode")

    def _switch_off(self, device: Any, infos: list[Any]) -> None:
        """Out of MIG mode once the last instance is gone, so that the GPU can be given whole. Failing that is no harm."""
        if not self.mutable(device):
            return
        if any(self._calls.gpu_instances(device, info.id, int(info.instanceCount)) for info in infos):
            return
        try:
            self._calls.must("DeviceSetMigMode", device, self._calls.nv.NVML_DEVICE_MIG_DISABLE)
        except BackendError as error:
            log.warning("MIG mode stays on: %s", error)


def _gigabytes(mebibytes: int) -> int:
    return -(-mebibytes // 1024)
