"""A node's devices as ResourceSlices: the one builder that every publication goes through.

Exists because builders that drift apart publish random orders and lose taints. Pure: inventory in, slice bodies out;
pool generation, slice names and owners are the publisher's. Attribute, capacity and counter names are the NVIDIA
driver's, so that claims port by changing the domain.
Keeps: same inventory, same slices; at most 64 devices a slice (the API's limit once any device has a taint) and 8
counter sets; devices in numeric order (gpu-2 before gpu-10), because kube-scheduler takes the first that fits; a value
that the API would refuse is left out with a warning, never the node.
Source: k8s.io/api/resource/v1 types.go; research of the NVIDIA driver, sections 1.1 to 1.4.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Literal

from fairlead.api import names
from fairlead.driver.backend import device_names, geometry
from fairlead.driver.backend.islands import islands
from fairlead.driver.backend.types import Gpu, Inventory, MigDevice, MigProfile
from fairlead.kube import semver
from fairlead.kube.quantity import Quantity
from fairlead.kube.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
)

DEVICES_PER_SLICE_MAX = 64
COUNTER_SETS_PER_SLICE_MAX = 8
STRING_LENGTH_MAX = 64
_MIB = 1024 * 1024
_ONE = Counter(value="1")

# "split": counter sets in slices of their own (1.35 and later); "combined": beside the devices that use them (1.34).
Layout = Literal["split", "combined"]

_PCI_BUS_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
_ENGINES = (
    ("multiprocessors", "multiprocessors"),
    ("copyEngines", "copy_engines"),
    ("decoders", "decoders"),
    ("encoders", "encoders"),
    ("jpegEngines", "jpeg_engines"),
    ("ofaEngines", "ofa_engines"),
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SliceBody:
    """What one ResourceSlice holds: devices or counter sets, both only in the combined layout."""

    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """The slices of the node's pool, in order, and what was left out of them."""

    slices: tuple[SliceBody, ...]
    warnings: tuple[str, ...] = ()

    @property
    def devices(self) -> tuple[Device, ...]:
        return tuple(device for body in self.slices for device in body.devices)


def build(
    inventory: Inventory,
    *,
    taints: Mapping[str, tuple[DeviceTaint, ...]] | None = None,
    partitionable: frozenset[str] = frozenset(),
    shared: bool = False,
    layout: Layout = "split",
) -> Built:
    """The slices that this node should publish.

    `taints` are by the UUID of a GPU (they reach its MIG devices) or of a MIG device. `partitionable` holds the UUIDs of
    GPUs whose MIG devices are made on demand: they publish every placement, and counters that exclude what overlaps.
    `shared` lets other whole GPUs be in several claims at once, each with a part of the memory.
    A pool without devices still has one, empty, slice: it tells that the driver is there.
    """
    taints = taints or {}
    warnings: list[str] = []
    island_of = islands(gpu for gpu in inventory.gpus)
    groups: list[tuple[CounterSet | None, list[Device]]] = []
    for gpu in sorted(inventory.gpus, key=lambda gpu: gpu.minor):
        node = _Attributes(inventory, gpu, island_of.get(gpu.minor), warnings)
        own = taints.get(gpu.uuid, ())
        if gpu.uuid in partitionable and gpu.mig_profiles:
            counter_set = _counter_set(gpu)
            groups.append((counter_set, _partitions(gpu, counter_set, node, own)))
        elif gpu.mig_enabled:
            if not gpu.mig_devices:
                warnings.append(f"gpu-{gpu.minor}: MIG mode is on but no MIG device exists; nothing of it is published")
            groups.append((None, [_mig_device(mig, node, own + taints.get(mig.uuid, ())) for mig in gpu.mig_devices]))
        else:
            groups.append((None, [_whole_gpu(gpu, node, own, shared=shared)]))
    return Built(slices=_chunk(groups, layout), warnings=tuple(warnings))


