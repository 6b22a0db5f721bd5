"""What a claim's opaque configs request: a time slice for each GPU, or one MPS daemon for all; NCCL's topology file. Pure.

Reads GpuConfig and MigDeviceConfig against the devices of the claim. Refuses what cannot be applied, rather than
prepare the claim without it. With MPS a share of a device is the limit of each program of its claim. Class before claim, the later wins;
sharing is that of the last config that has any, and shares of which none says it are as the driver's default says. A config that names
requests must suit their devices; one for all requests is skipped for devices of the other kind. Configs of other drivers are skipped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import msgspec

from fairlead.api import config as opaque
from fairlead.api import sharing as rules
from fairlead.api.base import ManifestError
from fairlead.api.capabilities import CAPABILITIES, DEFAULT_CAPABILITIES, Capability
from fairlead.driver.backend.types import Inventory, SharedLimits
from fairlead.driver.prepare import records
from fairlead.driver.prepare.claims import ClaimError, describe
from fairlead.driver.prepare.records import DeviceRecord, MpsRecord
from fairlead.kube.quantity import Quantity
from fairlead.kube.resource import DeviceAllocationConfiguration, ResourceClaim

_MIB = 1024 * 1024
_MULTI_USER_SINCE = (7, 0)


@dataclasses.dataclass(frozen=True, slots=True)
class _Requested:
    """A config's sharing, and its field path in the claim; of the driver's default the flag."""

    field: str
    sharing: opaque.GpuSharing | opaque.MigSharing


def plan(
    claim: ResourceClaim,
    devices: Iterable[DeviceRecord],
    *,
    driver: str,
    inventory: Inventory,
    limits: SharedLimits = "none",
) -> tuple[tuple[DeviceRecord, ...], MpsRecord | None]:
    """The devices with their time slices, and the claim's MPS daemon. `limits` is the driver's default. Raises ClaimError."""
    devices = tuple(devices)
    sliced: list[DeviceRecord] = []
    shared: list[tuple[DeviceRecord, _Requested]] = []
    default = _default(claim, devices, inventory) if limits == "MPS" else None
    for device in devices:
        requested = _requested(claim, device, driver=driver) or (None if device.admin else default)
        sliced.append(device)
        if requested is None:
            continue
        if device.admin:
            raise ClaimError(
                f"{requested.field}: a request with adminAccess only observes its device; remove the config"
            )
        if requested.sharing.strategy == "MPS":
            shared.append((device, requested))
        elif device.share_id and not records.is_all(device, records.capacities(inventory.gpus)):
            why = rules.time_sliced_share(requested.sharing, gpu=device.device, holder="this claim has a share")
            raise ClaimError(f"{requested.field}.strategy: {why}")
        elif isinstance(requested.sharing, opaque.GpuSharing):
            chosen = requested.sharing.time_slicing_config
            sliced[-1] = msgspec.structs.replace(device, time_slice=chosen.interval if chosen else "Default")
        if default is not None and requested is not None and requested.sharing.strategy != "MPS":
            raise ClaimError(
                f"{requested.field}.strategy: {requested.sharing.strategy!r} of {device.device}, and another device of the claim is a "
                "share under MPS by the driver's --shared-limits, beside whose daemon programs see no other GPU; make two claims"
            )
    return tuple(sliced), _mps(claim, shared, inventory) if shared else None


def wants_nccl_topology(claim: ResourceClaim, devices: Iterable[DeviceRecord], *, driver: str) -> bool:
    """Whether the config of one of the claim's GPUs asks for NCCL's topology file. Raises ClaimError."""
    configs = (_config(claim, device, driver=driver) for device in devices)
    return any(isinstance(found, opaque.GpuConfig) and found.nccl_topology for found in configs)


def capabilities(claim: ResourceClaim, devices: Iterable[DeviceRecord], *, driver: str) -> tuple[Capability, ...]:
    """Of NVIDIA's driver, those that the config of one of the claim's devices asks for. Raises ClaimError."""
    configs = [_config(claim, device, driver=driver) for device in devices]
    wanted = {each for found in configs for each in (found.capabilities if found else DEFAULT_CAPABILITIES)}
    return tuple(each for each in CAPABILITIES if each in wanted)


def _default(claim: ResourceClaim, devices: Iterable[DeviceRecord], inventory: Inventory) -> _Requested | None:
    """MPS for the claim's devices if one of them is a share beside which others may be: CUDA shows its programs what the daemon serves."""
    known = records.capacities(inventory.gpus)
    if not any(device.share_id and not device.admin and not records.is_all(device, known) for device in devices):
        return None
    return _Requested(f"{describe(claim)}: the driver's --shared-limits", opaque.GpuSharing(strategy="MPS"))


