"""How many devices of a running gang are idle, and what its shares of devices use of their limits, from what the driver wrote into its claims. Pure: objects in, text out."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from fairlead.api.drivers import DRIVERS
from fairlead.kube.device_usage import FRESH_S, DeviceId, DeviceUsage, usage_of
from fairlead.kube.resource import ResourceClaim
from fairlead.kube.resources import Raw
from fairlead.ui.model.gangs import age

LISTED_MAX = 8
ENDS_WITH = "a fatal error of one program ends the claim's other programs on the device, and no other claim's"


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
    shares = _shares(known)
    if not idle and not busy:
        return shares
    listed = ", ".join(
        f"{device.pool}/{device.device} for {age(max(0.0, now - since))}" for since, device in idle[:LISTED_MAX]
    )
    more = f" and {len(idle) - LISTED_MAX} more" if len(idle) > LISTED_MAX else ""
    counted = f"{len(idle)} of {len(devices)} idle, {busy} busy" + (f"; idle: {listed}{more}" if idle else "")
    return "; ".join(filter(None, (counted, shares)))


def _shares(known: Mapping[DeviceId, DeviceUsage]) -> str:
    """What the shares have, use and are held to, and what an error of one of their programs ends."""
    own = sorted((device.pool, device.device, share(usage)) for device, usage in known.items() if device.share_id)
    if not own:
        return ""
    listed = ", ".join(f"{pool}/{device} {said}" for pool, device, said in own[:LISTED_MAX])
    more = f" and {len(own) - LISTED_MAX} more" if len(own) > LISTED_MAX else ""
    held = any(usage.memory_limit_bytes is not None for device, usage in known.items() if device.share_id)
    return f"shares: {listed}{more}" + (f"; {ENDS_WITH}" if held else "")


def share(usage: DeviceUsage) -> str:
    """What a claim's share of a device is, what of it is in use, and to what its programs are held."""
    size = "all" if usage.memory_bytes is None else _gib(usage.memory_bytes)
    said = f"share of {size}"
    if usage.memory_used_bytes is not None:
        said = f"{_gib(usage.memory_used_bytes)} of a {said}"
    limits = []
    if usage.memory_limit_bytes is not None:
        limits.append(_gib(usage.memory_limit_bytes))
    if usage.multiprocessors_limit is not None:
        limits.append(f"{usage.multiprocessors_limit} multiprocessors")
    return f"{said}, each program at most {' and '.join(limits)} by MPS" if limits else f"{said}, held to it by nothing"


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