def _chunk(groups: Iterable[tuple[CounterSet | None, list[Device]]], layout: Layout) -> tuple[SliceBody, ...]:
    sets: list[CounterSet] = []
    plain: list[Device] = []
    combined: list[SliceBody] = []
    for counter_set, devices in groups:
        if counter_set is not None and layout == "combined":
            # One slice per GPU; a set serves only the devices of its own slice, so what is over is not published.
            combined.append(SliceBody(devices=tuple(devices[:DEVICES_PER_SLICE_MAX]), shared_counters=(counter_set,)))
            continue
        if counter_set is not None:
            sets.append(counter_set)
        plain += devices
    bodies = [
        SliceBody(shared_counters=tuple(sets[at : at + COUNTER_SETS_PER_SLICE_MAX]))
        for at in range(0, len(sets), COUNTER_SETS_PER_SLICE_MAX)
    ]
    bodies += combined
    bodies += [
        SliceBody(devices=tuple(plain[at : at + DEVICES_PER_SLICE_MAX]))
        for at in range(0, len(plain), DEVICES_PER_SLICE_MAX)
    ]
    return tuple(bodies) or (SliceBody(),)


class _Attributes:
    """The attributes of one GPU, shared by its partitions, with the reasons for those left out."""

    def __init__(self, inventory: Inventory, gpu: Gpu, island: int | None, warnings: list[str]) -> None:
        self._gpu = gpu
        self._warnings = warnings
        self.common: dict[str, DeviceAttribute] = {}
        self._string("productName", gpu.product_name)
        self._string("brand", gpu.brand)
        self._string("architecture", gpu.architecture)
        self._version("cudaComputeCapability", gpu.cuda_compute_capability)
        self._version("driverVersion", inventory.driver_version)
        self._version("cudaDriverVersion", inventory.cuda_driver_version)
        self._string("addressingMode", gpu.addressing_mode)
        if gpu.pci_bus_id is not None and not _PCI_BUS_ID.fullmatch(gpu.pci_bus_id):
            self._leave_out(names.PCI_BUS_ID, gpu.pci_bus_id, "not of the form 0000:07:00.0")
        else:
            self._string(names.PCI_BUS_ID, gpu.pci_bus_id)
        self._string(names.PCIE_ROOT, gpu.pcie_root)
        if gpu.numa_node is not None and gpu.numa_node >= 0:
            self.common[names.NUMA_NODE] = DeviceAttribute(int_=gpu.numa_node)
        self.whole = {
            "type": DeviceAttribute(string="gpu"),
            "uuid": DeviceAttribute(string=gpu.uuid),
            **self.common,
            "migCapable": DeviceAttribute(bool_=gpu.mig_enabled is not None),
        }
        if gpu.nvlink is not None and gpu.nvlink.links and not gpu.mig_enabled:
            self.whole["nvlinkLinks"] = DeviceAttribute(int_=gpu.nvlink.links)
            if gpu.nvlink.version is not None:
                self.whole["nvlinkVersion"] = DeviceAttribute(int_=gpu.nvlink.version)
            if gpu.nvlink.peers:
                mask = sum(1 << peer for peer in gpu.nvlink.peers)
                self.whole["nvlinkPeers"] = DeviceAttribute(string=f"{mask:#x}")
            if gpu.clique is not None:
                self.whole["nvlinkClique"] = DeviceAttribute(string=gpu.clique)
        if island is not None:
            self.whole["nvlinkDomain"] = DeviceAttribute(int_=island)

    def mig(self, profile: MigProfile, uuid: str | None) -> dict[str, DeviceAttribute]:
        attributes = {"type": DeviceAttribute(string="mig")}
        if uuid is not None:
            attributes["uuid"] = DeviceAttribute(string=uuid)
        return {
            **attributes,
            "profile": DeviceAttribute(string=profile.name),
            "parentUUID": DeviceAttribute(string=self._gpu.uuid),
            "parentIndex": DeviceAttribute(int_=self._gpu.minor),
            **self.common,
        }

    def _string(self, name: str, value: str | None) -> None:
        if value is None or not value:
            return
        if len(value) > STRING_LENGTH_MAX:
            self._leave_out(name, value, f"longer than {STRING_LENGTH_MAX} characters")
            return
        self.common[name] = DeviceAttribute(string=value)

    def _version(self, name: str, value: str | None) -> None:
        if value is None:
            return
        try:
            self.common[name] = DeviceAttribute(version=str(semver.normalize(value)))
        except semver.VersionError:
            self._leave_out(name, value, "no version")

    def _leave_out(self, name: str, value: str, why: str) -> None:
        self._warnings.append(f"gpu-{self._gpu.minor}: attribute {name} left out: {value!r} is {why}")


