"""GPUs and MIG devices as the devices of a ResourceSlice, with capacities, counters and taints. Pure.

A GPU whose MIG devices are created on demand publishes each possible placement, over counters that exclude what
overlaps.
Example: the counter set of an H100 has memory-slice-0 to memory-slice-7, one each. 3g.40gb at 4 consumes memory-slice-4
to -7, 1g.10gb at 5 consumes memory-slice-5, the whole GPU consumes every counter: the scheduler never allocates two of
them.
Devices that are prepared for claims that are gone have a taint until kubelet has unprepared them; where the apiserver drops taints they
leave the slices, as any device with a taint (slices.py). Example: a claim with 3g.40gb at 4 of gpu-0 was deleted by force. gpu-0 and every
placement that covers one of the memory slices 4 to 7 have the taint; 1g.10gb at 0 has not.

KnownGpus says which GPUs these are, from one inventory to the next. A GPU that responded once and is lost now stays, to be tainted: claims
still hold it. A GPU whose MIG devices the driver creates on demand appears unpartitioned whatever MIG devices exist just now: counters say
to the scheduler what is left of it, so its slice must not change with every claim. Example: two H100s joined by NVLink, and a claim
creates a MIG device on the first. MIG mode takes NVLink from both ends, but both keep the links of the last inventory without MIG devices,
and the first is not in MIG mode. Same sequence of inventories in, same inventories out.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from msgspec import structs

from fairlead.api import withheld as api
from fairlead.driver.backend import device_names, geometry
from fairlead.driver.backend.types import Gpu, Inventory, MigDevice, MigPlacement, MigProfile, NvLink
from fairlead.driver.publish.attributes import GpuAttributes
from fairlead.kube.quantity import Quantity
from fairlead.kube.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Counter,
    CounterSet,
    Device,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
)

TAINTS_MAX = 16
_MIB = 1024 * 1024
_ONE = Counter(value="1")
_ENGINES = (
    ("multiprocessors", "multiprocessors"),
    ("copyEngines", "copy_engines"),
    ("decoders", "decoders"),
    ("encoders", "encoders"),
    ("jpegEngines", "jpeg_engines"),
    ("ofaEngines", "ofa_engines"),
)


def whole_gpu(
    gpu: Gpu, attributes: GpuAttributes, taints: tuple[DeviceTaint, ...], *, shared: bool = False, replicas: int = 1
) -> Device:
    """`replicas`: so many claims that do not say how much memory they want fit onto a shared one."""
    capacity = _whole_capacity(gpu)
    if shared and gpu.memory_bytes:
        capacity["memory"] = _shared_memory(gpu.memory_bytes, replicas)
        if gpu.multiprocessors:
            capacity["multiprocessors"] = _shared_count(gpu.multiprocessors)
    return Device(
        name=device_names.gpu_name(gpu),
        attributes=attributes.gpu,
        capacity=capacity,
        taints=_tainted(taints),
        allow_multiple_allocations=True if shared and gpu.memory_bytes else None,
    )


def mig_device(
    mig: MigDevice,
    attributes: GpuAttributes,
    taints: tuple[DeviceTaint, ...],
    *,
    shared: bool = False,
    replicas: int = 1,
) -> Device:
    amounts = _profile_capacity(mig.profile)
    amounts |= {f"memorySlice{at}": 1 for at in geometry.covered(mig.profile, mig.start)}
    capacity, memory_bytes = _capacity(amounts), mig.profile.memory_bytes
    if shared and memory_bytes:
        # Engines and memory slices are of the device as a whole, for all of its claims.
        capacity = {
            name: _shared_count(value) if value else capacity[name]
            for name, value in amounts.items()
            if value is not None
        }
        capacity["memory"] = _shared_memory(memory_bytes, replicas)
    return Device(
        name=device_names.mig_name(mig.parent_minor, mig.profile, mig.start),
        attributes=attributes.mig(mig.profile, mig.uuid),
        capacity=capacity,
        taints=_tainted(taints),
        allow_multiple_allocations=True if shared and memory_bytes else None,
    )


def partitions(
    gpu: Gpu, counter_set: CounterSet, attributes: GpuAttributes, taints: tuple[DeviceTaint, ...]
) -> list[Device]:
    """The whole GPU and each of its possible MIG devices, over one counter set.

    Ampere switches MIG mode only with a reset: with it on there are only MIG devices, with it off only the GPU.
    Small before large, and from the highest start: the first that fits leaves the most room.
    """
    devices: list[Device] = []
    if gpu.mig_mutable or not gpu.mig_enabled:
        everything = DeviceCounterConsumption(counter_set=counter_set.name, counters=counter_set.counters)
        devices.append(
            Device(
                name=device_names.gpu_name(gpu),
                attributes=attributes.gpu,
                capacity=_whole_capacity(gpu),
                consumes_counters=(everything,),
                taints=_tainted(taints),
            )
        )
    if gpu.mig_mutable or gpu.mig_enabled:
        for profile in sorted(gpu.mig_profiles, key=lambda p: (p.memory_slices, p.compute_slices, p.name)):
            devices += _placements(gpu, counter_set, profile, attributes, taints)
    return devices


def _placements(
    gpu: Gpu, counter_set: CounterSet, profile: MigProfile, attributes: GpuAttributes, taints: tuple[DeviceTaint, ...]
) -> list[Device]:
    """One device per placement of the profile; they differ in name and memory slices only."""
    amounts = _profile_capacity(profile)
    mig_attributes, capacity, tainted = attributes.mig(profile, None), _capacity(amounts), _tainted(taints)
    engines = _counters({_counter_name(name): value for name, value in amounts.items() if value is not None})
    return [
        Device(
            name=device_names.mig_name(gpu.minor, profile, start),
            attributes=mig_attributes,
            capacity=capacity,
            consumes_counters=(
                DeviceCounterConsumption(
                    counter_set=counter_set.name,
                    counters=engines | {f"memory-slice-{at}": _ONE for at in geometry.covered(profile, start)},
                ),
            ),
            taints=tainted,
        )
        for start in sorted(profile.starts, reverse=True)
    ]


def counter_set_of(gpu: Gpu) -> CounterSet:
    """A counter for each engine, as large as in any profile, and one per memory slice, which encodes the placement."""
    maximum: dict[str, int] = {}
    for profile in gpu.mig_profiles:
        for name, value in _profile_capacity(profile).items():
            if value is not None:
                maximum[_counter_name(name)] = max(value, maximum.get(_counter_name(name), 0))
    maximum |= {f"memory-slice-{at}": 1 for at in range(geometry.memory_slices(gpu.mig_profiles))}
    return CounterSet(name=device_names.counter_set_name(gpu), counters=_counters(maximum))


# -- capacities, counters, taints --------------------------------------------------------------------------------------


def _whole_capacity(gpu: Gpu) -> dict[str, DeviceCapacity]:
    return _capacity({"memory": gpu.memory_bytes, "multiprocessors": gpu.multiprocessors})


def _shared_memory(memory_bytes: int, replicas: int) -> DeviceCapacity:
    """Memory of which each claim consumes what it requests, in steps of 1 MiB, and an equal share of it without a request.

    The API requires maximum and default to be a whole number of steps.
    """
    maximum = _amount("memory", memory_bytes - memory_bytes % _MIB)
    default = _amount("memory", max(1, memory_bytes // _MIB // replicas) * _MIB)
    return DeviceCapacity(
        value=maximum,
        request_policy=CapacityRequestPolicy(
            default=default, valid_range=CapacityRequestPolicyRange(min="1Mi", max=maximum, step="1Mi")
        ),
    )


def _shared_count(count: int) -> DeviceCapacity:
    """Multiprocessors, or engines, of which each claim consumes what it requests, and none without a request.

    Claims that request memory alone share them in time. Without a policy each would consume all, and no two fit.
    """
    return DeviceCapacity(
        value=str(count),
        request_policy=CapacityRequestPolicy(
            default="0", valid_range=CapacityRequestPolicyRange(min="0", max=str(count))
        ),
    )


def _profile_capacity(profile: MigProfile) -> dict[str, int | None]:
    return {name: getattr(profile, field) for name, field in _ENGINES} | {"memory": profile.memory_bytes}


def _counter_name(capacity: str) -> str:
    """A capacity's name as a DNS label: copyEngines is copy-engines."""
    return re.sub(r"(?<=[a-z])([A-Z])", lambda match: f"-{match[1].lower()}", capacity)


