"""A node's devices as ResourceSlices: the one builder for every reason to publish. Pure.

Inventory and taints in, slice bodies out; generation, names and owners of the slices are sync.py's.
Keeps: same inventory, same slices; at most 64 devices in a slice (the API's limit once any device has a taint) and 8
counter sets; devices in numeric order (gpu-2 before gpu-10), because kube-scheduler allocates the first that fits. **Devices that
overlap are published together only where their counters are kept**, and never in the first slice, which is written last (sync.py).
What the apiserver would drop is not published: then a device with a taint is withheld, a shared GPU is whole, and one that is cut on
demand is whole, or withheld while MIG devices of it exist. What it keeps is found out by keeping.py; `Kept` never follows from what is
published.
Source: k8s.io/api/resource/v1 types.go; NVIDIA's DRA driver.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeVar

from msgspec import structs

from fairlead.api import withheld as api
from fairlead.api.mig_profiles import MigStrategy
from fairlead.api.withheld import GROUPS, Group
from fairlead.driver.backend import device_names
from fairlead.driver.backend.links import islands
from fairlead.driver.backend.types import Gpu, Inventory
from fairlead.driver.publish import devices
from fairlead.driver.publish.attributes import GpuAttributes, resource_names
from fairlead.driver.publish.devices import Spans
from fairlead.kube import releases
from fairlead.kube.resource import CounterSet, Device, DeviceTaint

DEVICES_PER_SLICE_MAX = 64
COUNTER_SETS_PER_SLICE_MAX = 8

T = TypeVar("T")
_NO_COUNTERS = DeviceTaint(key=api.NO_COUNTERS, effect="NoSchedule")
_REASONS: Final[Mapping[str, str]] = {
    api.NO_COUNTERS: "claims have MIG devices of it",
    api.RELEASING: "its claim is gone, and containers that use it are being stopped",
}


# -- what the apiserver keeps -------------------------------------------------------------------------------------------

# "split": counter sets in slices of their own (1.35 and later); "combined": beside the devices that use them (1.34).
Layout = Literal["split", "combined"]

NEEDS: Final[Mapping[Group, releases.Need]] = {
    "counters": releases.need("partitionable-devices"),
    "taints": releases.need("device-taints"),
    "shares": releases.need("consumable-capacity"),
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """`counters`: the layout in which they are kept; None: not at all, so that no two devices may overlap."""

    counters: Layout | None
    taints: bool
    shares: bool

    def has(self, group: Group) -> bool:
        return self.counters is not None if group == "counters" else bool(getattr(self, group))

    def without(self, groups: Collection[Group]) -> Kept:
        return Kept(
            counters=None if "counters" in groups else self.counters,
            taints=self.taints and "taints" not in groups,
            shares=self.shares and "shares" not in groups,
        )

    def lacking(self, wanted: Collection[Group]) -> tuple[Group, ...]:
        return tuple(group for group in GROUPS if group in wanted and not self.has(group))


ALL_KEPT: Final = Kept(counters="split", taints=True, shares=True)
UNKNOWN_KEPT: Final = Kept(counters=None, taints=True, shares=True)
"""Before anything was found out: no device overlaps. Lost taints and shares show on the first slice that has them."""


# -- what is published ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SliceBody:
    """What one ResourceSlice holds: devices or counter sets, both only in the combined layout."""

    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PoolSlices:
    """The slices of the node's pool, in order, and what was left out of them.

    `unpublished` are devices that are there, or could be made, and that claims of before may hold. `notes` say which of them are
    withheld and why, by GPU where it is all of it.
    """

    slices: tuple[SliceBody, ...]
    warnings: tuple[str, ...] = ()
    unpublished: tuple[Device, ...] = ()
    notes: api.Withheld = dataclasses.field(default_factory=dict)

    @property
    def devices(self) -> tuple[Device, ...]:
        return tuple(device for body in self.slices for device in body.devices)

    @property
    def known(self) -> tuple[Device, ...]:
        return (*self.devices, *self.unpublished)


# The devices of one GPU, and the counter set that they consume.
_Group = tuple[CounterSet | None, list[Device]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """How the node's devices are offered, as its operator says.

    `dynamic_mig`: MIG devices are created on demand. `shared` lets other whole GPUs be in several claims at once, each with a
    part of the memory, and `shared_mig` the MIG devices that exist; a claim that does not say how much gets one of `replicas`
    equal shares. `mig_strategy` says under which extended resources devices are named. `rails`: of GPUs, by PCI address, where their
    switches do not tell, or others count.
    """

    dynamic_mig: bool = False
    shared: bool = False
    shared_mig: bool = False
    replicas: int = 1
    mig_strategy: MigStrategy = "none"
    rails: tuple[tuple[str, int], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the slices follow from, besides the inventory.

    `taints` are by the UUID of a GPU (then also for its MIG devices) or of a MIG device; `reasons` say in words what is wrong with
    a GPU, by its UUID. `partitionable` holds the UUIDs of GPUs whose MIG devices are created on demand: they publish every
    placement, over counters that exclude what overlaps. `kept` is what the apiserver keeps; without counters `mig_in_use` are the
    UUIDs of GPUs of which claims have MIG devices. `releasing` is what claims that are gone have still, by GPU.
    """

    taints: Mapping[str, tuple[DeviceTaint, ...]] = dataclasses.field(default_factory=dict)
    reasons: Mapping[str, str] = dataclasses.field(default_factory=dict)
    partitionable: frozenset[str] = frozenset()
    mig_in_use: frozenset[str] = frozenset()
    releasing: Spans = dataclasses.field(default_factory=dict)
    kept: Kept = ALL_KEPT
    offer: Offer = Offer()


