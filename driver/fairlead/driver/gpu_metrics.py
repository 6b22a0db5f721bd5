"""Metrics of the GPUs, and of the claims and pods that have them.

One PromQL join answers which claim uses which GPU how much: load by device, and `fairlead_driver_device_claim` from
device to claim. Claims are a metric of their own, so that a claim that ends does not end the series of its GPU. Reads
the results of the last poll: a scrape never waits for hardware. `dcgm` adds DCGM exporter's names and labels, with the
pod that has the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from fairlead.driver.backend.types import Inventory, Telemetry
from fairlead.driver.prepare.records import ClaimRecord

# Name, DCGM's name, help, field of Telemetry, factor from our unit to DCGM's.
_READINGS = (
    ("fairlead_driver_gpu_utilization_percent", "DCGM_FI_DEV_GPU_UTIL", "How busy.", "utilization_percent", 1.0),
    ("fairlead_driver_gpu_memory_used_bytes", "DCGM_FI_DEV_FB_USED", "Memory in use.", "memory_used_bytes", 1 / 2**20),
    ("fairlead_driver_gpu_power_watts", "DCGM_FI_DEV_POWER_USAGE", "Power drawn.", "power_w", 1.0),
    ("fairlead_driver_gpu_temperature_celsius", "DCGM_FI_DEV_GPU_TEMP", "Temperature.", "temperature_c", 1.0),
)
_NVLINK = (
    ("fairlead_driver_gpu_nvlink_sent_bytes", "Sent over NVLink since the driver was loaded.", "nvlink_sent_bytes"),
    ("fairlead_driver_gpu_nvlink_received_bytes", "Received over NVLink since then.", "nvlink_received_bytes"),
)

_DCGM_LABELS = ("gpu", "UUID", "device", "modelName", "Hostname", "namespace", "pod")


class GpuCollector(Collector):
    """Each argument is called at each scrape and must not block. `pods` gives a claim's pods (names) by its UID."""

    def __init__(
        self,
        *,
        inventory: Callable[[], Inventory],
        telemetry: Callable[[], Sequence[Telemetry]],
        records: Callable[[], Iterable[ClaimRecord]],
        pods: Callable[[str], Sequence[str]],
        node: str,
        dcgm: bool = False,
    ) -> None:
        self._inventory = inventory
        self._telemetry = telemetry
        self._records = records
        self._pods = pods
        self._node = node
        self._dcgm = dcgm

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Empty: the metrics are known only after the first poll."""
        yield from ()

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        gpus = {gpu.uuid: gpu for gpu in self._inventory().gpus}
        total = GaugeMetricFamily("fairlead_driver_gpu_memory_bytes", "Memory there is.", labels=("device", "uuid"))
        for gpu in gpus.values():
            if gpu.memory_bytes is not None:
                total.add_metric((f"gpu-{gpu.minor}", gpu.uuid), gpu.memory_bytes)
        yield total
        pods = self._sole_pods()
        read = [reading for reading in self._telemetry() if reading.uuid in gpus]
        for name, alias, text, field, factor in _READINGS:
            family = GaugeMetricFamily(name, text, labels=("device", "uuid"))
            other = GaugeMetricFamily(alias, text, labels=_DCGM_LABELS)
            for reading in read:
                value = getattr(reading, field)
                if value is None:
                    continue
                gpu = gpus[reading.uuid]
                family.add_metric((f"gpu-{gpu.minor}", gpu.uuid), value)
                namespace, pod = pods.get(gpu.uuid, ("", ""))
                gpu_labels = (str(gpu.minor), gpu.uuid, f"nvidia{gpu.minor}", gpu.product_name or "", self._node)
                other.add_metric((*gpu_labels, namespace, pod), value * factor)
            yield family
            if self._dcgm:
                yield other
        for name, text, field in _NVLINK:
            counter = CounterMetricFamily(name, text, labels=("device", "uuid"))
            for reading in read:
                if (value := getattr(reading, field)) is not None:
                    counter.add_metric((f"gpu-{gpus[reading.uuid].minor}", reading.uuid), value)
            yield counter
        yield self._claims()

    def _sole_pods(self) -> dict[str, tuple[str, str]]:
        """Namespace and first pod by UUID, of whole GPUs that exactly one claim has."""
        found: dict[str, list[tuple[str, str]]] = {}
        for record in self._records():
            for device in record.devices:
                if device.mig is None and not device.admin:
                    found.setdefault(device.gpu_uuid, []).append(
                        (record.namespace, next(iter(self._pods(record.uid)), ""))
                    )
        return {uuid: users[0] for uuid, users in found.items() if len(users) == 1}

    def _claims(self) -> GaugeMetricFamily:
        family = GaugeMetricFamily(
            "fairlead_driver_device_claim",
            "1 for each device that a claim holds on this node, by pod.",
            labels=("device", "uuid", "namespace", "claim", "share", "pod"),
        )
        for record in self._records():
            for device in record.devices:
                if device.admin:
                    continue
                for pod in self._pods(record.uid) or ("",):
                    labels = (device.device, device.uuid, record.namespace, record.name, device.share_id or "", pod)
                    family.add_metric(labels, 1)
        return family
