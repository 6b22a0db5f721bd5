"""The steps of prepare and unprepare, one after the other, each on disk before it is taken.

Exists apart from prepare.py, which decides what is to be done and who waits for whom. The caller holds the claim's GPUs.
Keeps: what the record says is never less than what was done; a record goes last, so what is left can always be undone.
`at` is called with the name of each step passed: tests kill there.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from fairlead.driver.backend.interface import Backend, BackendError
from fairlead.driver.backend.types import TimeSlice
from fairlead.driver.prepare import cdi, hardware
from fairlead.driver.prepare.checkpoint import Checkpoint
from fairlead.driver.prepare.metadata import Metadata
from fairlead.driver.prepare.mps.daemons import Daemons
from fairlead.driver.prepare.records import ClaimRecord

log = logging.getLogger(__name__)


class StepError(Exception):
    """A step cannot be taken now, and it is not the hardware's fault."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """`note` is told each new state of a record, `forget` that it is gone; `spec` makes the CDI spec of a record."""

    backend: Backend
    checkpoint: Checkpoint
    store: cdi.Store
    metadata: Metadata
    daemons: Daemons
    spec: Callable[[ClaimRecord], dict[str, Any]]
    note: Callable[[ClaimRecord], None]
    forget: Callable[[str], None]
    at: Callable[[str], None]

    # -- forward -------------------------------------------------------------------------------------------------------

    def carry_out(self, record: ClaimRecord) -> ClaimRecord:
        """From "preparing" to "prepared". Raises StepError, BackendError or OSError; then the noted record says how far."""
        self.at("reserved")
        if not hardware.changes_hardware(record):
            # This intent only has to outlive the process, so it need not wait for the disk.
            self.checkpoint.write(record, durable=False)
            self.at("intent written")
        for index, device in enumerate(record.devices):
            if hardware.own(device):
                record = self._create(record, index)
            if device.time_slice is not None:
                record = self._slice(record, index, device.time_slice)
        if record.mps is not None:
            record = self._share(record)
        self.present(record)
        record = msgspec.structs.replace(record, state="prepared")
        self.checkpoint.write(record)
        self.note(record)
        self.at("prepared")
        return record

    def present(self, record: ClaimRecord) -> None:
        """What the container runtime reads: metadata first, since the CDI spec mounts it."""
        self.metadata.write(record)
        self.at("metadata written")
        self.store.write(record.uid, self.spec(record))
        self.at("CDI written")

    def _create(self, record: ClaimRecord, index: int) -> ClaimRecord:
        """Bring one MIG device into being; the intent is on disk before, its identity after."""
        device = record.devices[index]
        assert device.mig is not None
        if hardware.there(self.backend, device) is not None:
            raise StepError(
                f"{record}: {device.device}: a MIG device that no claim holds is at this placement; "
                "destroy it (nvidia-smi mig -dci, -dgi), or turn dynamic MIG off on this node"
            )
        record = hardware.changed(record, index, made="creating")
        self.checkpoint.write(record)
        self.note(record)
        self.at(f"create {index} intended")
        try:
            made = self.backend.create_mig(device.gpu_uuid, device.mig.profile_id, device.mig.start)
        except BackendError as error:
            if not error.left_behind:
                # Nothing is there, and an undo must not take away what someone else put there meanwhile.
                self.note(hardware.changed(record, index, made="planned"))
            raise
        self.at(f"create {index} done")
        record = hardware.changed(record, index, made="live", uuid=made.uuid, gi_id=made.gi_id, ci_id=made.ci_id)
        self.note(record)
        # The intent above suffices to undo it; the identity is durable with the claim.
        self.checkpoint.write(record, durable=False)
        self.at(f"create {index} recorded")
        return record

    def _slice(self, record: ClaimRecord, index: int, interval: TimeSlice) -> ClaimRecord:
        """Set a GPU's time slice; the intent is on disk before."""
        before = record
        record = hardware.sliced(record, index)
        self.checkpoint.write(record)
        self.note(record)
        self.at(f"time slice {index} intended")
        try:
            self.backend.set_time_slice(record.devices[index].gpu_uuid, interval)
        except BackendError:
            self.note(before)  # nothing was set, and nothing has to be set back
            raise
        self.at(f"time slice {index} set")
        return record

    def _share(self, record: ClaimRecord) -> ClaimRecord:
        """The claim's MPS daemon, over GPUs that it has for itself; all of it is on disk before."""
        self.backend.mps_program()  # refuses where there is no MPS, before anything is changed
        record = hardware.mps_begun(self.backend, record)
        self.checkpoint.write(record)
        self.note(record)
        self.at("MPS intended")
        for number, uuid in enumerate(hardware.modes(record)):
            self.backend.set_compute_mode(uuid, "ExclusiveProcess")
            self.at(f"compute mode {number} set")
        hardware.start_mps(self.daemons, record)
        self.at("MPS started")
        return record

    # -- back ----------------------------------------------------------------------------------------------------------

    def undo(self, record: ClaimRecord) -> None:
        """Back to nothing, from any state. Raises BackendError or OSError; then the record says what is left."""
        if hardware.changed_hardware(record):
            if record.state == "prepared":
                record = msgspec.structs.replace(record, state="unpreparing")
                self.checkpoint.write(record)
                self.note(record)
                self.at("unprepare intended")
            if record.mps is not None and record.mps.begun:
                self._stop_sharing(record)
            for index, device in reversed(list(enumerate(record.devices))):
                if device.sliced:
                    hardware.reset_time_slice(self.backend, record, device)
                    self.at(f"time slice {index} reset")
                if hardware.may_exist(device):
                    hardware.destroy(self.backend, record, device)
                    record = hardware.changed(record, index, made="planned")
                    self.note(record)
                    self.at(f"destroyed {index}")
        # The CDI file goes before the record, whose spare copy it holds.
        self.store.remove(record.uid)
        self.at("CDI removed")
        self.metadata.remove(record.uid)
        self.at("metadata removed")
        self.checkpoint.remove(record.uid)
        self.at("record removed")
        self.forget(record.uid)

    def _stop_sharing(self, record: ClaimRecord) -> None:
        self.daemons.stop(record.uid)
        self.at("MPS stopped")
        for number, (uuid, mode) in enumerate(hardware.modes(record).items()):
            hardware.reset_compute_mode(self.backend, record, uuid, mode)
            self.at(f"compute mode {number} reset")
