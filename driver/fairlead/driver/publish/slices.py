"""A node's devices as ResourceSlices: the one builder for every reason to publish. Pure.

Inventory and taints in, slice bodies out; generation, names and owners of the slices are sync.py's.
Keeps: same inventory, same slices; at most 64 devices in a slice (the API's limit once any device has a taint) and 8
counter sets; devices in numeric order (gpu-2 before gpu-10), because kube-scheduler allocates the first that fits.
Source: k8s.io/api/resource/v1 types.go; NVIDIA's DRA driver.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeVar

from fairlead.driver.backend.islands import islands
from fairlead.driver.backend.types import Inventory
from fairlead.driver.publish import devices
from fairlead.driver.publish.attributes import GpuAttributes
from fairlead.driver.publish.resource_names import MigStrategy, resource_names
from fairlead.kube.resource import CounterSet, Device, DeviceTaint

DEVICES_PER_SLICE_MAX = 64
COUNTER_SETS_PER_SLICE_MAX = 8

# "split": counter sets in slices of their own (1.35 and later); "combined": beside the devices that use them (1.34).
Layout = Literal["split", "combined"]
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SliceBody:
    """What one ResourceSlice holds: devices or counter sets, both only in the combined layout."""

    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PoolSlices:
    """The slices of the node's pool, in order, and what was left out of them."""

    slices: tuple[SliceBody, ...]
    warnings: tuple[str, ...] = ()

    @property
    def devices(self) -> tuple[Device, ...]:
        return tuple(device for body in self.slices for device in body.devices)


# The devices of one GPU, and the counter set that they consume.
_Group = tuple[CounterSet | None, list[Device]]


def build(
    inventory: Inventory,
    *,
    taints: Mapping[str, tuple[DeviceTaint, ...]] | None = None,
    partitionable: frozenset[str] = frozenset(),
    shared: bool = False,
    shared_mig: bool = False,
    shared_replicas: int = 1,
    mig_strategy: MigStrategy = "none",
    layout: Layout = "split",
) -> PoolSlices:
    """The slices that this node should publish.

    `taints` are by the UUID of a GPU (then also for its MIG devices) or of a MIG device. `partitionable` holds the
    UUIDs of GPUs whose MIG devices are created on demand: they publish every placement, over counters that exclude what
    overlaps. `shared` lets other whole GPUs be in several claims at once, each with a part of the memory, and `shared_mig`
    the MIG devices that exist; a claim that does not say how much gets one of `shared_replicas` equal shares. `mig_strategy` says under which extended resources devices are named. A pool
    without devices has one empty slice, which shows that the driver runs.
    """
    taints = taints or {}
    warnings: list[str] = []
    island_of = islands(inventory.gpus)
    groups: list[_Group] = []
    resources = resource_names(inventory, mig_strategy, partitionable=partitionable)
    for gpu in sorted(inventory.gpus, key=lambda gpu: gpu.minor):
        attributes = GpuAttributes(inventory, gpu, island_of.get(gpu.minor), warnings, resources)
        own = taints.get(gpu.uuid, ())
        if gpu.uuid in partitionable and gpu.mig_profiles:
            counter_set = devices.counter_set_of(gpu)
            groups.append((counter_set, devices.partitions(gpu, counter_set, attributes, own)))
        elif gpu.mig_enabled:
            if not gpu.mig_devices:
                warnings.append(f"gpu-{gpu.minor}: MIG mode is on but no MIG device exists; nothing of it is published")
            groups.append(
                (
                    None,
                    [
                        devices.mig_device(
                            mig, attributes, own + taints.get(mig.uuid, ()), shared=shared_mig, replicas=shared_replicas
                        )
                        for mig in gpu.mig_devices
                    ],
                )
            )
        else:
            groups.append((None, [devices.whole_gpu(gpu, attributes, own, shared=shared, replicas=shared_replicas)]))
    slices = _combined(groups) if layout == "combined" else _split(groups)
    return PoolSlices(slices=slices or (SliceBody(),), warnings=tuple(warnings))


def _split(groups: Iterable[_Group]) -> tuple[SliceBody, ...]:
    """Counter sets first, then all devices."""
    groups = list(groups)
    sets = [counter_set for counter_set, _ in groups if counter_set is not None]
    return (
        *(SliceBody(shared_counters=batch) for batch in _batches(sets, COUNTER_SETS_PER_SLICE_MAX)),
        *_device_slices(device for _, of_gpu in groups for device in of_gpu),
    )


def _combined(groups: Iterable[_Group]) -> tuple[SliceBody, ...]:
    """One slice per GPU with counters, then all other devices.

    A counter set serves only the devices of its own slice, so those beyond the limit are not published.
    """
    groups = list(groups)
    return (
        *(
            SliceBody(devices=tuple(of_gpu[:DEVICES_PER_SLICE_MAX]), shared_counters=(counter_set,))
            for counter_set, of_gpu in groups
            if counter_set is not None
        ),
        *_device_slices(device for counter_set, of_gpu in groups if counter_set is None for device in of_gpu),
    )


def _device_slices(found: Iterable[Device]) -> Iterator[SliceBody]:
    return (SliceBody(devices=batch) for batch in _batches(list(found), DEVICES_PER_SLICE_MAX))


def _batches(items: Sequence[T], size: int) -> Iterator[tuple[T, ...]]:
    return (tuple(items[at : at + size]) for at in range(0, len(items), size))
