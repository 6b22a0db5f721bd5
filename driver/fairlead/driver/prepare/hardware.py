"""The hardware operations of a claim: MIG devices, time slices, compute modes, the MPS daemon.

An administrator can change the hardware at any time, so each operation compares the record with what is there: a MIG
device that was replaced is not destroyed; what is gone with its GPU counts as undone. The order of operations is
steps.py's.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import msgspec

from fairlead.driver.backend.interface import Backend, BackendError, DeviceGone
from fairlead.driver.backend.types import ComputeMode, MigDevice
from fairlead.driver.prepare.mps.daemons import Daemons, Limits
from fairlead.driver.prepare.records import ClaimRecord, DeviceRecord

log = logging.getLogger(__name__)


def processes(backend: Backend, record: ClaimRecord) -> list[str]:
    """What runs on the GPUs that the claim has whole and alone, in words; none of a GPU that does not answer.

    A MIG device in use cannot be destroyed anyway, and those of MPS and of shared GPUs may be others'.
    """
    whole = {device.gpu_uuid for device in record.devices if not (device.admin or device.mig or device.share_id)}
    found: list[str] = []
    for uuid in sorted(whole) if record.mps is None else ():
        with contextlib.suppress(BackendError):
            found += [f"{process} is on GPU {uuid}" for process in backend.processes(uuid)]
    return found


# -- MIG ---------------------------------------------------------------------------------------------------------------


def find_mig(backend: Backend, device: DeviceRecord) -> MigDevice | None:
    """The MIG device that is at this placement now, whatever created it. Raises DeviceGone or BackendError."""
    mig = device.mig
    assert mig is not None
    found = backend.mig_devices(device.gpu_uuid)
    return next((m for m in found if (m.profile.id, m.start) == (mig.profile_id, mig.start)), None)


def mig_devices_unchanged(backend: Backend, record: ClaimRecord) -> bool:
    """Whether the MIG devices that were created for the claim, or that it observes, still exist. Raises DeviceGone or BackendError."""
    for device in record.devices:
        if device.mig is not None and (device.mig.made == "live" or device.admin):
            found = find_mig(backend, device)
            if found is None or found.uuid != device.mig.uuid:
                return False
    return True


def destroy_mig(backend: Backend, record: ClaimRecord, device: DeviceRecord) -> None:
    """Destroy what the claim created, unless it is gone with its GPU or was replaced. Raises BackendError."""
    mig = device.mig
    assert mig is not None
    try:
        found = find_mig(backend, device)
    except DeviceGone:
        log.warning("%s: %s: its GPU is gone, and the MIG device with it", record, device.device)
        return
    if found is not None and mig.uuid is not None and found.uuid != mig.uuid:
        log.warning("%s: %s is another MIG device by now (%s); it is left alone", record, device.device, found.uuid)
        return
    backend.destroy_mig(device.gpu_uuid, mig.profile_id, mig.start)


# -- time slices -------------------------------------------------------------------------------------------------------


def reset_time_slice(backend: Backend, record: ClaimRecord, device: DeviceRecord) -> None:
    """Set the default time slice; harmless where none was set. Raises BackendError."""
    with _unless_impossible(record, device.device, "time slice"):
        backend.set_time_slice(device.gpu_uuid, "Default")


# -- MPS ---------------------------------------------------------------------------------------------------------------


def with_mps_begun(backend: Backend, record: ClaimRecord) -> ClaimRecord:
    """The record to write before the MPS daemon starts: with the compute modes to restore. Raises BackendError.

    A MIG device has no compute mode of its own, and a GPU that others share keeps its mode: each claim has a daemon there.
    """
    assert record.mps is not None
    modes: dict[str, ComputeMode] = {}
    for device in record.devices:
        if device.device in record.mps.devices and device.mig is None and not device.share_id:
            mode = backend.compute_mode(device.gpu_uuid)
            if mode is not None and mode != "ExclusiveProcess":
                modes[device.gpu_uuid] = mode
    return msgspec.structs.replace(record, mps=msgspec.structs.replace(record.mps, begun=True, modes=modes))


def start_mps_daemon(daemons: Daemons, record: ClaimRecord) -> None:
    """Start the claim's MPS daemon with its limits; one that runs is kept. Raises BackendError or OSError."""
    assert record.mps is not None
    uuids = {device.device: device.uuid for device in record.devices if device.device in record.mps.devices}
    limits = Limits(
        active_thread_percentage=record.mps.active_thread_percentage,
        memory_mib={uuids[device]: mib for device, mib in record.mps.memory_mib.items()},
        multi_user=record.mps.multi_user,
    )
    daemons.start(record.uid, uuids.values(), limits)


def restore_compute_mode(backend: Backend, record: ClaimRecord, uuid: str, mode: ComputeMode) -> None:
    """Set the mode that the GPU had before the claim's MPS daemon. Raises BackendError."""
    with _unless_impossible(record, f"GPU {uuid}", "compute mode"):
        backend.set_compute_mode(uuid, mode)


@contextlib.contextmanager
def _unless_impossible(record: ClaimRecord, device: str, setting: str) -> Iterator[None]:
    """Let a setting be that is gone with its GPU, or that can never be set, and so was not set before."""
    try:
        yield
    except DeviceGone:
        log.warning("%s: %s: the GPU is gone, and its %s with it", record, device, setting)
    except BackendError as error:
        if not error.permanent:
            raise
        log.warning("%s: %s: %s", record, device, error)
