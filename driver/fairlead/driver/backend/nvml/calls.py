"""NVML through nvidia-ml-py: ctypes arrays and error codes stay in this module.

Half of all queries are not supported on half of all GPUs: `query` answers None for those, `call` raises for every
refusal. `nv` is the `pynvml` module, or an object that behaves like it. Inventory is built elsewhere.
"""

from __future__ import annotations

import ctypes
import dataclasses
import logging
from collections.abc import Callable
from typing import Any

from fairlead.driver.backend.interface import BackendError, DeviceGone, InUse, PlacementTaken

log = logging.getLogger(__name__)

_NODE_WORDS = 16  # of 64 NUMA nodes each
_ALL_LINKS = 0xFFFFFFFF  # the scope of a field value: the sum over all links


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GpuInstance:
    """A GPU instance that exists; `handle` is NVML's."""

    handle: Any
    id: int
    profile_id: int
    start: int
    size: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes of a GPU or a MIG device. `reserved` is what NVIDIA's driver keeps; None where it does not tell, and counts it as used."""

    total: int
    used: int
    free: int
    reserved: int | None = None


class Calls:
    """One NVML session. Methods raise BackendError and its kinds, never NVMLError."""

    def __init__(self, nv: Any) -> None:
        self.nv = nv
        self._memory_version = getattr(nv, "nvmlMemory_v2", None)
        # Codes for what a GPU, a driver version or a guest does not have.
        self._unsupported = frozenset(
            {
                nv.NVML_ERROR_NOT_SUPPORTED,
                nv.NVML_ERROR_FUNCTION_NOT_FOUND,
                nv.NVML_ERROR_NO_PERMISSION,
                nv.NVML_ERROR_NOT_FOUND,
                nv.NVML_ERROR_INVALID_ARGUMENT,
                nv.NVML_ERROR_NO_DATA,
                nv.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
                nv.NVML_ERROR_DEPRECATED,
                nv.NVML_ERROR_NOT_READY,
                nv.NVML_ERROR_INVALID_STATE,
            }
        )
        self._lost = frozenset({nv.NVML_ERROR_GPU_IS_LOST, nv.NVML_ERROR_GPU_NOT_FOUND})

    def query(self, name: str, *arguments: Any) -> Any:
        """The result of nvml<name>, or None where it is not supported.

        Raises DeviceGone for a lost GPU, and BackendError for any other failure.
        """
        try:
            return self._call(name, *arguments)
        except self.nv.NVMLError as error:
            if error.value in self._unsupported:
                return None
            raise self.translate(error, name) from error

    def reading(self, name: str, *arguments: Any) -> Any:
        """The result of nvml<name>, or None where it fails, whatever the reason. Raises DeviceGone for a lost GPU.

        For measurements: each is of use without the others.
        """
        try:
            return self.query(name, *arguments)
        except DeviceGone:
            raise
        except BackendError as error:
            log.debug("%s", error)
            return None

    def call(self, name: str, *arguments: Any) -> Any:
        """The result of nvml<name>; raises BackendError for every refusal."""
        try:
            return self._call(name, *arguments)
        except self.nv.NVMLError as error:
            raise self.translate(error, name) from error

    def translate(self, error: Any, name: str) -> BackendError:
        """The NVMLError of nvml<name> as one of our kinds."""
        text = f"nvml{name}: {error}"
        if error.value in self._lost:
            return DeviceGone(text)
        if error.value == self.nv.NVML_ERROR_IN_USE:
            return InUse(text)
        if error.value == self.nv.NVML_ERROR_INSUFFICIENT_RESOURCES:
            return PlacementTaken(text)
        return BackendError(text, permanent=error.value in self._unsupported)

    def _call(self, name: str, *arguments: Any) -> Any:
        function: Callable[..., Any] | None = getattr(self.nv, f"nvml{name}", None)
        if function is None:  # nvidia-ml-py is older
            raise self.nv.NVMLError(self.nv.NVML_ERROR_FUNCTION_NOT_FOUND)
        return function(*arguments)

    def running(self, device: Any) -> dict[int, int | None] | None:
        """Bytes that each process with a context uses, by PID, None where NVML does not tell; None without a list. Raises BackendError."""
        found: dict[int, int | None] = {}
        lists = [
            self.query(f"DeviceGet{kind}RunningProcesses", device) for kind in ("Compute", "Graphics", "MPSCompute")
        ]
        for each in (process for listed in lists for process in listed or ()):
            pid, used = int(each.pid), each.usedGpuMemory
            found[pid] = max((size for size in (found.get(pid), used) if size is not None), default=None)
        return None if all(listed is None for listed in lists) else found

    # -- MIG ---------------------------------------------------------------------------------------------------------

    def profiles(self, device: Any) -> list[Any]:
        """NVML's description of each GPU instance profile of the GPU."""
        found = []
        for index in range(self.nv.NVML_GPU_INSTANCE_PROFILE_COUNT):
            info = self.query("DeviceGetGpuInstanceProfileInfo", device, index)
            if info is not None:
                found.append(info)
        return found

    def placements(self, device: Any, profile_id: int) -> list[tuple[int, int]]:
        """(start, size) of each possible placement of the profile, sorted."""
        count = ctypes.c_uint(0)
        if self.query("DeviceGetGpuInstancePossiblePlacements", device, profile_id, None, ctypes.byref(count)) is None:
            return []
        array = (self.nv.c_nvmlGpuInstancePlacement_t * max(count.value, 1))()
        self.call("DeviceGetGpuInstancePossiblePlacements", device, profile_id, array, ctypes.byref(count))
        return sorted((int(array[at].start), int(array[at].size)) for at in range(count.value))

    def gpu_instances(self, device: Any, profile_id: int, count_max: int) -> list[GpuInstance]:
        """The instances of one profile, at most `count_max`, sorted by placement."""
        count = ctypes.c_uint(0)
        array = (self.nv.c_nvmlGpuInstance_t * max(count_max, 1))()
        if self.query("DeviceGetGpuInstances", device, profile_id, array, ctypes.byref(count)) is None:
            return []
        return sorted((self.gpu_instance(array[at]) for at in range(count.value)), key=lambda found: found.start)

    def gpu_instance(self, handle: Any) -> GpuInstance:
        info = self.call("GpuInstanceGetInfo", handle)
        return GpuInstance(
            handle=handle,
            id=int(info.id),
            profile_id=int(info.profileId),
            start=int(info.placement.start),
            size=int(info.placement.size),
        )

    def create_gpu_instance(self, device: Any, profile_id: int, start: int, size: int) -> Any:
        placement = self.nv.c_nvmlGpuInstancePlacement_t()
        placement.start, placement.size = start, size
        return self.call("DeviceCreateGpuInstanceWithPlacement", device, profile_id, ctypes.byref(placement))

    def filling_profile(self, gpu_instance: Any, slices: int) -> int:
        """The compute instance profile that fills the GPU instance. Raises BackendError when there is none."""
        for index in range(self.nv.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
            if index == self.nv.NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1:
                continue  # the same slice with other engines
            info = self.query("GpuInstanceGetComputeInstanceProfileInfo", gpu_instance, index, 0)
            if info is not None and int(info.sliceCount) == slices:
                return int(info.id)
        raise BackendError(f"no compute instance profile fills {slices} slices", permanent=True)

    def compute_instances(self, gpu_instance: Any) -> list[Any]:
        """Handles of all compute instances in a GPU instance."""
        found = []
        for index in range(self.nv.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
            info = self.query("GpuInstanceGetComputeInstanceProfileInfo", gpu_instance, index, 0)
            if info is None:
                continue
            count = ctypes.c_uint(0)
            array = (self.nv.c_nvmlComputeInstance_t * max(int(info.instanceCount), 1))()
            if (
                self.query("GpuInstanceGetComputeInstances", gpu_instance, info.id, array, ctypes.byref(count))
                is not None
            ):
                found += [array[at] for at in range(count.value)]
        return found

    # -- other queries of more than one call -------------------------------------------------------------------------

    def clique(self, device: Any) -> str | None:
        """`<cluster UUID>.<clique>` of the multi-node NVLink fabric that the GPU has joined, or None."""
        kind = getattr(self.nv, "c_nvmlGpuFabricInfoV_t", None)
        if kind is None:
            return None
        info = kind()
        if self.query("DeviceGetGpuFabricInfoV", device, ctypes.byref(info)) is None:
            return None
        if info.state != self.nv.NVML_GPU_FABRIC_STATE_COMPLETED or info.status != self.nv.NVML_SUCCESS:
            return None
        # Read as memory: as a C string the UUID would end at its first zero byte.
        raw = ctypes.string_at(ctypes.addressof(info) + kind.clusterUuid.offset, 16)
        if not any(raw):
            return None
        text = raw.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}.{int(info.cliqueId)}"

    def memory(self, device: Any) -> Memory | None:
        """The memory of a GPU or a MIG device; None where NVML does not say it. Raises BackendError and its kinds, as `query`.

        Version 1 of the call counts as used what the driver reserves (615 MiB on an idle H200); version 2, from driver 510
        on, has it apart.
        """
        info = None
        if self._memory_version is not None:
            info = self.query("DeviceGetMemoryInfo", device, self._memory_version)
        if info is not None:
            return Memory(total=int(info.total), used=int(info.used), free=int(info.free), reserved=int(info.reserved))
        info = self.query("DeviceGetMemoryInfo", device)
        return None if info is None else Memory(total=int(info.total), used=int(info.used), free=int(info.free))

    def numa_node(self, device: Any) -> int | None:
        """The NUMA node whose memory is nearest to the GPU; None where NVML does not tell, or names several."""
        words = self.query("DeviceGetMemoryAffinity", device, _NODE_WORDS, self.nv.NVML_AFFINITY_SCOPE_NODE)
        bits = sum(int(word) << (64 * at) for at, word in enumerate(words or ()))
        return bits.bit_length() - 1 if bits.bit_count() == 1 else None

    def recovery_action(self, device: Any) -> int | None:
        """One of NVML_GPU_RECOVERY_ACTION_*, or None where the driver does not report it."""
        field = getattr(self.nv, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", None)
        if field is None:
            return None
        values = self.query("DeviceGetFieldValues", device, [field])
        if values is None or values[0].nvmlReturn != self.nv.NVML_SUCCESS:
            return None
        return int(values[0].value.uiVal)

    def nvlink_bytes(self, device: Any) -> tuple[int | None, int | None]:
        """Bytes sent and received over all links; None where the GPU has no links or the driver does not count."""
        names = ("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX")
        fields = [getattr(self.nv, name, None) for name in names]
        if None in fields:
            return None, None
        values = self.reading("DeviceGetFieldValues", device, [(field, _ALL_LINKS) for field in fields])
        if values is None:
            return None, None
        sent, received = (
            int(value.value.ullVal) * 1024 if value.nvmlReturn == self.nv.NVML_SUCCESS else None for value in values
        )
        return sent, received


def text(value: Any) -> str | None:
    """NVML's strings are str or bytes, by version of the library."""
    if value is None:
        return None
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