_NOTHING_MORE = Facts()


def build(inventory: Inventory, facts: Facts = _NOTHING_MORE) -> PoolSlices:
    """The slices that this node should publish. A pool without devices has one empty slice, which shows that the driver runs."""
    warnings: list[str] = []
    island_of = islands(inventory.gpus)
    groups: list[_Group] = []
    unpublished: list[Device] = []
    notes: dict[str, tuple[api.Taint, ...]] = {}
    offered = facts.partitionable if facts.kept.counters is not None else frozenset()
    resources = resource_names(inventory, facts.offer.mig_strategy, partitionable=offered)
    rails = dict(facts.offer.rails)
    for gpu in sorted(inventory.gpus, key=lambda gpu: gpu.minor):
        rail = rails.get(gpu.pci_bus_id or "", gpu.rail)
        attributes = GpuAttributes(inventory, gpu, island_of.get(gpu.minor), warnings, resources, rail=rail)
        if gpu.mig_enabled and not gpu.mig_devices and not (gpu.uuid in offered and gpu.mig_profiles):
            warnings.append(f"gpu-{gpu.minor}: MIG mode is on but no MIG device exists; nothing of it is published")
        counter_set, of_gpu = _group(gpu, attributes, facts)
        group = counter_set, devices.tainted(gpu, of_gpu, facts.releasing)
        published, withheld = _parted(group, facts.kept)
        groups.append(published)
        notes |= _noted(gpu, group[1], withheld, facts.reasons.get(gpu.uuid, ""))
        unpublished += withheld
        if _on_demand(gpu, facts) and facts.kept.counters is None:
            there = {device.name for device in group[1]}
            unpublished += [device for device in _placements(gpu, attributes, facts)[1] if device.name not in there]
    slices = _combined(groups) if facts.kept.counters == "combined" else _split(groups)
    return PoolSlices(
        slices=slices or (SliceBody(),), warnings=tuple(warnings), unpublished=tuple(unpublished), notes=notes
    )


def _on_demand(gpu: Gpu, facts: Facts) -> bool:
    return gpu.uuid in facts.partitionable and bool(gpu.mig_profiles)