def _capacity(values: Mapping[str, int | None]) -> dict[str, DeviceCapacity]:
    return {name: DeviceCapacity(value=_amount(name, value)) for name, value in values.items() if value is not None}


def _counters(values: Mapping[str, int]) -> dict[str, Counter]:
    return {name: Counter(value=_amount(name, value)) for name, value in values.items()}


def _amount(name: str, value: int) -> str:
    """The quantity in the form that the apiserver stores, so that the stored slice compares equal."""
    return str(Quantity(value, 0, "BinarySI" if name == "memory" else "DecimalSI"))


def with_taints(device: Device, *more: DeviceTaint) -> Device:
    return structs.replace(device, taints=_tainted((*device.taints, *more)))


def _tainted(taints: tuple[DeviceTaint, ...]) -> tuple[DeviceTaint, ...]:
    """At most `TAINTS_MAX`, the API's limit; NoExecute first, then by key."""
    order = {"NoExecute": 0, "NoSchedule": 1}
    return tuple(sorted(taints, key=lambda taint: (order.get(taint.effect, 2), taint.key, taint.value))[:TAINTS_MAX])


# -- devices of claims that are gone -----------------------------------------------------------------------------------

TAINT = DeviceTaint(key=api.RELEASING, effect="NoSchedule")

Span = tuple[int, int] | None
"""First memory slice and number of them; None: the whole GPU."""
Spans = Mapping[str, frozenset[Span]]
"""By the GPU's UUID: what of it is being released."""