def _whole_gpu(gpu: Gpu, node: _Attributes, taints: tuple[DeviceTaint, ...], *, shared: bool = False) -> Device:
    capacity = _whole_capacity(gpu)
    if shared and gpu.memory_bytes:
        capacity["memory"] = _in_parts(gpu.memory_bytes)
    return Device(
        name=device_names.gpu_name(gpu),
        attributes=node.whole,
        capacity=capacity,
        taints=_tainted(taints),
        allow_multiple_allocations=True if shared and gpu.memory_bytes else None,
    )


def _in_parts(memory_bytes: int) -> DeviceCapacity:
    """Memory of which each claim takes what it asks for, in MiB; all of it when it does not ask.

    The API wants the largest part to be a whole number of steps.
    """
    most = _amount("memory", memory_bytes - memory_bytes % _MIB)
    return DeviceCapacity(
        value=most,
        request_policy=CapacityRequestPolicy(
            default=most, valid_range=CapacityRequestPolicyRange(min="1Mi", max=most, step="1Mi")
        ),
    )


def _whole_capacity(gpu: Gpu) -> dict[str, DeviceCapacity]:
    return _capacity({"memory": gpu.memory_bytes, "multiprocessors": gpu.multiprocessors})


def _mig_device(mig: MigDevice, node: _Attributes, taints: tuple[DeviceTaint, ...]) -> Device:
    capacity = _profile_capacity(mig.profile)
    capacity |= {f"memorySlice{at}": 1 for at in geometry.covered(mig.profile, mig.start)}
    return Device(
        name=device_names.mig_name(mig.parent_minor, mig.profile, mig.start),
        attributes=node.mig(mig.profile, mig.uuid),
        capacity=_capacity(capacity),
        taints=_tainted(taints),
    )


def _partitions(gpu: Gpu, counter_set: CounterSet, node: _Attributes, taints: tuple[DeviceTaint, ...]) -> list[Device]:
    """The whole GPU and each of its possible MIG devices, over one counter set.

    Ampere can switch MIG mode only by a reset: with it on there are only partitions, with it off only the GPU.
    Small before large, and from the high end: what a first-fit scheduler takes first leaves the most room.
    """
    devices: list[Device] = []
    if gpu.mig_mutable or not gpu.mig_enabled:
        everything = DeviceCounterConsumption(counter_set=counter_set.name, counters=counter_set.counters)
        devices.append(
            Device(
                name=device_names.gpu_name(gpu),
                attributes=node.whole,
                capacity=_whole_capacity(gpu),
                consumes_counters=(everything,),
                taints=_tainted(taints),
            )
        )
    if gpu.mig_mutable or gpu.mig_enabled:
        for profile in sorted(gpu.mig_profiles, key=lambda p: (p.memory_slices, p.compute_slices, p.name)):
            devices += _placements(gpu, counter_set, profile, node, taints)
    return devices


def _placements(
    gpu: Gpu, counter_set: CounterSet, profile: MigProfile, node: _Attributes, taints: tuple[DeviceTaint, ...]
) -> list[Device]:
    """One device per place where the profile may be; they differ in their memory slices only."""
    amounts = _profile_capacity(profile)
    attributes, capacity, tainted = node.mig(profile, None), _capacity(amounts), _tainted(taints)
    engines = _counters({_counter_name(name): value for name, value in amounts.items() if value is not None})
    return [
        Device(
            name=device_names.mig_name(gpu.minor, profile, start),
            attributes=attributes,
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


def _counter_set(gpu: Gpu) -> CounterSet:
    """Each engine counted as its largest profile has it, and one counter per memory slice, which encodes placement."""
    most: dict[str, int] = {}
    for profile in gpu.mig_profiles:
        for name, value in _profile_capacity(profile).items():
            if value is not None:
                most[_counter_name(name)] = max(value, most.get(_counter_name(name), 0))
    most |= {f"memory-slice-{at}": 1 for at in range(geometry.memory_slices(gpu.mig_profiles))}
    return CounterSet(name=device_names.counter_set_name(gpu), counters=_counters(most))


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
    """The quantity in the form that the apiserver stores, so that what comes back compares equal."""
    return str(Quantity(value, 0, "BinarySI" if name == "memory" else "DecimalSI"))


def _tainted(taints: tuple[DeviceTaint, ...]) -> tuple[DeviceTaint, ...]:
    """At most 16, as the API allows; NoExecute first, then by key."""
    order = {"NoExecute": 0, "NoSchedule": 1}
    return tuple(sorted(taints, key=lambda taint: (order.get(taint.effect, 2), taint.key, taint.value))[:16])
