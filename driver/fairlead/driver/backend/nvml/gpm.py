"""How busy multiprocessors, tensor cores and memory are, from NVML's GPU performance monitoring (GPM, Hopper and later).

The hardware counts; NVML reads all counters of a device into a sample, and a value is computed from two samples. So the
sample of the poll before is kept for each device, and its first poll gives no value. A MIG device is sampled through its
GPU and the ID of its GPU instance.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Collection
from typing import Any

from fairlead.driver.backend.interface import BackendError, DeviceGone
from fairlead.driver.backend.nvml.calls import Calls


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
