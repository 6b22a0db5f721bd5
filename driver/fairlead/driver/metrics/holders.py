"""Which claims hold which devices, by pod. Pure.

A metric of its own, which PromQL joins to the measurements by `uuid`: a claim that ends does not end the series of its
GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client.core import GaugeMetricFamily

from fairlead.driver.prepare.records import ClaimRecord

# The names of a claim's pods, by the claim's UID.
Pods = Callable[[str], Sequence[str]]


def device_claims(records: Iterable[ClaimRecord], pods: Pods) -> GaugeMetricFamily:
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


def sole_pods(records: Iterable[ClaimRecord], pods: Pods) -> dict[str, tuple[str, str]]:
    """Namespace and first pod by UUID, of the devices that exactly one claim has."""
    found: dict[str, list[tuple[str, str]]] = {}
    for record in records:
        for device in record.devices:
            if not device.admin and (device.mig is None or device.mig.uuid):
                found.setdefault(device.uuid, []).append((record.namespace, next(iter(pods(record.uid)), "")))
    return {uuid: users[0] for uuid, users in found.items() if len(users) == 1}
