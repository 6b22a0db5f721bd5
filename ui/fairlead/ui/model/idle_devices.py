"""How many devices of a running gang are idle, from what the driver wrote into its claims. Pure: objects in, text out."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator

import msgspec

from fairlead.api.drivers import DRIVERS
from fairlead.kube.device_usage import FRESH_S, DeviceId, DeviceUsage, usage_of
from fairlead.kube.resource import ResourceClaim
from fairlead.kube.resources import Raw
from fairlead.ui.model.gangs import age

LISTED_MAX = 8


def readable(claims: Iterable[Raw]) -> Iterator[ResourceClaim]:
    """The entries that are of the API's form."""
    for raw in claims:
        with contextlib.suppress(msgspec.ValidationError):
            yield msgspec.convert(raw, ResourceClaim)


def line(claims: Iterable[ResourceClaim], pods: Collection[str], *, now: float) -> str:
    """How busy the claims that are reserved for these pods (UIDs) are; "" where the driver said nothing lately."""
    devices: set[DeviceId] = set()
    said: dict[DeviceId, DeviceUsage] = {}
    for claim in claims:
        status = claim.status
        if status.allocation is None or not any(each.uid in pods for each in status.reserved_for):
            continue
        devices |= {
            DeviceId(each.driver, each.pool, each.device, each.share_id)
            for each in status.allocation.devices.results
            if each.driver in DRIVERS and not each.admin_access
        }
        said |= usage_of(ResourceClaim(status=status))
    known = {
        device: usage for device, usage in said.items() if device in devices and usage.sampled_at_s >= now - FRESH_S
    }
    idle = sorted((usage.since_s, device) for device, usage in known.items() if usage.state == "Idle")
    busy = sum(1 for usage in known.values() if usage.state == "Busy")
    if not idle and not busy:
        return ""
    listed = ", ".join(
        f"{device.pool}/{device.device} for {age(max(0.0, now - since))}" for since, device in idle[:LISTED_MAX]
    )
    more = f" and {len(idle) - LISTED_MAX} more" if len(idle) > LISTED_MAX else ""
    return f"{len(idle)} of {len(devices)} idle, {busy} busy" + (f"; idle: {listed}{more}" if idle else "")
