"""Prepare and unprepare: a claim's devices made usable on this node, and released, whatever happens in between.

A kill at any point leaks nothing: what is about to change is on disk before it changes, and each later step finds out
what the one before did. Calls no apiserver and no kubelet. Blocks, so it runs in threads.

    prepare    reserve in memory, record "preparing" (each MIG device: "creating", create, "live"), time slices,
               compute modes and MPS daemon, metadata, CDI file, record "prepared"
    unprepare  record "unpreparing" (only where hardware changes), MPS daemon and compute modes, time slices,
               MIG devices, CDI file, metadata, record

Keeps: no two claims have devices that overlap (admin access aside), finished or not, and the shares of a GPU take no more
than it has; a claim that is prepared twice
gets the same answer; one claim at a time works on a GPU, different GPUs in parallel. The steps themselves are
steps.py's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator

import msgspec

from fairlead.api import names
from fairlead.api.capabilities import DEFAULT_CAPABILITIES, Capability
from fairlead.driver.backend.interface import Backend, BackendError
from fairlead.driver.backend.types import Inventory, SharedLimits
from fairlead.driver.common import files
from fairlead.driver.common.locks import KeyedLocks
from fairlead.driver.prepare import claims, records
from fairlead.driver.prepare.checkpoint import CdiFiles, Checkpoint, Unreadable
from fairlead.driver.prepare.claims import ClaimError
from fairlead.driver.prepare.leftovers import Leftovers, RecoveryResult, reason
from fairlead.driver.prepare.libraries import NO_FILES, DriverFiles
from fairlead.driver.prepare.metadata import Metadata
from fairlead.driver.prepare.mps_daemons import Daemons
from fairlead.driver.prepare.record_cache import RecordCache
from fairlead.driver.prepare.records import ClaimRecord, Overdraft
from fairlead.driver.prepare.steps import StepError, Steps
from fairlead.kube.resource import ResourceClaim

log = logging.getLogger(__name__)


class PrepareError(Exception):
    """A claim cannot be prepared or unprepared now; kubelet retries."""


class OccupiedError(PrepareError):
    """The claim's devices are those of other claims on this node; `holders` are their records."""

    def __init__(self, message: str, holders: tuple[ClaimRecord, ...]) -> None:
        super().__init__(message)
        self.holders = holders


def _ignore(step: str) -> None:
    pass


def _no_reason(uuid: str) -> str | None:
    return None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """The node's GPUs as they are now. `inventory` gives the present hardware, `partitionable` the GPUs whose MIG devices are
    created on demand, `unusable` why no claim can be prepared on a GPU (by UUID), `closed` why none can be for a while, `shared_limits` what holds shares of which no config says it.
    """

    inventory: Callable[[], Inventory]
    partitionable: Callable[[], frozenset[str]] = frozenset
    unusable: Callable[[str], str | None] = _no_reason
    closed: Callable[[str], str | None] = _no_reason
    shared_limits: SharedLimits = "none"


