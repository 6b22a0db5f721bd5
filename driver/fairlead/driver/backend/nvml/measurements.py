"""What NVML measures on GPUs and MIG devices: their load at each poll, and what seldom changes.

Each value is read on its own: one that the GPU does not have, or that fails, is None and costs no other. A GPU that is
lost has no values at all; its status says why.
How busy multiprocessors, tensor cores and memory are comes from GPU performance monitoring (GPM, Hopper and later). The hardware counts;
NVML reads all counters of a device into a sample, and a value is computed from two samples. So the sample of the poll before is kept
for each device, and its first poll gives no value. A MIG device is sampled through its GPU and the ID of its GPU instance.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
from collections.abc import Collection, Iterable
from typing import Any

from fairlead.driver.backend.interface import BackendError, DeviceGone, Shares
from fairlead.driver.backend.nvml import tables
from fairlead.driver.backend.nvml.calls import Calls, Memory
from fairlead.driver.backend.types import GpuCondition, MigDevice, RemappedRows, Telemetry, ThrottleReason

_MHZ = 1_000_000
_CLOSE_S = 1.0


class Measurements:
    """Handles of MIG devices and samples of activity are kept from one call to the next. Thread-safe."""

    def __init__(self, calls: Calls, shares: Shares) -> None:
        self._calls = calls
        self._shares = shares
        self._gpm = Gpm(calls)
        self._lock = threading.Lock()
        # By MIG UUID: looking a MIG device up can take long.
        self._mig_handles: dict[str, Any | None] = {}
        # By GPU UUID, where it is known: which reasons the GPU can tell.
        self._throttle_bits: dict[str, int] = {}

    def telemetry(self, gpus: Collection[str], migs: Collection[MigDevice]) -> tuple[Telemetry, ...]:
        """The load of these GPUs (UUIDs) and MIG devices, sorted by UUID."""
        with self._lock:
            self._mig_handles = {mig.uuid: self._mig_handles.get(mig.uuid) for mig in migs}
            handles = self._handles(gpus)
            of_gpus = [read for uuid, device in handles.items() if (read := self._gpu(uuid, device)) is not None]
            of_migs = [(mig, *pair) for mig in migs if (pair := self._mig(mig)) is not None]
            # Activity last: should NVML take long over it, the other values are all of one moment.
            found = [self._with_activity(read, handles[read.uuid], read.uuid) for read in of_gpus]
            for mig, read, instance in of_migs:
                gpu = handles.get(mig.parent_uuid)
                if gpu is not None and instance is not None:
                    found.append(self._with_activity(read, gpu, mig.parent_uuid, instance))
                else:
                    found.append(read)
            complete = sorted((read for read in found if read is not None), key=lambda read: read.uuid)
            self._gpm.keep({read.uuid for read in complete})
            return tuple(complete)

    def conditions(self, gpus: Iterable[str]) -> tuple[GpuCondition, ...]:
        """The condition of these GPUs (UUIDs), sorted by UUID."""
        found = (self._condition(uuid, device) for uuid, device in sorted(self._handles(gpus).items()))
        return tuple(each for each in found if each is not None)

    def close(self) -> None:
        """Free what NVML allocated. The session has to be open still. Does not wait for a call that hangs."""
        if self._lock.acquire(timeout=_CLOSE_S):
            try:
                self._gpm.keep(())
            finally:
                self._lock.release()

    def _handles(self, gpus: Iterable[str]) -> dict[str, Any]:
        found = {}
        for uuid in gpus:
            try:
                found[uuid] = self._calls.call("DeviceGetHandleByUUID", uuid)
            except BackendError:
                continue
        return found

    def _gpu(self, uuid: str, device: Any) -> Telemetry | None:
        read, nv = self._calls.reading, self._calls.nv
        try:
            utilization = read("DeviceGetUtilizationRates", device)
            memory = self._memory(device)
            power = read("DeviceGetPowerUsage", device)
            temperature = read("DeviceGetTemperature", device, nv.NVML_TEMPERATURE_GPU)
            sm_clock = read("DeviceGetClockInfo", device, nv.NVML_CLOCK_SM)
            memory_clock = read("DeviceGetClockInfo", device, nv.NVML_CLOCK_MEM)
            sent, received = self._calls.nvlink_bytes(device)
            throttled = self._throttled(uuid, device)
            by_claim = self._by_claim(uuid, device)
        except BackendError:
            return None
        return Telemetry(
            uuid=uuid,
            utilization_percent=None if utilization is None else float(utilization.gpu),
            memory_used_bytes=None if memory is None else memory.used,
            memory_free_bytes=None if memory is None else memory.free,
            memory_reserved_bytes=None if memory is None else memory.reserved,
            power_w=None if power is None else power / 1000,
            temperature_c=None if temperature is None else float(temperature),
            nvlink_sent_bytes=sent,
            nvlink_received_bytes=received,
            sm_clock_hz=None if sm_clock is None else float(sm_clock) * _MHZ,
            memory_clock_hz=None if memory_clock is None else float(memory_clock) * _MHZ,
            memory_by_claim=by_claim,
            throttled=throttled,
        )

    def _by_claim(self, uuid: str, device: Any) -> dict[str, int]:
        """Of a shared GPU or MIG device. Raises DeviceGone for a lost GPU."""
        there = self._shares.of(uuid)
        try:
            used = self._calls.running(device) if there else None
        except DeviceGone:
            raise
        except BackendError:
            return {}
        claims = None if used is None else self._shares.claims(used)
        if used is None or claims is None:
            return {}
        found, unknown = dict.fromkeys(there, 0), set[str]()
        for pid, uids in claims.items():
            own, size = uids & there.keys(), used[pid]
            if size is None or len(own) > 1:  # a container with two shares of this device
                unknown |= own
                continue
            for uid in own:
                found[uid] += size
        return {uid: size for uid, size in found.items() if uid not in unknown}

    def _throttled(self, uuid: str, device: Any) -> dict[ThrottleReason, bool]:
        now = self._of_both_names("DeviceGetCurrentClocks{}Reasons", device)
        if now is None:
            return {}
        if uuid not in self._throttle_bits:
            supported = self._of_both_names("DeviceGetSupportedClocks{}Reasons", device)
            if supported is None:
                return {}
            self._throttle_bits[uuid] = int(supported)
        known = self._throttle_bits[uuid]
        return {reason: bool(now & bit) for reason, bit in tables.THROTTLE_BITS.items() if known & bit}

    def _of_both_names(self, name: str, device: Any) -> int | None:
        """Event reasons were throttle reasons before driver 535."""
        found = self._calls.reading(name.format("Event"), device)
        if found is None:
            found = self._calls.reading(name.format("Throttle"), device)
        return None if found is None else int(found)

    def _mig(self, mig: MigDevice) -> tuple[Telemetry, int | None] | None:
        """The memory in use, and the ID of its GPU instance; None when it was destroyed since the inventory.

        The ID is asked of the MIG device, not taken from the inventory: another one may have it by now.
        """
        try:
            handle = self._mig_handles.get(mig.uuid)
            if handle is None:
                handle = self._mig_handles[mig.uuid] = self._calls.call("DeviceGetHandleByUUID", mig.uuid)
            memory = self._memory(handle)
            instance = self._calls.reading("DeviceGetGpuInstanceId", handle)
            by_claim = self._by_claim(mig.uuid, handle)
        except BackendError:
            self._mig_handles.pop(mig.uuid, None)
            return None
        if memory is None and instance is None:
            return None
        load = Telemetry(
            uuid=mig.uuid,
            memory_used_bytes=None if memory is None else memory.used,
            memory_free_bytes=None if memory is None else memory.free,
            memory_reserved_bytes=None if memory is None else memory.reserved,
            memory_by_claim=by_claim,
        )
        return load, None if instance is None else int(instance)

    def _memory(self, device: Any) -> Memory | None:
        """None where the reading fails. Raises DeviceGone for a lost GPU."""
        try:
            return self._calls.memory(device)
        except DeviceGone:
            raise
        except BackendError:
            return None

    def _with_activity(self, read: Telemetry, gpu: Any, gpu_uuid: str, instance: int | None = None) -> Telemetry | None:
        """`gpu` is the handle of the GPU, `instance` the GPU instance of a MIG device. None when the GPU is lost."""
        try:
            activity = self._gpm.activity(read.uuid, gpu, gpu_uuid, instance)
        except BackendError:
            return None
        return dataclasses.replace(
            read, sm_active_ratio=activity.sm, tensor_active_ratio=activity.tensor, dram_active_ratio=activity.dram
        )

    def _condition(self, uuid: str, device: Any) -> GpuCondition | None:
        read, nv = self._calls.reading, self._calls.nv
        try:
            limit = read("DeviceGetEnforcedPowerLimit", device)
            # Not the volatile counts: those begin at zero whenever the kernel driver is loaded, and in MIG mode a GPU has none.
            corrected, uncorrected = (
                read("DeviceGetTotalEccErrors", device, kind, nv.NVML_AGGREGATE_ECC)
                for kind in (nv.NVML_MEMORY_ERROR_TYPE_CORRECTED, nv.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
            )
            rows = read("DeviceGetRemappedRows", device)
            links = self._active_links(device)
        except BackendError:
            return None
        return GpuCondition(
            uuid=uuid,
            power_limit_w=None if limit is None else limit / 1000,
            nvlink_active_links=links,
            ecc_corrected=None if corrected is None else int(corrected),
            ecc_uncorrected=None if uncorrected is None else int(uncorrected),
            remapped_rows=None
            if rows is None
            else RemappedRows(
                corrected=int(rows[0]), uncorrected=int(rows[1]), pending=bool(rows[2]), failed=bool(rows[3])
            ),
        )

    def _active_links(self, device: Any) -> int | None:
        """The active links of a GPU that has NVLinks; not taken from the inventory, where one without an active link has none."""
        active = 0
        for link in range(self._calls.nv.NVML_NVLINK_MAX_LINKS):
            try:
                state = self._calls.query("DeviceGetNvLinkState", device, link)
            except DeviceGone:
                raise
            except BackendError:
                return None  # of one link it is not known
            if state is None:
                return active if link else None  # it has no more links
            active += bool(state)
        return active


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Ratios from 0 to 1, means since the poll before; None where NVML did not compute them."""

    sm: float | None = None
    tensor: float | None = None
    dram: float | None = None


