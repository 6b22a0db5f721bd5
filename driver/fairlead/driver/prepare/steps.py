"""The steps from "preparing" to "prepared" and back, each intent on disk before its change to the hardware.

preparer.py decides what is to be done, and holds the locks of the claim and of its GPUs meanwhile.
Keeps: the record never says less than was done; the record is removed last, so what is left can always be undone.
`on_step` is called with the name of each step when it is done: tests kill the process there.
"""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Callable

import msgspec

from fairlead.driver.backend.interface import Backend, BackendError
from fairlead.driver.backend.types import Inventory, MigDevice, TimeSlice
from fairlead.driver.prepare import hardware, nccl
from fairlead.driver.prepare.cdi_builder import CdiBuilder
from fairlead.driver.prepare.cdi_files import CdiFiles
from fairlead.driver.prepare.checkpoint import Checkpoint
from fairlead.driver.prepare.metadata import Metadata
from fairlead.driver.prepare.mps.daemons import Daemons
from fairlead.driver.prepare.record_cache import RecordCache
from fairlead.driver.prepare.records import ClaimRecord

LOST_SHOWN = 3


class StepError(Exception):
    """A step is not possible now, though the hardware did not refuse it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    backend: Backend
    checkpoint: Checkpoint
    cdi_files: CdiFiles
    cdi_builder: CdiBuilder
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
            self.metadata.write_topology(record.uid, nccl.topology(gpus, tree, machine=platform.machine()))
        self.on_step("metadata written")
        self.cdi_files.write(record.uid, self.cdi_builder.build(record))
        self.on_step("CDI written")

    def _create_mig(self, record: ClaimRecord, index: int) -> ClaimRecord:
        """Create one MIG device: its placement is on disk before, its identity after."""
        device = record.devices[index]
        assert device.mig is not None
        there = hardware.find_mig(self.backend, device)
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
        record = hardware.with_mps_begun(self.backend, record)
        self._save(record)
        self.on_step("MPS intended")
        for number, uuid in enumerate(record.earlier_compute_modes):
            self.backend.set_compute_mode(uuid, "ExclusiveProcess")
            self.on_step(f"compute mode {number} set")
        hardware.start_mps_daemon(self.daemons, record)
        self.on_step("MPS started")
        return record

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
                    hardware.reset_time_slice(self.backend, record, device)
                    self.on_step(f"time slice {index} reset")
                if device.mig_may_exist:
                    hardware.destroy_mig(self.backend, record, device)
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
            hardware.restore_compute_mode(self.backend, record, uuid, mode)
            self.on_step(f"compute mode {number} reset")

    def _save(self, record: ClaimRecord) -> None:
        """To disk, then to the cache: what fails on disk is not known in memory either."""
        self.checkpoint.write(record)
        self.records.put(record)