class Preparer:
    """The claims of one node. Safe to call from many threads. `recover` comes first, before any other thread."""

    def __init__(
        self,
        *,
        pool: str,
        backend: Backend,
        checkpoint: Checkpoint,
        cdi_files: CdiFiles,
        cache: RecordCache,
        gpus: Gpus,
        metadata: Metadata,
        daemons: Daemons,
        driver_files: DriverFiles = NO_FILES,
        on_step: Callable[[str], None] = _ignore,
    ) -> None:
        self._pool = pool
        self._backend = backend
        self._checkpoint = checkpoint
        self._cdi_files = cdi_files
        self._cache = cache
        self._gpus = gpus
        self._daemons = daemons
        self._steps = Steps(
            backend=backend,
            checkpoint=checkpoint,
            cdi_files=cdi_files,
            driver_files=driver_files,
            metadata=metadata,
            daemons=daemons,
            records=cache,
            inventory=gpus.inventory,
            on_step=on_step,
        )
        self._claim_locks = KeyedLocks()
        self._gpu_locks = KeyedLocks()
        self.leftovers = Leftovers(steps=self._steps, claim_locks=self._claim_locks, gpu_locks=self._gpu_locks)

    def records(self) -> tuple[ClaimRecord, ...]:
        """Every claim known, prepared or on its way, sorted by UID."""
        return self._cache.all()

    def record(self, uid: str) -> ClaimRecord | None:
        return self._cache.get(uid)

    def reload(self) -> tuple[Unreadable, ...]:
        """Read the records again, after another process of this driver (rolling update) may have changed them."""
        loaded = self._checkpoint.load()
        self._cache.replace_all(loaded.records)
        return loaded.unreadable

    def recover(self) -> RecoveryResult:
        """Take over or undo what an earlier process left. Raises OSError when the directories cannot be used."""
        return self.leftovers.recover()

    # -- prepare -----------------------------------------------------------------------------------------------------

    def prepare(self, claim: ResourceClaim) -> ClaimRecord:
        """Make the claim's devices usable; the record holds the answer. The same claim again gets the same answer.

        Raises ClaimError when the claim as it is can never be prepared here, PrepareError when a retry may succeed.
        """
        uid = claim.metadata.uid
        if not records.valid_uid(uid):
            raise ClaimError(f"{claims.describe(claim)}: metadata.uid: {uid!r} cannot be part of a file's name")
        with self._claim_locks.hold([uid]), _as_prepare_error(claims.describe(claim)):
            allocated = claims.allocated(claim, driver=names.DRIVER)
            existing = self.record(uid)
            if existing is not None and existing.state == "prepared":
                if [device.allocated for device in existing.devices] != allocated:
                    log.warning("%s has another allocation now; its old devices are unprepared first", existing)
                elif self._steps.mig_devices_unchanged(existing):
                    return self._answer_again(existing)
                else:
                    log.warning("%s: a MIG device of it is gone; it is prepared from the start", existing)
            if existing is not None:
                with self._gpu_locks.hold(existing.gpus_to_lock):
                    self.leftovers.undo(existing)
            record = self._plan(claim)
            return self._carry_out(record) if record.devices else msgspec.structs.replace(record, state="prepared")

    def _plan(self, claim: ResourceClaim) -> ClaimRecord:
        """The record of the claim before anything is done. Raises ClaimError."""
        inventory = self._present(claim)
        planned = claims.plan(
            claim,
            driver=names.DRIVER,
            pool=self._pool,
            inventory=inventory,
            partitionable=self._gpus.partitionable(),
        )
        mps, nccl_topology = None, False
        capabilities: tuple[Capability, ...] = DEFAULT_CAPABILITIES
        limited = self._gpus.shared_limits != "none" and any(device.share_id for device in planned)
        if limited or claims.configured(claim, driver=names.DRIVER):
            from fairlead.driver.prepare import sharing  # a sixth of a start's CPU time, and few claims have configs

            planned, mps = sharing.plan(
                claim, planned, driver=names.DRIVER, inventory=inventory, limits=self._gpus.shared_limits
            )
            nccl_topology = sharing.wants_nccl_topology(claim, planned, driver=names.DRIVER)
            capabilities = sharing.capabilities(claim, planned, driver=names.DRIVER)
        for device in planned:
            if (reason := self._gpus.unusable(device.gpu_uuid)) is not None:
                raise ClaimError(
                    f"{claims.describe(claim)}: {device.device} cannot be used: {reason}; delete the pod so that it is "
                    "placed again"
                )
        return ClaimRecord(
            uid=claim.metadata.uid,
            namespace=claim.metadata.namespace,
            name=claim.metadata.name,
            state="preparing",
            devices=planned,
            mps=mps,
            nccl_topology=nccl_topology,
            capabilities=capabilities,
            pod_claim=claims.pod_claim(claim),
        )

    def _present(self, claim: ResourceClaim) -> Inventory:
        """The inventory, which is some seconds old; of GPUs whose MIG devices the claim observes with those of this moment."""
        inventory, minors = self._gpus.inventory(), claims.observed(claim, driver=names.DRIVER)
        if not minors:
            return inventory
        gpus = (
            dataclasses.replace(gpu, mig_devices=self._backend.mig_devices(gpu.uuid)) if gpu.minor in minors else gpu
            for gpu in inventory.gpus
        )
        return dataclasses.replace(inventory, gpus=tuple(gpus))

    def _carry_out(self, record: ClaimRecord) -> ClaimRecord:
        conflict = self._cache.reserve(record, records.capacities(self._gpus.inventory().gpus))
        if isinstance(conflict, Overdraft):
            raise OccupiedError(
                f"ResourceClaim {record.namespace}/{record.name}: {conflict}; delete this claim's pod so that it is placed "
                "again, or wait until the other's last pod has ended",
                conflict.holders,
            )
        if conflict is not None:
            device, holder = conflict
            theirs = next(d for d in holder.devices if records.overlap(device, d))
            raise OccupiedError(
                f"ResourceClaim {record.namespace}/{record.name}: {device.device} "
                f"{'is' if theirs.device == device.device else f'overlaps {theirs.device}, which is'} "
                f"held by {holder}, which is {holder.state} on this node; it is free when that claim's last pod has "
                "ended, or delete this claim's pod so that it is placed again",
                (holder,),
            )
        with self._gpu_locks.hold(record.gpus_to_lock):
            try:
                self._check_open(record)
                return self._steps.prepare(record)
            except Exception:
                # The cached record says what was done so far, or more, never less. If the undo fails, too, the record
                # stays: the next call or start tries again.
                self._try_undo(self.record(record.uid) or record)
                raise

    def _check_open(self, record: ClaimRecord) -> None:
        for uuid in sorted({device.gpu_uuid for device in record.devices}):
            if (why := self._gpus.closed(uuid)) is not None:
                raise PrepareError(f"{record}: {why}; kubelet asks again")

    @contextlib.contextmanager
    def exclusively(self, *gpu_uuids: str, admin: bool = False) -> Iterator[tuple[ClaimRecord, ...]]:
        """Keep every claim off the GPUs meanwhile; the claims that hold them, none of which may be when they are changed.

        Close the GPUs before, so that a claim that waits for one is refused afterwards. With `admin` claims that only
        observe a GPU count as well.
        """
        with self._gpu_locks.hold(gpu_uuids):
            yield records.holders(self.records(), *gpu_uuids, admin=admin)

    def _answer_again(self, record: ClaimRecord) -> ClaimRecord:
        """A prepared claim that kubelet asks for again: kubelet, the driver or the pod's sandbox was restarted."""
        if not self._cdi_files.exists(record.uid):
            log.warning("%s: its CDI file is gone; writing it again", record)
            with self._gpu_locks.hold(record.gpus_to_lock):
                self._steps.write_container_files(record)
        if self._lacks_mps_daemon(record):
            self._restart_mps_daemon(record)
        self.leftovers.forget(record.uid)
        return record

    # -- unprepare ---------------------------------------------------------------------------------------------------

    def unprepare(self, uid: str) -> bool:
        """Release the claim's devices; False when the claim is not known, which is no error. Raises PrepareError."""
        if not records.valid_uid(uid):
            return False
        with self._claim_locks.hold([uid]):
            record = self.record(uid)
            with _as_prepare_error(str(record or f"ResourceClaim {uid}")):
                if record is None:
                    self._cdi_files.remove(uid)
                    return False
                with self._gpu_locks.hold(record.gpus_to_lock):
                    self.leftovers.undo(record)
                return True

    def _try_undo(self, record: ClaimRecord) -> None:
        try:
            self.leftovers.undo(record)
        except Exception as error:
            log.error("%s: could not be undone (%s); its devices stay held until that works", record, reason(error))

    # -- MPS ---------------------------------------------------------------------------------------------------------

    def without_mps_daemon(self) -> tuple[ClaimRecord, ...]:
        """Prepared claims whose MPS daemon does not run, or of which that cannot be found out."""
        return tuple(r for r in self.records() if r.state == "prepared" and self._may_lack_mps_daemon(r))

    def restart_mps_daemon(self, uid: str) -> bool:
        """Start the claim's MPS daemon again; False when that is not needed any more. Raises PrepareError."""
        with self._claim_locks.hold([uid]):
            record = self.record(uid)
            if record is None or record.state != "prepared":
                return False
            with _as_prepare_error(str(record)):
                if not self._lacks_mps_daemon(record):
                    return False
                self._restart_mps_daemon(record)
            return True

    def _lacks_mps_daemon(self, record: ClaimRecord) -> bool:
        return record.mps is not None and not self._daemons.alive(record.uid)

    def _may_lack_mps_daemon(self, record: ClaimRecord) -> bool:
        try:
            return self._lacks_mps_daemon(record)
        except OSError as error:
            log.error("%s: is its MPS daemon alive? %s", record, reason(error))
            return True

    def _restart_mps_daemon(self, record: ClaimRecord) -> None:
        with self._gpu_locks.hold(record.gpus_to_lock):
            for uuid in record.earlier_compute_modes:  # an administrator may have reset it while no daemon ran
                self._backend.set_compute_mode(uuid, "ExclusiveProcess")
            self._steps.start_mps_daemon(record)


@contextlib.contextmanager
def _as_prepare_error(subject: str) -> Iterator[None]:
    """Failures of hardware and disk as PrepareError with the subject; a StepError names it itself."""
    try:
        yield
    except BackendError as error:
        raise PrepareError(f"{subject}: {error}") from error
    except StepError as error:
        raise PrepareError(str(error)) from error
    except OSError as error:
        raise PrepareError(f"{subject}: {files.describe(error)}") from error