@dataclasses.dataclass(slots=True)
class _Samples:
    """Two buffers of NVML, used in turn. `earlier` is None until one sample was read."""

    spare: Any
    earlier: Any = None


class Gpm:
    """The last sample of each device, by UUID. Not locked."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._supported: dict[str, bool] = {}
        self._samples: dict[str, _Samples] = {}
        self._request: Any = None

    def activity(self, uuid: str, device: Any, gpu_uuid: str, instance: int | None = None) -> Activity:
        """The activity of a GPU, or of the GPU instance with that ID, since the last call for `uuid`.

        `device` is NVML's handle of the GPU. Empty at the first call, and after one that failed. Raises DeviceGone.
        """
        try:
            if not self._is_supported(gpu_uuid, device):
                return Activity()
            samples = self._samples.get(uuid)
            if samples is None:
                samples = self._samples[uuid] = _Samples(spare=self._calls.call("GpmSampleAlloc"))
            later = samples.spare
            if instance is None:
                self._calls.call("GpmSampleGet", device, later)
            else:
                self._calls.call("GpmMigSampleGet", device, instance, later)
            earlier, samples.earlier, samples.spare = samples.earlier, later, samples.earlier
            if earlier is None:
                samples.spare = self._calls.call("GpmSampleAlloc")
                return Activity()
            return self._computed(earlier, later)
        except DeviceGone:
            self._free(uuid)
            raise
        except BackendError:
            self._free(uuid)  # what was counted in between is not known: begin again
            return Activity()

    def keep(self, uuids: Collection[str]) -> None:
        """Free the samples of all other devices."""
        for uuid in self._samples.keys() - set(uuids):
            self._free(uuid)

    def _is_supported(self, gpu_uuid: str, device: Any) -> bool:
        """Asked once per GPU. An older library does not know the question."""
        known = self._supported.get(gpu_uuid)
        if known is None:
            support = self._calls.query("GpmQueryDeviceSupport", device)
            known = self._supported[gpu_uuid] = support is not None and bool(support.isSupportedDevice)
        return known

    def _computed(self, earlier: Any, later: Any) -> Activity:
        nv = self._calls.nv
        wanted = (nv.NVML_GPM_METRIC_SM_UTIL, nv.NVML_GPM_METRIC_ANY_TENSOR_UTIL, nv.NVML_GPM_METRIC_DRAM_BW_UTIL)
        if self._request is None:
            self._request = nv.c_nvmlGpmMetricsGet_t()  # 19 kB: made once
        request = self._request
        request.version, request.numMetrics = nv.NVML_GPM_METRICS_GET_VERSION, len(wanted)
        request.sample1, request.sample2 = earlier, later
        for at, metric in enumerate(wanted):
            request.metrics[at].metricId = metric
            request.metrics[at].nvmlReturn = nv.NVML_ERROR_UNKNOWN
        self._calls.call("GpmMetricsGet", request)
        sm, tensor, dram = (self._ratio(request.metrics[at]) for at in range(len(wanted)))
        return Activity(sm=sm, tensor=tensor, dram=dram)

    def _ratio(self, metric: Any) -> float | None:
        """NVML's percentage as a ratio. Two samples around a reset of the counters give what is no percentage."""
        value = float(metric.value)
        if metric.nvmlReturn != self._calls.nv.NVML_SUCCESS or not math.isfinite(value) or value < 0:
            return None
        return min(value / 100, 1.0)

    def _free(self, uuid: str) -> None:
        samples = self._samples.pop(uuid, None)
        if samples is None:
            return
        for sample in (samples.spare, samples.earlier):
            if sample is not None:
                with contextlib.suppress(BackendError):
                    self._calls.call("GpmSampleFree", sample)
