"""The collectors that the driver's registry calls at each scrape: what was polled last, claims and their shares, slices.

Which claims hold which devices, by pod, is a metric of its own, which PromQL joins to the measurements by `uuid`: a claim that ends does
not end the series of its GPU. Of each claim's share of a device there is one series for each metric; a pod is joined by
`fairlead_driver_device_claim` on uuid, namespace, claim and share. DCGM's exporter has no counterpart: it knows no part of a device but
MIG's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from fairlead.driver.backend.types import GpuCondition, Inventory, Telemetry
from fairlead.driver.metrics import readings
from fairlead.driver.metrics.readings import Family, measured
from fairlead.driver.prepare.records import ClaimRecord
from fairlead.driver.publish.known_faults import XidCounts
from fairlead.kube.device_usage import DeviceId, DeviceUsage

# The names of a claim's pods, by the claim's UID.
Pods = Callable[[str], Sequence[str]]
Usages = Callable[[str], Mapping[DeviceId, DeviceUsage]]
"""Of a claim's devices, by its UID."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class GpuCollector(Collector):
    """Each callable is called at each scrape and must not block. `pods` gives a claim's pods (names), `usages` how busy its
    devices are, by its UID.

    With `with_dcgm` each measurement is also served under DCGM's name.
    """

    inventory: Callable[[], Inventory]
    telemetry: Callable[[], Sequence[Telemetry]]
    conditions: Callable[[], Sequence[GpuCondition]]
    xids: XidCounts
    records: Callable[[], Iterable[ClaimRecord]]
    pods: Pods
    usages: Usages
    node: str
    with_dcgm: bool = False

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Empty: the metrics are known only after the first poll."""
        yield from ()

    def collect(self) -> Iterator[Family]:
        devices = measured(self.inventory(), self.telemetry(), self.conditions(), self.xids)
        records = tuple(self.records())
        yield from readings.families(devices)
        yield _device_claims(records, self.pods)
        yield from _share_families(records, self.usages)
        if self.with_dcgm:
            yield from readings.dcgm_families(devices, _sole_pods(records, self.pods), self.node)


@dataclasses.dataclass(frozen=True, eq=False)
class SlicesCollector(Collector):
    """`synced_at_s` tells when the slices last were as the devices, in epoch seconds; None before the first time."""

    synced_at_s: Callable[[], float | None]

    def describe(self) -> Iterator[GaugeMetricFamily]:
        yield from ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "fairlead_driver_slices_synced_timestamp_seconds",
            "When the ResourceSlices last were known to be as the node's devices.",
        )
        synced_at_s = self.synced_at_s()
        if synced_at_s is not None:
            family.add_metric((), synced_at_s)
        yield family


def _device_claims(records: Iterable[ClaimRecord], pods: Pods) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "fairlead_driver_device_claim",
        "1 for each device that a claim holds on this node, by pod.",
        labels=("device", "uuid", "namespace", "claim", "share", "pod"),
    )
    for record in records:
        for device in record.devices:
            if device.admin:
                continue
            for pod in pods(record.uid) or ("",):
                labels = (device.device, device.uuid, record.namespace, record.name, device.share_id or "", pod)
                family.add_metric(labels, 1)
    return family


def _sole_pods(records: Iterable[ClaimRecord], pods: Pods) -> dict[str, tuple[str, str]]:
    """Namespace and first pod by UUID, of the devices that exactly one claim has."""
    found: dict[str, list[tuple[str, str]]] = {}
    for record in records:
        for device in record.devices:
            if not device.admin and (device.mig is None or device.mig.uuid):
                found.setdefault(device.uuid, []).append((record.namespace, next(iter(pods(record.uid)), "")))
    return {uuid: users[0] for uuid, users in found.items() if len(users) == 1}


_P = "fairlead_driver_share_"
_METRICS: tuple[tuple[str, str, Callable[[DeviceUsage], int | None]], ...] = (
    ("memory_bytes", "Memory of the share.", lambda usage: usage.memory_bytes),
    ("memory_used_bytes", "Memory that the claim's programs use.", lambda usage: usage.memory_used_bytes),
    ("memory_limit_bytes", "Memory to which MPS holds each program.", lambda usage: usage.memory_limit_bytes),
    (
        "multiprocessors_limit",
        "Multiprocessors to which MPS holds each program.",
        lambda usage: usage.multiprocessors_limit,
    ),
)


def _share_families(records: Iterable[ClaimRecord], usages: Usages) -> Iterator[GaugeMetricFamily]:
    """A family for each metric, without what is not known or not limited."""
    found = [
        ((device.device, device.uuid, record.namespace, record.name, device.share_id), usage)
        for record in records
        for id_, usage in usages(record.uid).items()
        for device in record.devices
        if device.share_id and not device.admin and (device.device, device.share_id) == (id_.device, id_.share_id)
    ]
    for name, text, value in _METRICS:
        family = GaugeMetricFamily(_P + name, text, labels=("device", "uuid", "namespace", "claim", "share"))
        for labels, usage in found:
            if (each := value(usage)) is not None:
                family.add_metric(labels, each)
        yield family
