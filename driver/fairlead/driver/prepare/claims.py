"""The allocation results of a claim, checked against the hardware, as device records. Pure.

Everything that can be wrong with a claim is found here, before anything is changed. Results of other drivers are
skipped: one claim may have devices of several. The claim's opaque configs are sharing.py's.
"""

from __future__ import annotations

import re

from fairlead.api import names
from fairlead.driver.backend import device_names
from fairlead.driver.backend.types import Gpu, Inventory, MigDevice, MigProfile
from fairlead.driver.prepare import records
from fairlead.driver.prepare.records import DeviceRecord, MigRecord
from fairlead.kube.quantity import Quantity, QuantityError
from fairlead.kube.resource import DeviceRequestAllocationResult, ResourceClaim

_NOT_MADE = (
    "a claim with adminAccess sees what exists, and no MIG device is made for it: request the whole GPU, or a MIG device that a "
    "running pod has; "
)
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class ClaimError(Exception):
    """The claim cannot be prepared on this node; the message names claim, field, value and next step."""


def describe(claim: ResourceClaim) -> str:
    return f"ResourceClaim {claim.metadata.namespace}/{claim.metadata.name}"


def results(claim: ResourceClaim, *, driver: str) -> list[tuple[int, DeviceRequestAllocationResult]]:
    """The claim's results of this driver, with their index. Raises ClaimError when nothing is allocated."""
    if claim.status.allocation is None:
        raise ClaimError(f"{describe(claim)}: status.allocation: not set; it is prepared once it is allocated")
    found = enumerate(claim.status.allocation.devices.results)
    return [(index, result) for index, result in found if result.driver == driver]


def allocated(claim: ResourceClaim, *, driver: str) -> list[tuple[str, str, str, str | None, bool]]:
    """The claim's results of this driver in the form of DeviceRecord.allocated. Raises ClaimError."""
    return [(r.request, r.pool, r.device, r.share_id, bool(r.admin_access)) for _, r in results(claim, driver=driver)]


def pod_claim(claim: ResourceClaim) -> str | None:
    """The pod's name for a claim that was created from a template.

    Whoever may write the claim may write the annotation, and it becomes part of a path: what is no DNS label is not one.
    """
    written = claim.metadata.annotations.get(names.POD_CLAIM_NAME)
    return written if written is not None and _LABEL.fullmatch(written) else None


def plan(
    claim: ResourceClaim, *, driver: str, pool: str, inventory: Inventory, partitionable: frozenset[str] = frozenset()
) -> tuple[DeviceRecord, ...]:
    """One record per result of this driver, in their order.

    `partitionable` holds the UUIDs of GPUs whose MIG devices are created on demand. Raises ClaimError for a device that
    is not on this node, and for two results on one device.
    """
    devices: list[DeviceRecord] = []
    for index, result in results(claim, driver=driver):
        field = f"{describe(claim)}: status.allocation.devices.results[{index}]"
        if not all(_LABEL.fullmatch(part) for part in result.request.split("/")):
            raise ClaimError(
                f"{field}.request: {result.request!r} is no request's name, and cannot be part of a file's"
            )
        if result.pool != pool:
            raise ClaimError(f"{field}.pool: {result.pool!r} is not on this node, whose pool is {pool!r}")
        device = _device(result, field, inventory, partitionable)
        for other in devices:
            if records.overlap(device, other):
                raise ClaimError(f"{field}.device: {device.device!r} overlaps {other.device!r} of the same claim")
        devices.append(device)
    return tuple(devices)


