"""MIG through NVML: the profiles and MIG devices of a GPU; creating and destroying them.

MIG mode is switched only where that needs no reset (Hopper and later, not in a vGPU guest): on with the first instance,
off with the last, never at start. Not locked: NvmlBackend lets one call at a time change a GPU.
"""

from __future__ import annotations

import logging
from typing import Any

from fairlead.driver.backend.interface import BackendError, DeviceGone
from fairlead.driver.backend.nvml.calls import Calls, GpuInstance, text
from fairlead.driver.backend.types import MigDevice, MigProfile

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
                continue  # it has no placement
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
        """The MIG devices of a GPU, sorted by placement.

        One whose compute instance does not fill its GPU instance is left out with a warning.
        """
        if not (self._calls.query("DeviceGetMigMode", device) or (0,))[0]:
            return ()
        found: dict[int, list[tuple[Any, GpuInstance]]] = {}
        for index in range(self._calls.query("DeviceGetMaxMigDeviceCount", device) or 0):
            mig = self._calls.query("DeviceGetMigDeviceHandleByIndex", device, index)
            if mig is None:
                continue
            gi_id = int(self._calls.call("DeviceGetGpuInstanceId", mig))
            instance = self._calls.gpu_instance(self._calls.call("DeviceGetGpuInstanceById", device, gi_id))
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
                    uuid=text(self._calls.call("DeviceGetUUID", mig)) or "",
                    parent_uuid=uuid,
                    parent_minor=minor,
                    profile=profile,
                    start=instance.start,
                    gi_id=gi_id,
                    ci_id=int(self._calls.call("DeviceGetComputeInstanceId", mig)),
                )
            )
        return tuple(sorted(made, key=lambda mig: mig.start))

    def _fills(self, mig: Any) -> bool:
        attributes = self._calls.query("DeviceGetAttributes", mig)
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
            compute = self._calls.call("GpuInstanceCreateComputeInstance", instance, kind)
            info = self._calls.call("ComputeInstanceGetInfo_v2", compute)
            return MigDevice(
                # From the compute instance's handle: walking all MIG devices takes seconds under load.
                uuid=text(self._calls.call("DeviceGetUUID", info.device)) or "",
                parent_uuid=uuid,
                parent_minor=minor,
                profile=profile,
                start=start,
                gi_id=self._calls.gpu_instance(instance).id,
                ci_id=int(info.id),
            )
        except BackendError as error:
            error.left_behind = not self._destroyed(instance)
            raise

    def destroy(self, device: Any, profile_id: int, start: int) -> bool:
        """Destroy the instance at that placement and its compute instances. Raises as Backend.destroy_mig."""
        infos = self._calls.profiles(device)
        found = [
            instance
            for info in infos
            if int(info.id) == profile_id
            for instance in self._calls.gpu_instances(device, profile_id, int(info.instanceCount))
            if instance.start == start
        ]
        for instance in found:
            for compute in self._calls.compute_instances(instance.handle):
                self._calls.call("ComputeInstanceDestroy", compute)
            self._calls.call("GpuInstanceDestroy", instance.handle)
        if found:
            self._switch_off(device, infos)
        return bool(found)

    def mode(self, device: Any) -> bool | None:
        """The mode that is in force, not the one that is pending."""
        mode = self._calls.query("DeviceGetMigMode", device)
        return None if mode is None else bool(mode[0])

    def set_mode(self, device: Any, minor: int, enabled: bool) -> None:
        """Raises as Backend.set_mig_mode.

        An Ampere switches at once where NVML can reset it, and else keeps the mode pending until a reset: that is taken
        back, or the next reset, for whatever reason, would change the GPU.
        """
        before = self.mode(device)
        if before is None:
            raise BackendError(f"gpu-{minor}: has no MIG", permanent=True)
        if before == enabled:
            return
        status = self._ask_for_mode(device, enabled)
        if self.mode(device) == enabled:
            return
        try:
            self._ask_for_mode(device, before)
        except BackendError as error:
            log.warning("gpu-%d: a change of MIG mode stays pending: %s", minor, error)
        if status and status != self._calls.nv.NVML_ERROR_RESET_REQUIRED:
            raise self._calls.translate(self._calls.nv.NVMLError(status), "DeviceSetMigMode")
        raise BackendError(
            f"gpu-{minor}: switching MIG mode {'on' if enabled else 'off'} takes a reset of the GPU here; run "
            f"`nvidia-smi -i {minor} -mig {int(enabled)}` on the node while nothing uses the GPU, and reset it or reboot",
            permanent=True,
        )

    def _ask_for_mode(self, device: Any, enabled: bool) -> int:
        """NVML's status of the activation. Raises BackendError."""
        nv = self._calls.nv
        return int(
            self._calls.call(
                "DeviceSetMigMode", device, nv.NVML_DEVICE_MIG_ENABLE if enabled else nv.NVML_DEVICE_MIG_DISABLE
            )
        )

    def mutable(self, device: Any) -> bool:
        """Whether MIG mode can be switched without a reset; False when that is not known."""
        try:
            architecture = self._calls.query("DeviceGetArchitecture", device) or 0
            guest = self._calls.query("DeviceGetVirtualizationMode", device)
        except DeviceGone:
            raise
        except BackendError:
            return False
        return bool(
            _HOPPER <= architecture < self._calls.nv.NVML_DEVICE_ARCH_UNKNOWN
            and guest != self._calls.nv.NVML_GPU_VIRTUALIZATION_MODE_VGPU
        )

    def _destroyed(self, instance: Any) -> bool:
        """Destroy a GPU instance whose compute instance could not be created; False when that fails, too."""
        try:
            for compute in self._calls.compute_instances(instance):
                self._calls.call("ComputeInstanceDestroy", compute)
            self._calls.call("GpuInstanceDestroy", instance)
        except BackendError as error:
            log.error("a GPU instance could not be destroyed: %s", error)
            return False
        return True

    def _switch_on(self, device: Any, minor: int) -> None:
        mode = self._calls.query("DeviceGetMigMode", device)
        if mode is not None and mode[0]:
            return
        if mode is None or not self.mutable(device):
            raise BackendError(
                f"gpu-{minor}: MIG mode is off, and switching it here needs a reset of the GPU; run "
                "`nvidia-smi -mig 1` and reset it",
                permanent=True,
            )
        status = self._calls.call("DeviceSetMigMode", device, self._calls.nv.NVML_DEVICE_MIG_ENABLE)
        if status:
            raise self._calls.translate(self._calls.nv.NVMLError(status), "DeviceSetMigMode")

    def _switch_off(self, device: Any, infos: list[Any]) -> None:
        """Leave MIG mode with the last instance, so that the GPU can be allocated whole. A failure is only logged."""
        if not self.mutable(device):
            return
        if any(self._calls.gpu_instances(device, info.id, int(info.instanceCount)) for info in infos):
            return
        try:
            self._calls.call("DeviceSetMigMode", device, self._calls.nv.NVML_DEVICE_MIG_DISABLE)
        except BackendError as error:
            log.warning("MIG mode stays on: %s", error)


def _gigabytes(mebibytes: int) -> int:
    return -(-mebibytes // 1024)