def tainted(gpu: Gpu, of_gpu: Sequence[Device], releasing: Spans) -> list[Device]:
    """The devices of a GPU; those that overlap with what is being released have the taint."""
    held = releasing.get(gpu.uuid, frozenset())
    if not held:
        return list(of_gpu)
    return [with_taints(device, TAINT) if _overlaps(gpu, device.name, held) else device for device in of_gpu]


def _overlaps(gpu: Gpu, device: str, held: frozenset[Span]) -> bool:
    place = device_names.parse(device)
    if place is None or place.start is None or None in held:
        return True
    profiles = (*gpu.mig_profiles, *(mig.profile for mig in gpu.mig_devices))
    covered = next((geometry.covered(each, place.start) for each in profiles if each.id == place.profile_id), None)
    if covered is None:
        return True
    return any(span is not None and not set(covered).isdisjoint(range(span[0], sum(span))) for span in held)


# -- which GPUs --------------------------------------------------------------------------------------------------------


class KnownGpus:
    def __init__(self, *, dynamic_mig: bool) -> None:
        self.partitionable: frozenset[str] = frozenset()
        """UUIDs of the GPUs whose MIG devices are created on demand: each of theirs was created by the driver."""
        self._dynamic_mig = dynamic_mig
        self._gpus: dict[str, Gpu] = {}
        self._links: dict[str, tuple[NvLink | None, str | None]] = {}

    def update(self, inventory: Inventory, *, lost: frozenset[str], own: frozenset[MigPlacement]) -> Inventory:
        """`lost` are the UUIDs of GPUs that do not respond, `own` the MIG devices that the driver created."""
        partitionable = _partitionable(inventory, own) if self._dynamic_mig else frozenset()
        partitioned = frozenset(gpu.uuid for gpu in inventory.gpus if gpu.uuid in partitionable and gpu.mig_devices)
        if not partitioned:
            self._links = {gpu.uuid: (gpu.nvlink, gpu.clique) for gpu in inventory.gpus}
        present = {gpu.uuid: self._unpartitioned(gpu, partitioned) if partitioned else gpu for gpu in inventory.gpus}
        kept = {uuid: gpu for uuid, gpu in self._gpus.items() if uuid in lost and uuid not in present}
        self._gpus = present | kept
        self.partitionable = partitionable | (self.partitionable & kept.keys())
        gpus = tuple(sorted(self._gpus.values(), key=lambda gpu: (gpu.minor, gpu.uuid)))
        return dataclasses.replace(inventory, gpus=gpus)

    def _unpartitioned(self, gpu: Gpu, partitioned: frozenset[str]) -> Gpu:
        nvlink, clique = self._links.get(gpu.uuid, (gpu.nvlink, gpu.clique))
        enabled = False if gpu.uuid in partitioned and gpu.mig_mutable else gpu.mig_enabled
        return dataclasses.replace(gpu, nvlink=nvlink, clique=clique, mig_enabled=enabled)


def _partitionable(inventory: Inventory, own: frozenset[MigPlacement]) -> frozenset[str]:
    return frozenset(
        gpu.uuid
        for gpu in inventory.gpus
        if gpu.mig_profiles
        and (gpu.mig_mutable or gpu.mig_enabled)
        and all((gpu.uuid, mig.profile.id, mig.start) in own for mig in gpu.mig_devices)
    )