def _device(
    result: DeviceRequestAllocationResult, field: str, inventory: Inventory, partitionable: frozenset[str]
) -> DeviceRecord:
    place = device_names.parse(result.device)
    gpu = next((gpu for gpu in inventory.gpus if place and gpu.minor == place.minor), None)
    if place is None or gpu is None:
        raise ClaimError(
            f"{field}.device: {result.device!r} is not on this node, which has {_gpu_names(inventory)}; "
            "if a GPU fell off the bus, delete the pod so that it is placed again"
        )
    mig = None
    if place.profile_id is not None and place.start is not None:
        dynamic = gpu.uuid in partitionable
        mig = _mig(
            result.device, field, gpu, place.profile_id, place.start, dynamic=dynamic, admin=bool(result.admin_access)
        )
    elif gpu.mig_devices and gpu.uuid not in partitionable:
        raise ClaimError(
            f"{field}.device: {result.device!r} is partitioned into MIG devices ({_mig_names(gpu)}) and cannot be "
            "allocated whole"
        )
    if result.share_id and mig is not None and mig.made != "no":
        raise ClaimError(
            f"{field}.shareID: {result.device!r} is made on demand for one claim and destroyed with it, and so cannot be shared; "
            "delete the pod so that it is placed again"
        )
    return DeviceRecord(
        request=result.request,
        pool=result.pool,
        device=result.device,
        gpu_uuid=gpu.uuid,
        minor=gpu.minor,
        share_id=result.share_id,
        consumed=_consumed(result, field) if result.share_id else {},
        admin=bool(result.admin_access),
        mig=mig,
    )


def _consumed(result: DeviceRequestAllocationResult, field: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, amount in result.consumed_capacity.items():
        try:
            found[name] = int(Quantity.of(amount))
        except QuantityError as error:
            raise ClaimError(f"{field}.consumedCapacity[{name}]: {error}") from error
        if found[name] < 0:
            raise ClaimError(f"{field}.consumedCapacity[{name}]: {amount!r} is negative")
    return found


def observed(claim: ResourceClaim, *, driver: str) -> frozenset[int]:
    """Minors of the GPUs of which the claim observes MIG devices by admin access: those come and go with other claims."""
    places = (device_names.parse(result.device) for _, result in results(claim, driver=driver) if result.admin_access)
    return frozenset(place.minor for place in places if place is not None and place.profile_id is not None)


def _mig(device: str, field: str, gpu: Gpu, profile_id: int, start: int, *, dynamic: bool, admin: bool) -> MigRecord:
    """Made on demand where the GPU's are, except for admin access: it sees what exists, and nothing is made for it."""
    existing = next((mig for mig in gpu.mig_devices if (mig.profile.id, mig.start) == (profile_id, start)), None)
    if dynamic and not admin:
        profile = next((p for p in gpu.mig_profiles if p.id == profile_id and start in p.starts), None)
        if profile is None or device_names.mig_name(gpu.minor, profile, start) != device:
            raise ClaimError(f"{field}.device: {device!r} is no MIG placement that gpu-{gpu.minor} has")
        return _record(profile, start, None)
    if existing is None or device_names.mig_name(gpu.minor, existing.profile, start) != device:
        raise ClaimError(
            f"{field}.device: {device!r} does not exist: gpu-{gpu.minor} has {_mig_names(gpu)}; "
            + (_NOT_MADE if dynamic else "its MIG geometry changed after the allocation: ")
            + "delete the pod so that it is placed again"
        )
    return _record(existing.profile, start, existing)


def _record(profile: MigProfile, start: int, existing: MigDevice | None) -> MigRecord:
    return MigRecord(
        profile=profile.name,
        profile_id=profile.id,
        start=start,
        size=profile.memory_slices,
        made="no" if existing else "planned",
        uuid=existing.uuid if existing else None,
        gi_id=existing.gi_id if existing else None,
        ci_id=existing.ci_id if existing else None,
    )


def _gpu_names(inventory: Inventory) -> str:
    return ", ".join(f"gpu-{gpu.minor}" for gpu in inventory.gpus) or "no GPUs"


def _mig_names(gpu: Gpu) -> str:
    return (
        ", ".join(device_names.mig_name(gpu.minor, mig.profile, mig.start) for mig in gpu.mig_devices)
        or "no MIG devices"
    )


def configured(claim: ResourceClaim, *, driver: str) -> bool:
    """Whether the claim has a config for this driver, of a class or its own."""
    allocation = claim.status.allocation
    configs = allocation.devices.config if allocation else ()
    return any(each.opaque is not None and each.opaque.driver == driver for each in configs)