def _requested(claim: ResourceClaim, device: DeviceRecord, *, driver: str) -> _Requested | None:
    """Where a class says how its devices are shared, that is said to those who take them, and not to admin access."""
    found = None
    for field, config, of_class in _configs(claim, device, driver=driver):
        if config.sharing is not None and not (of_class and device.admin):
            found = _Requested(f"{field}.sharing", config.sharing)
    return found


def _config(claim: ResourceClaim, device: DeviceRecord, *, driver: str) -> opaque.DeviceConfig | None:
    """The config that holds for the device. Raises ClaimError."""
    configs = [config for _, config, _ in _configs(claim, device, driver=driver)]
    return configs[-1] if configs else None


def _configs(
    claim: ResourceClaim, device: DeviceRecord, *, driver: str
) -> Iterator[tuple[str, opaque.DeviceConfig, bool]]:
    """The configs for the device, lowest precedence first: field path, config, whether it is the class's. Raises ClaimError."""
    allocation = claim.status.allocation
    wanted = "GpuConfig" if device.mig is None else "MigDeviceConfig"
    for index, entry in _for_request(allocation.devices.config if allocation else (), device.request, driver):
        field = f"{describe(claim)}: status.allocation.devices.config[{index}].opaque.parameters"
        try:
            decoded = opaque.decode(entry.opaque.parameters if entry.opaque else None, subject=field, strict=False)
        except ManifestError as error:
            raise ClaimError(str(error)) from error
        except RecursionError as error:
            raise ClaimError(f"{field}: is nested too deeply; write the fields of {wanted} only") from error
        if decoded.kind != wanted:
            if entry.requests:
                raise ClaimError(
                    f"{field}.kind: {decoded.kind!r} is for request {device.request!r}, which got {device.device}; "
                    f"write {wanted}"
                )
            continue
        yield field, decoded, entry.source == "FromClass"


def _for_request(
    configs: Iterable[DeviceAllocationConfiguration], request: str, driver: str
) -> list[tuple[int, DeviceAllocationConfiguration]]:
    """The configs of this driver that apply to `request`, lowest precedence first."""
    selectors = {request, request.partition("/")[0]}
    found = [
        (index, entry)
        for index, entry in enumerate(configs)
        if entry.opaque is not None
        and entry.opaque.driver == driver
        and (not entry.requests or selectors.intersection(entry.requests))
    ]
    return sorted(found, key=lambda pair: (pair[1].source != "FromClass", pair[0]))


# -- MPS ---------------------------------------------------------------------------------------------------------------


