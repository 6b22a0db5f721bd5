"""NVML's GPU performance monitoring: samples that the library allocates, and metrics that are computed from two of them.

As the library does, it counts on its own: a sample holds the counters of its moment, and a metric is the mean between
the two. Time passes by one at each sample. Only Hopper and later have it; two samples have to be of the same device.
"""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any

import pynvml

from tests.support.driver.fake_nvml.kernel import FakeKernel
from tests.support.driver.fake_nvml.node import Device, FakeNode

_METRICS = {
    pynvml.NVML_GPM_METRIC_SM_UTIL: 0,
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: 1,
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: 2,
}


@dataclasses.dataclass(frozen=True)
class Counters:
    """Time, and percent times time of multiprocessors, tensor cores and memory, of the device `of`."""

    of: str
    time: int = 0
    sums: tuple[float, ...] = (0.0, 0.0, 0.0)


class GpmCalls(FakeNode):
    """`activity` has percentages of multiprocessors, tensor cores and memory by UUID, of GPU or MIG device.

    `gpm_samples` are those that are allocated, by address: None until they are filled.
    """

    def __init__(self, kernel: FakeKernel) -> None:
        super().__init__(kernel)
        self.activity: dict[str, tuple[float, ...]] = {}
        self.gpm_samples: dict[int, Counters | None] = {}
        self._counters: dict[str, Counters] = {}
        self._allocated = 0

    def nvmlGpmQueryDeviceSupport(self, device: Device) -> Any:
        support = pynvml.c_nvmlGpmSupport_t()
        support.isSupportedDevice = int(self._check(device).architecture in {"Hopper", "Blackwell", "Rubin"})
        return support

    def nvmlGpmSampleAlloc(self) -> Any:
        self._allocated += 1
        address = 0x10_0000 + self._allocated * 0x100
        self.gpm_samples[address] = None
        return ctypes.cast(ctypes.c_void_p(address), pynvml.c_nvmlGpmSample_t)

    def nvmlGpmSampleFree(self, sample: Any) -> None:
        del self.gpm_samples[_address(sample)]

    def nvmlGpmSampleGet(self, device: Device, sample: Any) -> Any:
        return self._fill(device, self._check(device).uuid, sample)

    def nvmlGpmMigSampleGet(self, device: Device, instance: int, sample: Any) -> Any:
        self._check(device)
        for gi in device.instances:
            if gi.id == instance and gi.compute_instances:
                return self._fill(device, gi.compute_instances[0].mig.uuid, sample)
        return self._fail(pynvml.NVML_ERROR_INVALID_ARGUMENT)

    def nvmlGpmMetricsGet(self, request: Any) -> Any:
        one, two = (self.gpm_samples[_address(sample)] for sample in (request.sample1, request.sample2))
        valid = request.version == pynvml.NVML_GPM_METRICS_GET_VERSION and request.numMetrics > 0
        if not valid or one is None or two is None or one.of != two.of:
            self._fail(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        assert one is not None
        assert two is not None
        for at in range(request.numMetrics):
            metric = request.metrics[at]
            index = _METRICS.get(metric.metricId)
            if index is None:
                metric.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED
                continue
            metric.nvmlReturn = pynvml.NVML_SUCCESS
            metric.value = (two.sums[index] - one.sums[index]) / (two.time - one.time)
        return request

    def _fill(self, device: Device, uuid: str, sample: Any) -> Any:
        if not self.nvmlGpmQueryDeviceSupport(device).isSupportedDevice:
            self._fail(pynvml.NVML_ERROR_NOT_SUPPORTED)
        before = self._counters.get(uuid, Counters(of=uuid))
        level = self.activity.get(uuid, (0.0, 0.0, 0.0))
        sums = tuple(total + each for total, each in zip(before.sums, level, strict=True))
        self._counters[uuid] = Counters(of=uuid, time=before.time + 1, sums=sums)
        assert _address(sample) in self.gpm_samples
        self.gpm_samples[_address(sample)] = self._counters[uuid]
        return sample


def _address(sample: Any) -> int:
    return int(ctypes.cast(sample, ctypes.c_void_p).value or 0)