def _group(gpu: Gpu, attributes: GpuAttributes, facts: Facts) -> _Group:
    """The devices of a GPU with their taints; overlapping ones only with counters, or with the taint that withholds all of them."""
    own = facts.taints.get(gpu.uuid, ())
    on_demand = _on_demand(gpu, facts)
    if on_demand and facts.kept.counters is not None:
        return _placements(gpu, attributes, facts)
    if on_demand and (gpu.mig_devices or gpu.uuid in facts.mig_in_use):
        return None, _placements(gpu, attributes, facts, _NO_COUNTERS)[1]
    if gpu.mig_enabled:
        return None, [
            devices.mig_device(
                mig,
                attributes,
                own + facts.taints.get(mig.uuid, ()),
                shared=facts.offer.shared_mig and facts.kept.shares,
                replicas=facts.offer.replicas,
            )
            for mig in gpu.mig_devices
        ]
    shared = facts.offer.shared and facts.kept.shares and not on_demand
    return None, [devices.whole_gpu(gpu, attributes, own, shared=shared, replicas=facts.offer.replicas)]


def _placements(gpu: Gpu, attributes: GpuAttributes, facts: Facts, *more: DeviceTaint) -> _Group:
    counter_set = devices.counter_set_of(gpu)
    own = facts.taints.get(gpu.uuid, ())
    return counter_set, devices.partitions(gpu, counter_set, attributes, (*more, *own))


def _parted(group: _Group, kept: Kept) -> tuple[_Group, list[Device]]:
    """What is published of a GPU, and what is withheld."""
    counter_set, of_gpu = group
    if kept.taints:
        withheld = [device for device in of_gpu if _NO_COUNTERS in device.taints]
        published = [device for device in of_gpu if _NO_COUNTERS not in device.taints]
    else:
        withheld = [device for device in of_gpu if _effective(device)]
        published = [structs.replace(device, taints=()) for device in of_gpu if not _effective(device)]
    return (counter_set if published else None, published), withheld


def _effective(device: Device) -> bool:
    return any(taint.effect in api.EFFECTS for taint in device.taints)


def _noted(
    gpu: Gpu, of_gpu: Sequence[Device], withheld: Sequence[Device], reason: str
) -> dict[str, tuple[api.Taint, ...]]:
    by_device = {device.name: _described(device, reason) for device in withheld}
    if len(withheld) == len(of_gpu) and len(set(by_device.values())) == 1:
        return {device_names.gpu_name(gpu): next(iter(by_device.values()))}
    return by_device


def _described(device: Device, reason: str) -> tuple[api.Taint, ...]:
    """In the order of the device's taints: what evicts comes first."""
    return tuple(
        api.Taint(
            key=taint.key,
            value=taint.value,
            effect=effect,
            reason=_REASONS.get(taint.key, reason)[: api.REASON_MAX],
        )
        for taint in device.taints
        for effect in api.EFFECTS
        if taint.effect == effect
    )


def _split(groups: Iterable[_Group]) -> tuple[SliceBody, ...]:
    """Counter sets first, then all devices."""
    groups = list(groups)
    sets = [counter_set for counter_set, _ in groups if counter_set is not None]
    return (
        *(SliceBody(shared_counters=batch) for batch in _batches(sets, COUNTER_SETS_PER_SLICE_MAX)),
        *_device_slices(device for _, of_gpu in groups for device in of_gpu),
    )


def _combined(groups: Iterable[_Group]) -> tuple[SliceBody, ...]:
    """One slice per GPU with counters, after the first slice of all other devices, which may be empty.

    A counter set serves only the devices of its own slice, so those beyond the limit are not published.
    """
    groups = list(groups)
    others = tuple(_device_slices(device for counter_set, of_gpu in groups if counter_set is None for device in of_gpu))
    counted = tuple(
        SliceBody(devices=tuple(of_gpu[:DEVICES_PER_SLICE_MAX]), shared_counters=(counter_set,))
        for counter_set, of_gpu in groups
        if counter_set is not None
    )
    if not counted:
        return others
    return (*(others[:1] or (SliceBody(),)), *counted, *others[1:])


def _device_slices(found: Iterable[Device]) -> Iterator[SliceBody]:
    return (SliceBody(devices=batch) for batch in _batches(list(found), DEVICES_PER_SLICE_MAX))


def _batches(items: Sequence[T], size: int) -> Iterator[tuple[T, ...]]:
    return (tuple(items[at : at + size]) for at in range(0, len(items), size))
