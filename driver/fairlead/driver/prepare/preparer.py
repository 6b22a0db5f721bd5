"""Prepare and unprepare: a claim's devices made usable on this node, and taken back, whatever happens in between.

Exists so that a kill at any point leaks nothing. What is about to change is on disk before it changes; each later step
can find out what the one before did. Talks to no apiserver and no kubelet; blocks, so it runs in threads.

    prepare    reserve in memory, record "preparing" (each MIG device: "creating", create, "live"), time slices,
               compute modes and MPS daemon, metadata, CDI file, record "prepared"
    unprepare  record "unpreparing" (only where hardware changes), MPS daemon and compute modes, time slices,
               MIG devices, CDI file, metadata, record

Keeps: two claims never hold what overlaps (admin access aside), finished or not; a claim prepared twice gets the same
answer; GPUs are worked on one claim at a time, different GPUs at once. The steps themselves are steps.py's.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from fairlead.api import names
from fairlead.driver.backend.interface import Backend, BackendError
from fairlead.driver.backend.types import Inventory
from fairlead.driver.common import files
from fairlead.driver.common.locks import KeyedLocks
from fairlead.driver.prepare import cdi, claims, hardware, records, sharing
from fairlead.driver.prepare.checkpoint import Checkpoint, Unreadable
from fairlead.driver.prepare.claims import ClaimError
from fairlead.driver.prepare.libraries import Mount
from fairlead.driver.prepare.metadata import Metadata
from fairlead.driver.prepare.mps.daemons import CONTAINER_PIPE, Daemons
from fairlead.driver.prepare.records import ClaimRecord
from fairlead.driver.prepare.recovery import Recoverer, Recovery
from fairlead.driver.prepare.steps import StepError, Steps
from fairlead.kube.resource import ResourceClaim

log = logging.getLogger(__name__)


class PrepareError(Exception):
    """A claim could not be prepared or unprepared now; kubelet will ask again."""


def _nothing(step: str) -> None:
    pass


class Preparer:
    """The claims of one node. `inventory` gives the present hardware, `partitionable` the GPUs cut on demand,
    `unusable` why a GPU (by UUID) can be given to nobody.

    Safe to call from many threads. `recover` comes first, before any other thread.
    """

    def __init__(
        self,
        *,
        driver: str,
        pool: str,
        backend: Backend,
        checkpoint: Checkpoint,
        store: cdi.Store,
        inventory: Callable[[], Inventory],
        partitionable: Callable[[], frozenset[str]] = frozenset,
        unusable: Callable[[str], str | None] | None = None,
        metadata: Metadata,
        daemons: Daemons,
        mounts: Iterable[Mount] = (),
        at: Callable[[str], None] = _nothing,
    ) -> None:
        self._driver = driver
        self._pool = pool
        self._backend = backend
        self._checkpoint = checkpoint
        self._store = store
        self._inventory = inventory
        self._partitionable = partitionable
        self._unusable = unusable
        self._metadata = metadata
        self._daemons = daemons
        self._mounts = tuple(mounts)
        self._steps = Steps(
            backend=backend,
            checkpoint=checkpoint,
            store=store,
            metadata=metadata,
            daemons=daemons,
            spec=self._spec,
            note=self._note,
            forget=self._forget,
            at=at,
        )
        self._recoverer = Recoverer(checkpoint=checkpoint, store=store, steps=self._steps, note=self._note)
        self._claims = KeyedLocks()
        self._gpus = KeyedLocks()
        self._mutex = threading.Lock()
        self._records: dict[str, ClaimRecord] = {}

    def records(self) -> tuple[ClaimRecord, ...]:
        """Every claim known, prepared or on its way, sorted by UID."""
        with self._mutex:
            return tuple(self._records[uid] for uid in sorted(self._records))

    def record(self, uid: str) -> ClaimRecord | None:
        with self._mutex:
            return self._records.get(uid)

    def reload(self) -> tuple[Unreadable, ...]:
        """Read the records again: another process of this driver has worked on them (a rolling update)."""
        loaded = self._checkpoint.load()
        with self._mutex:
            self._records = dict(loaded.records)
        return loaded.unreadable

    def recover(self) -> Recovery:
        """Take up what is on disk. Raises OSError only when the directories cannot be used at all."""
        loaded = self._recoverer.load()
        with self._mutex:
            self._records = dict(loaded.records)
        return self._recoverer.settle(loaded, self.records)

    # -- prepare -----------------------------------------------------------------------------------------------------

    def prepare(self, claim: ResourceClaim) -> ClaimRecord:
        """Make the claim's devices usable; the record says what to answer. The same claim again: the same answer.

        Raises ClaimError when the claim cannot be prepared as it is, PrepareError when it may work later.
        """
        uid = claim.metadata.uid
        if not records.valid_uid(uid):
            raise ClaimError(f"{claims.describe(claim)}: metadata.uid: {uid!r} cannot be part of a file's name")
        with self._claims.hold([uid]):
            wanted = claims.allocated(claim, driver=self._driver)
            existing = self.record(uid)
            try:
                if existing is not None and existing.state == "prepared":
                    if [device.allocated for device in existing.devices] != wanted:
                        log.warning("%s is allocated anew; its old devices are given back first", existing)
                    elif hardware.intact(self._backend, existing):
                        return self._again(existing)
                    else:
                        log.warning("%s: a MIG device of it is gone; it is prepared from the start", existing)
                if existing is not None:
                    with self._gpus.hold(_locked(existing)):
                        self._steps.undo(existing)
                return self._prepare(claim)
            except BackendError as error:
                raise PrepareError(f"{claims.describe(claim)}: {error}") from error
            except StepError as error:
                raise PrepareError(str(error)) from error
            except OSError as error:
                raise PrepareError(f"{claims.describe(claim)}: {files.describe(error)}") from error

    def _prepare(self, claim: ResourceClaim) -> ClaimRecord:
        inventory = self._inventory()
        planned = claims.plan(
            claim,
            driver=self._driver,
            pool=self._pool,
            inventory=inventory,
            partitionable=self._partitionable(),
        )
        planned, mps = sharing.plan(claim, planned, driver=self._driver, inventory=inventory)
        for device in planned:
            if self._unusable is not None and (why := self._unusable(device.gpu_uuid)) is not None:
                raise ClaimError(
                    f"{claims.describe(claim)}: {device.device} cannot be used: {why}; delete the pod so that it is "
                    "placed again"
                )
        record = ClaimRecord(
            uid=claim.metadata.uid,
            namespace=claim.metadata.namespace,
            name=claim.metadata.name,
            state="preparing",
            devices=planned,
            mps=mps,
            pod_claim=claim.metadata.annotations.get(names.POD_CLAIM_NAME),
        )
        if not planned:
            return msgspec.structs.replace(record, state="prepared")
        self._reserve(record)
        with self._gpus.hold(_locked(record)):
            try:
                return self._steps.carry_out(record)
            except Exception:
                # What was done so far is in the record that is noted; a step that failed may have left less than it
                # says, never more. An undo that fails too leaves the record: the next call, or start, tries again.
                self._undo_if_possible(self.record(record.uid) or record)
                raise

    def _again(self, record: ClaimRecord) -> ClaimRecord:
        """A finished claim asked for once more, after a restart of kubelet, of us, or of the pod's sandbox."""
        if not self._store.exists(record.uid):
            log.warning("%s: its CDI file is gone; writing it again", record)
            with self._gpus.hold(_locked(record)):
                self._steps.present(record)
        if self._unserved(record):
            self._revive(record)
        return record

    def _reserve(self, record: ClaimRecord) -> None:
        """Claim the devices in memory, so that of two claims at once one is refused, not both half prepared."""
        with self._mutex:
            others = (other for other in self._records.values() if other.uid != record.uid)
            found = records.conflict(record.devices, others)
            if found is None:
                self._records[record.uid] = record
                return
        device, holder = found
        theirs = next(d for d in holder.devices if records.overlap(device, d))
        raise PrepareError(
            f"ResourceClaim {record.namespace}/{record.name}: {device.device} "
            f"{'is' if theirs.device == device.device else f'overlaps {theirs.device}, which is'} "
            f"held by {holder}, which is {holder.state} on this node; it is free when that claim's last pod has ended"
        )

    # -- unprepare ---------------------------------------------------------------------------------------------------

    def unprepare(self, uid: str) -> bool:
        """Take the claim's devices back; False when it is not known, which is as good. Raises PrepareError."""
        if not records.valid_uid(uid):
            return False
        with self._claims.hold([uid]):
            record = self.record(uid)
            try:
                if record is None:
                    self._store.remove(uid)
                    return False
                with self._gpus.hold(_locked(record)):
                    self._steps.undo(record)
                return True
            except BackendError as error:
                raise PrepareError(f"{record}: {error}") from error
            except OSError as error:
                raise PrepareError(f"ResourceClaim {uid}: {files.describe(error)}") from error

    def _undo_if_possible(self, record: ClaimRecord) -> None:
        try:
            self._steps.undo(record)
        except (BackendError, OSError) as error:
            log.error("%s: could not be undone (%s); its devices stay held until that works", record, error)

    # -- MPS ---------------------------------------------------------------------------------------------------------

    def without_mps_daemon(self) -> tuple[ClaimRecord, ...]:
        """Prepared claims whose MPS daemon is dead."""
        return tuple(record for record in self.records() if record.state == "prepared" and self._unserved(record))

    def restart_mps_daemon(self, uid: str) -> bool:
        """Start the claim's MPS daemon again; False when there is no need any more. Raises PrepareError."""
        with self._claims.hold([uid]):
            record = self.record(uid)
            if record is None or record.state != "prepared" or not self._unserved(record):
                return False
            try:
                self._revive(record)
            except BackendError as error:
                raise PrepareError(f"{record}: {error}") from error
            except OSError as error:
                raise PrepareError(f"{record}: {files.describe(error)}") from error
            return True

    def _unserved(self, record: ClaimRecord) -> bool:
        return record.mps is not None and not self._daemons.alive(record.uid)

    def _revive(self, record: ClaimRecord) -> None:
        with self._gpus.hold(_locked(record)):
            for uuid in hardware.modes(record):  # somebody may have set it back, now that nothing ran
                self._backend.set_compute_mode(uuid, "ExclusiveProcess")
            hardware.start_mps(self._daemons, record)

    # -- shared ------------------------------------------------------------------------------------------------------

    def _spec(self, record: ClaimRecord) -> dict[str, Any]:
        parts: dict[str, cdi.Part] = {}
        for device in record.devices:
            ids = None
            if device.mig is not None and device.mig.gi_id is not None and device.mig.ci_id is not None:
                ids = device.mig.gi_id, device.mig.ci_id
            before = parts.get(device.cdi_name, cdi.Part())
            mounts = (*before.mounts, *self._metadata.mounts(record, device))
            env: tuple[str, ...] = ()
            if record.mps is not None and device.device in record.mps.devices:
                env = (f"CUDA_MPS_PIPE_DIRECTORY={CONTAINER_PIPE}",)
                mounts += self._daemons.mounts(record.uid)
            nodes = self._backend.device_nodes(device.minor, ids)
            parts[device.cdi_name] = cdi.Part(uuid=device.uuid, nodes=nodes, env=env, mounts=mounts)
        return cdi.build(
            msgspec.structs.replace(record, state="prepared"),
            boot_id=self._checkpoint.boot_id,
            parts=parts,
            control=self._backend.control_nodes(),
            mounts=self._mounts,
        )

    def _note(self, record: ClaimRecord) -> None:
        with self._mutex:
            self._records[record.uid] = record

    def _forget(self, uid: str) -> None:
        with self._mutex:
            self._records.pop(uid, None)


def _locked(record: ClaimRecord) -> set[str]:
    """The GPUs to hold while this claim is worked on: looking on needs none."""
    return {device.gpu_uuid for device in record.devices if not device.admin}
