"""What a claim changes of the hardware, against what is there: MIG devices, time slices, MPS.

Exists because between a record and the hardware an administrator can do anything: what stands where ours was is not
ours. The order of steps is steps.py's.
"""

from __future__ import annotations

import logging

import msgspec

from fairlead.driver.backend.interface import Backend, BackendError, DeviceGone
from fairlead.driver.backend.types import ComputeMode, MigDevice
from fairlead.driver.prepare.mps.daemons import Daemons, Limits
from fairlead.driver.prepare.records import ClaimRecord, DeviceRecord

log = logging.getLogger(__name__)


def own(device: DeviceRecord) -> bool:
    """Whether preparing the claim has to make the device first."""
    return device.mig is not None and device.mig.made != "no"


def may_exist(device: DeviceRecord) -> bool:
    """Whether a MIG device that the claim made may be there, and has to go."""
    return device.mig is not None and device.mig.made in {"creating", "live"}


def changes_hardware(record: ClaimRecord) -> bool:
    """Whether preparing the claim changes more than files."""
    return record.mps is not None or any(own(device) or device.time_slice for device in record.devices)


def changed_hardware(record: ClaimRecord) -> bool:
    """Whether it may have, so far."""
    begun = record.mps is not None and record.mps.begun
    return begun or any(device.sliced or may_exist(device) for device in record.devices)


def there(backend: Backend, device: DeviceRecord) -> MigDevice | None:
    """The MIG device that is at this placement now, whoever made it. Raises DeviceGone or BackendError."""
    mig = device.mig
    assert mig is not None
    found = backend.mig_devices(device.gpu_uuid)
    return next((m for m in found if (m.profile.id, m.start) == (mig.profile_id, mig.start)), None)


def intact(backend: Backend, record: ClaimRecord) -> bool:
    """Whether the MIG devices made for the claim are still those: an administrator may have destroyed one."""
    for device in record.devices:
        if device.mig is not None and device.mig.made == "live":
            found = there(backend, device)
            if found is None or found.uuid != device.mig.uuid:
                return False
    return True


def destroy(backend: Backend, record: ClaimRecord, device: DeviceRecord) -> None:
    """Take back what the claim made; gone with its GPU, or replaced by somebody else's, it is gone. Raises BackendError."""
    mig = device.mig
    assert mig is not None
    try:
        found = there(backend, device)
    except DeviceGone:
        log.warning("%s: %s: its GPU is gone, and the MIG device with it", record, device.device)
        return
    if found is not None and mig.uuid is not None and found.uuid != mig.uuid:
        log.warning("%s: %s is another MIG device by now (%s); it is left alone", record, device.device, found.uuid)
        return
    backend.destroy_mig(device.gpu_uuid, mig.profile_id, mig.start)


def reset_time_slice(backend: Backend, record: ClaimRecord, device: DeviceRecord) -> None:
    """Back to the driver's own time slice; harmless where it was never set. Raises BackendError."""
    try:
        backend.set_time_slice(device.gpu_uuid, "Default")
    except DeviceGone:
        log.warning("%s: %s: its GPU is gone, and its time slice with it", record, device.device)
    except BackendError as error:
        if not error.permanent:
            raise
        # What can never be set was not set either.
        log.warning("%s: %s: %s", record, device.device, error)


def sliced(record: ClaimRecord, index: int) -> ClaimRecord:
    """The record with the time slice of its device at `index` taken as set."""
    devices = list(record.devices)
    devices[index] = msgspec.structs.replace(devices[index], sliced=True)
    return msgspec.structs.replace(record, devices=tuple(devices))


def changed(record: ClaimRecord, index: int, **changes: object) -> ClaimRecord:
    """The record with its MIG device at `index` changed."""
    devices = list(record.devices)
    mig = devices[index].mig
    assert mig is not None
    devices[index] = msgspec.structs.replace(devices[index], mig=msgspec.structs.replace(mig, **changes))
    return msgspec.structs.replace(record, devices=tuple(devices))


# -- MPS ---------------------------------------------------------------------------------------------------------------


def mps_begun(backend: Backend, record: ClaimRecord) -> ClaimRecord:
    """The record with its MPS daemon taken as started, and with the compute modes to go back to. Raises BackendError.

    A MIG device has no compute mode of its own.
    """
    assert record.mps is not None
    modes: dict[str, ComputeMode] = {}
    for device in record.devices:
        if device.device in record.mps.devices and device.mig is None:
            mode = backend.compute_mode(device.gpu_uuid)
            if mode is not None and mode != "ExclusiveProcess":
                modes[device.gpu_uuid] = mode
    return msgspec.structs.replace(record, mps=msgspec.structs.replace(record.mps, begun=True, modes=modes))


def modes(record: ClaimRecord) -> dict[str, ComputeMode]:
    """By UUID: the compute modes that the claim's GPUs had."""
    return record.mps.modes if record.mps is not None else {}


def start_mps(daemons: Daemons, record: ClaimRecord) -> None:
    """Have the claim's MPS daemon run with its limits; one that runs is kept. Raises BackendError or OSError."""
    assert record.mps is not None
    uuids = {device.device: device.uuid for device in record.devices if device.device in record.mps.devices}
    limits = Limits(
        active_thread_percentage=record.mps.active_thread_percentage,
        memory_mib={uuids[device]: mib for device, mib in record.mps.memory_mib.items()},
        multi_user=record.mps.multi_user,
    )
    daemons.start(record.uid, uuids.values(), limits)


def reset_compute_mode(backend: Backend, record: ClaimRecord, uuid: str, mode: ComputeMode) -> None:
    """Back to what it was before the claim's MPS daemon. Raises BackendError."""
    try:
        backend.set_compute_mode(uuid, mode)
    except DeviceGone:
        log.warning("%s: GPU %s is gone, and its compute mode with it", record, uuid)
    except BackendError as error:
        if not error.permanent:
            raise
        # What can never be set was not set either.
        log.warning("%s: GPU %s: %s", record, uuid, error)
