"""The steps from "preparing" to "prepared" and back, each intent on disk before its change to the hardware.

An administrator can change the hardware at any time, so each step compares the record with what is there: a MIG device that was
replaced is not destroyed; what is gone with its GPU counts as undone.
preparer.py decides what is to be done, and holds the locks of the claim and of its GPUs meanwhile.
Keeps: the record never says less than was done; the record is removed last, so what is left can always be undone.
`on_step` is called with the name of each step when it is done: tests kill the process there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import platform
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from fairlead.driver.backend.interface import Backend, BackendError, DeviceGone
from fairlead.driver.backend.types import ComputeMode, Inventory, MigDevice, TimeSlice
from fairlead.driver.prepare import cdi, metadata
from fairlead.driver.prepare.checkpoint import CdiFiles, Checkpoint
from fairlead.driver.prepare.libraries import DriverFiles
from fairlead.driver.prepare.metadata import Metadata
from fairlead.driver.prepare.mps_daemons import CONTAINER_PIPE, Daemons, Limits
from fairlead.driver.prepare.record_cache import RecordCache
from fairlead.driver.prepare.records import ClaimRecord, DeviceRecord

log = logging.getLogger(__name__)

LOST_SHOWN = 3


class StepError(Exception):
    """A step is not possible now, though the hardware did not refuse it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """`driver_files` are those of NVIDIA's driver, of which a claim gets what its capabilities say."""

    backend: Backend
    checkpoint: Checkpoint
    cdi_files: CdiFiles
    driver_files: DriverFiles
    metadata: Metadata
    daemons: Daemons
    records: RecordCache
    inventory: Callable[[], Inventory]
    on_step: Callable[[str], None]

    # -- prepare -------------------------------------------------------------------------------------------------------

    def prepare(self, record: ClaimRecord) -> ClaimRecord:
        """Bring the claim from "preparing" to "prepared".

        Raises StepError, BackendError or OSError; then the cached record says how far it is.
        """
        self.on_step("reserved")
        if not record.changes_hardware:
            # This intent has to outlive only the process, so it need not wait for the disk.
            self.checkpoint.write(record, durable=False)
            self.on_step("intent written")
        for index, device in enumerate(record.devices):
            if device.creates_mig:
                record = self._create_mig(record, index)
            if device.time_slice is not None:
                record = self._set_time_slice(record, index, device.time_slice)
        if record.mps is not None:
            record = self._start_mps(record)
        self.write_container_files(record)
        record = msgspec.structs.replace(record, state="prepared")
        self._save(record)
        self.on_step("prepared")
        return record

    def write_container_files(self, record: ClaimRecord) -> None:
        """Metadata first, since the CDI spec mounts it."""
        self.metadata.write(record)
        if record.nccl_topology:
            uuids = {device.gpu_uuid for device in record.devices}
            gpus = [gpu for gpu in self.inventory().gpus if gpu.uuid in uuids]
            tree = self.backend.pci_tree([gpu.pci_bus_id for gpu in gpus if gpu.pci_bus_id is not None])
            self.metadata.write_topology(record.uid, metadata.topology(gpus, tree, machine=platform.machine()))
        self.on_step("metadata written")
        self.cdi_files.write(record.uid, self._spec(record))
        self.on_step("CDI written")

    def _spec(self, record: ClaimRecord) -> dict[str, Any]:
        """The CDI spec of a claim whose devices exist and whose metadata is written. Raises BackendError."""
        edits: dict[str, cdi.DeviceEdits] = {}
        for device in record.devices:
            instances = None
            if device.mig is not None and device.mig.gi_id is not None and device.mig.ci_id is not None:
                instances = device.mig.gi_id, device.mig.ci_id
            before = edits.get(device.cdi_name, cdi.DeviceEdits())
            mounts = (*before.mounts, *self.metadata.mounts(record, device))
            env: tuple[str, ...] = ()
            if record.mps is not None and device.device in record.mps.devices:
                env = (f"CUDA_MPS_PIPE_DIRECTORY={CONTAINER_PIPE}",)
                mounts += self.daemons.mounts(record.uid)
            if record.nccl_topology:
                env += (f"NCCL_TOPO_FILE={metadata.CONTAINER_FILE}",)
                mounts += (self.metadata.topology_mount(record.uid),)
            nodes = self.backend.device_nodes(device.minor, instances)
            edits[device.cdi_name] = cdi.DeviceEdits(uuid=device.uuid, nodes=nodes, env=env, mounts=mounts)
        return cdi.build(
            msgspec.structs.replace(record, state="prepared"),
            boot_id=self.checkpoint.boot_id,
            edits=edits,
            control=self.backend.control_nodes(),
            mounts=self.driver_files.of(record.capabilities),
        )

    # -- MIG -----------------------------------------------------------------------------------------------------------

    def mig_devices_unchanged(self, record: ClaimRecord) -> bool:
        """Whether the MIG devices that were created for the claim, or that it observes, still exist. Raises DeviceGone or BackendError."""
        for device in record.devices:
            if device.mig is not None and (device.mig.made == "live" or device.admin):
                found = self._find_mig(device)
                if found is None or found.uuid != device.mig.uuid:
                    return False
        return True

    def _find_mig(self, device: DeviceRecord) -> MigDevice | None:
        """The MIG device that is at this placement now, whatever created it. Raises DeviceGone or BackendError."""
        mig = device.mig
        assert mig is not None
        found = self.backend.mig_devices(device.gpu_uuid)
        return next((m for m in found if (m.profile.id, m.start) == (mig.profile_id, mig.start)), None)

    def _create_mig(self, record: ClaimRecord, index: int) -> ClaimRecord:
        """Create one MIG device: its placement is on disk before, its identity after."""
        device = record.devices[index]
        assert device.mig is not None
        there = self._find_mig(device)
        if there is not None:
            raise StepError(f"{record}: {device.device}: {self._in_the_way(there)}")
        record = record.with_mig(index, made="creating")
        self._save(record)
        self.on_step(f"create {index} intended")
        try:
            made = self.backend.create_mig(device.gpu_uuid, device.mig.profile_id, device.mig.start)
        except BackendError as error:
            if not error.left_behind:
                # Nothing was created, and an undo must not destroy what an administrator creates there meanwhile.
                self.records.put(record.with_mig(index, made="planned"))
            raise
        self.on_step(f"create {index} done")
        record = record.with_mig(index, made="live", uuid=made.uuid, gi_id=made.gi_id, ci_id=made.ci_id)
        self.records.put(record)
        # The intent suffices to undo it; the identity becomes durable with the finished claim.
        self.checkpoint.write(record, durable=False)
        self.on_step(f"create {index} recorded")
        return record

    def _in_the_way(self, there: MigDevice) -> str:
        """About a MIG device at a placement that no claim of which this driver knows overlaps."""
        lost = [str(path) for uid, path in self.checkpoint.set_aside().items() if self.records.get(uid) is None]
        if lost:
            return (
                f"MIG device {there.uuid} is at this placement, and may be of a claim whose record could not be read "
                f"({', '.join(lost[:LOST_SHOWN])}); it is left alone: cordon the node, and reboot it when its pods have ended"
            )
        return (
            f"MIG device {there.uuid} is at this placement: no claim of this driver holds it, and it did not make it; end what "
            "uses it and destroy it (nvidia-smi mig -dci, -dgi), or turn dynamic MIG off on this node"
        )

    def _destroy_mig(self, record: ClaimRecord, device: DeviceRecord) -> None:
        """Destroy what the claim created, unless it is gone with its GPU or was replaced. Raises BackendError."""
        mig = device.mig
        assert mig is not None
        try:
            found = self._find_mig(device)
        except DeviceGone:
            log.warning("%s: %s: its GPU is gone, and the MIG device with it", record, device.device)
            return
        if found is not None and mig.uuid is not None and found.uuid != mig.uuid:
            log.warning("%s: %s is another MIG device by now (%s); it is left alone", record, device.device, found.uuid)
            return
        self.backend.destroy_mig(device.gpu_uuid, mig.profile_id, mig.start)

    # -- time slices and MPS -------------------------------------------------------------------------------------------

    def _set_time_slice(self, record: ClaimRecord, index: int, interval: TimeSlice) -> ClaimRecord:
        before = record
        record = record.with_device(index, sliced=True)
        self._save(record)
        self.on_step(f"time slice {index} intended")
        try:
            self.backend.set_time_slice(record.devices[index].gpu_uuid, interval)
        except BackendError:
            self.records.put(before)  # nothing was set, and nothing has to be reset
            raise
        self.on_step(f"time slice {index} set")
        return record

    def _start_mps(self, record: ClaimRecord) -> ClaimRecord:
        """Start the claim's MPS daemon over GPUs that are exclusive to it."""
        self.backend.mps_program()  # raises where there is no MPS, before anything is changed
        record = self._with_mps_begun(record)
        self._save(record)
        self.on_step("MPS intended")
        for number, uuid in enumerate(record.earlier_compute_modes):
            self.backend.set_compute_mode(uuid, "ExclusiveProcess")
            self.on_step(f"compute mode {number} set")
        self.start_mps_daemon(record)
        self.on_step("MPS started")
        return record

    def _with_mps_begun(self, record: ClaimRecord) -> ClaimRecord:
        """With the compute modes to restore. Raises BackendError.

        A MIG device has no compute mode of its own, and a GPU that others share keeps its mode: each claim has a daemon there.
        """
        assert record.mps is not None
        modes: dict[str, ComputeMode] = {}
        for device in record.devices:
            if device.device in record.mps.devices and device.mig is None and not device.share_id:
                mode = self.backend.compute_mode(device.gpu_uuid)
                if mode is not None and mode != "ExclusiveProcess":
                    modes[device.gpu_uuid] = mode
        return msgspec.structs.replace(record, mps=msgspec.structs.replace(record.mps, begun=True, modes=modes))

    def start_mps_daemon(self, record: ClaimRecord) -> None:
        """Start the claim's MPS daemon with its limits; one that runs is kept. Raises BackendError or OSError."""
        assert record.mps is not None
        uuids = {device.device: device.uuid for device in record.devices if device.device in record.mps.devices}
        limits = Limits(
            active_thread_percentage=record.mps.active_thread_percentage,
            memory_mib={uuids[device]: mib for device, mib in record.mps.memory_mib.items()},
            multi_user=record.mps.multi_user,
        )
        self.daemons.start(record.uid, uuids.values(), limits)

    # -- unprepare -----------------------------------------------------------------------------------------------------

    def undo(self, record: ClaimRecord) -> None:
        """Back to nothing, from any state. Raises BackendError or OSError; the cached record says what is left."""
        if record.may_have_changed_hardware:
            if record.state == "prepared":
                record = msgspec.structs.replace(record, state="unpreparing")
                self._save(record)
                self.on_step("unprepare intended")
            if record.mps is not None and record.mps.begun:
                self._stop_mps(record)
            for index, device in reversed(list(enumerate(record.devices))):
                if device.sliced:
                    with _unless_impossible(record, device.device, "time slice"):
                        self.backend.set_time_slice(device.gpu_uuid, "Default")
                    self.on_step(f"time slice {index} reset")
                if device.mig_may_exist:
                    self._destroy_mig(record, device)
                    record = record.with_mig(index, made="planned")
                    self.records.put(record)
                    self.on_step(f"destroyed {index}")
        # The CDI file before the record, whose spare copy it holds.
        self.cdi_files.remove(record.uid)
        self.on_step("CDI removed")
        self.metadata.remove(record.uid)
        self.on_step("metadata removed")
        self.checkpoint.remove(record.uid)
        self.on_step("record removed")
        self.records.remove(record.uid)

    def remove_orphan(self, uid: str) -> None:
        """End the MPS daemon and remove the files of a claim without a record. Raises BackendError or OSError."""
        self.daemons.stop(uid)
        self.metadata.remove(uid)

    def _stop_mps(self, record: ClaimRecord) -> None:
        self.daemons.stop(record.uid)
        self.on_step("MPS stopped")
        for number, (uuid, mode) in enumerate(record.earlier_compute_modes.items()):
            with _unless_impossible(record, f"GPU {uuid}", "compute mode"):
                self.backend.set_compute_mode(uuid, mode)
            self.on_step(f"compute mode {number} reset")

    def _save(self, record: ClaimRecord) -> None:
        """To disk, then to the cache: what fails on disk is not known in memory either."""
        self.checkpoint.write(record)
        self.records.put(record)


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
