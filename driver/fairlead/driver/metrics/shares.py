"""What each claim's share of a device is, to what it is held, and what it uses. Pure.

One series for each share and metric; a pod is joined by `fairlead_driver_device_claim` on uuid, namespace, claim and share.
DCGM's exporter has no counterpart: it knows no part of a device but MIG's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily

from fairlead.driver.prepare.records import ClaimRecord
from fairlead.kube.device_usage import DeviceId, DeviceUsage

Usages = Callable[[str], Mapping[DeviceId, DeviceUsage]]
"""Of a claim's devices, by its UID."""

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


def families(records: Iterable[ClaimRecord], usages: Usages) -> Iterator[GaugeMetricFamily]:
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