def _mps(claim: ResourceClaim, shared: list[tuple[DeviceRecord, _Requested]], inventory: Inventory) -> MpsRecord:
    """One daemon serves all devices: a program that uses several requests of the claim connects to one daemon."""
    (_, first), *others = shared
    wanted = first.sharing.mps_config or opaque.MpsConfig()
    for device, requested in others:
        if (requested.sharing.mps_config or opaque.MpsConfig()) != wanted:
            raise ClaimError(
                f"{requested.field}.mpsConfig: differs from that at {first.field.partition(': ')[2]}, and one MPS "
                f"daemon serves {device.device} and the claim's other devices; write the same, or make two claims"
            )
    devices = [device for device, _ in shared]
    shown = ", ".join(device.device for device in devices)
    if any(device.mig for device in devices) and (why := rules.several_mig_devices(len(devices), shown)):
        raise ClaimError(f"{first.field}.strategy: {why}")
    field = f"{first.field}.mpsConfig"
    if wanted.multi_user:
        _check_multi_user(field, devices, inventory)
    memory_mib = _memory(field, wanted, devices)
    percentage = wanted.default_active_thread_percentage
    for name, part in _parts(devices, inventory).items():
        limit, share = memory_mib.setdefault(name, part.memory_mib), part.memory_mib
        of = f"of {name} that the claim has"
        if why := rules.limit_above_share(limit * _MIB, share * _MIB, limit=f"{limit}Mi", share=f"{share}Mi", of=of):
            raise ClaimError(f"{field}: {why}")
        if part.thread_percentage is None:
            continue
        if percentage is not None and percentage > part.thread_percentage:
            raise ClaimError(
                f"{field}.defaultActiveThreadPercentage: {percentage} is more than the claim's share of {name}, "
                f"{part.thread_percentage}; ask for more multiprocessors, or write less"
            )
        percentage = part.thread_percentage if percentage is None else percentage
    return MpsRecord(
        # Two shares of one device are one device to CUDA.
        devices=tuple(dict.fromkeys(device.device for device in devices)),
        active_thread_percentage=percentage,
        memory_mib=memory_mib,
        multi_user=wanted.multi_user,
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What the claim has of a device: MiB of memory, percent of the multiprocessors (None: it asks for none of its own)."""

    memory_mib: int
    thread_percentage: int | None


def _parts(devices: Iterable[DeviceRecord], inventory: Inventory) -> dict[str, _Part]:
    """By device's name, all shares of it together; without those that the claim has alone, or whose share says nothing of memory."""
    of_device: dict[str, list[DeviceRecord]] = {}
    for device in devices:
        if device.share_id and "memory" in device.consumed:
            of_device.setdefault(device.device, []).append(device)
    known, found = records.capacities(inventory.gpus), {}
    for name, own in of_device.items():
        asked = sum(device.consumed.get("multiprocessors", 0) for device in own)
        there = known.get(own[0].uuid, {}).get("multiprocessors")
        found[name] = _Part(
            memory_mib=sum(device.consumed["memory"] for device in own) // _MIB,
            thread_percentage=max(1, 100 * asked // there) if asked and there else None,
        )
    return found


def _memory(field: str, config: opaque.MpsConfig, devices: list[DeviceRecord]) -> dict[str, int]:
    """MiB by device's name: the default limit, overridden by that of a device, by index among them or by UUID."""
    found: dict[str, int] = {}
    if config.default_pinned_device_memory_limit is not None:
        limit = _mib(config.default_pinned_device_memory_limit)
        found = {device.device: limit for device in devices}
    known = {(device.mig.uuid if device.mig else device.gpu_uuid): device for device in devices}
    for key, value in config.default_per_device_pinned_memory_limit.items():
        device = known.get(key)
        if device is None:
            device = next((device for index, device in enumerate(devices) if str(index) == key), None)
        if device is None:
            raise ClaimError(
                f"{field}.defaultPerDevicePinnedMemoryLimit: {key!r} is none of the claim's {len(devices)} devices "
                "under MPS; write an index from 0, or the UUID of one of them"
            )
        found[device.device] = _mib(value)
    return found


def _mib(value: str | int) -> int:
    return int(Quantity.of(value)) // _MIB


def _check_multi_user(field: str, devices: list[DeviceRecord], inventory: Inventory) -> None:
    for device in devices:
        gpu = inventory.gpu(device.gpu_uuid)
        capability = gpu.cuda_compute_capability if gpu else None
        if capability and tuple(int(part) for part in capability.split(".")) < _MULTI_USER_SINCE:
            raise ClaimError(
                f"{field}.multiUser: {device.device} has compute capability {capability}, and needs 7.0; remove it"
            )
