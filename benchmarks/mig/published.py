"""What one node publishes, as the baselines read it: devices in order, with their sizes and the counters they consume.

The rules are those of the API: a device is free while nothing holds it, and its counters are not overdrawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.mig.hardware import Hardware
from benchmarks.mig.requests import MigRequest
from fairlead.driver.publish.slices import SliceBody
from fairlead.engine.types.values import Amount, amount
from fairlead.kube.resource import Device

Counters = tuple[tuple[tuple[str, str], Amount], ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """One published device. `parent` tells GPUs of a node apart; compute and memory are in slices."""

    name: str
    parent: str
    profile: str  # empty: a whole GPU
    product: str
    compute: int
    memory: int
    memory_bytes: Amount
    multiprocessors: Amount
    counters: Counters


@dataclass(frozen=True, slots=True)
class Published:
    offers: tuple[Offer, ...]
    totals: Mapping[tuple[str, str], Amount]
    sizes: Mapping[str, tuple[Amount, Amount]]  # (memory, multiprocessors) by profile, also of those that no device has


def read(hardware: Hardware, bodies: Sequence[SliceBody]) -> Published:
    """The offers in the order in which kube-scheduler tries them."""
    totals = {
        (each.name, name): amount(counter.value)
        for body in bodies
        for each in body.shared_counters
        for name, counter in each.counters.items()
    }
    offers = tuple(_offer(hardware, device) for body in bodies for device in body.devices)
    sizes = {
        size.name: (size.memory_bytes or 0, size.multiprocessors or 0)
        for size in hardware.sizes
        if "+" not in size.name
    }
    return Published(offers, totals, sizes)


def serves(offer: Offer, request: MigRequest, least: tuple[Amount, Amount] | None) -> bool:
    """Whether the device is of the kind requested. `least`: memory and multiprocessors of static requests, which may get more."""
    if not request.profile:
        return not offer.profile and offer.product == request.product
    if least is None:
        return offer.profile == request.profile
    return bool(offer.profile) and offer.memory_bytes >= least[0] and offer.multiprocessors >= least[1]


def _offer(hardware: Hardware, device: Device) -> Offer:
    def text(name: str) -> str:
        found = device.attributes.get(name)
        return "" if found is None else found.string or ""

    profile = text("profile")
    size = next((each for each in hardware.sizes if each.name == profile), hardware.sizes[-1])
    size = size if profile else max(hardware.sizes, key=lambda each: each.compute_slices)
    capacity = {name: amount(entry.value) for name, entry in device.capacity.items()}
    return Offer(
        name=device.name,
        parent=text("parentUUID") or text("uuid"),
        profile=profile,
        product=text("productName"),
        compute=size.compute_slices,
        memory=size.memory_slices,
        memory_bytes=capacity.get("memory", 0),
        multiprocessors=capacity.get("multiprocessors", 0),
        counters=tuple(
            ((each.counter_set, name), amount(counter.value))
            for each in device.consumes_counters
            for name, counter in each.counters.items()
        ),
    )
