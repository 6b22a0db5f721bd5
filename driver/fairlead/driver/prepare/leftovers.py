"""What is left of claims that could not be undone, and of their containers' files; and one attempt at each. Thread-safe.

Three kinds. "claim": a record whose undo failed, so that its devices stay held. "orphan": an MPS daemon or metadata
without a record. "files": a directory that was put aside and is not gone yet. When, and how often, is upkeep.py's.
A start takes up what the process before left: finished claims stay, unfinished ones are undone, a record that is lost or cannot be read
is rebuilt from the claim's CDI file, daemons and files without a record are removed.
Keeps: an attempt holds the locks of its own claim and GPUs only, and whatever it raises, in whatever way, concerns that claim only; a
start takes at most about `RECOVERY_S`: the rest is left for later; a full disk does not keep the driver from starting.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from typing import Literal

import msgspec

from fairlead.driver.common import files
from fairlead.driver.common.locks import KeyedLocks
from fairlead.driver.prepare.checkpoint import Unreadable
from fairlead.driver.prepare.records import ClaimRecord
from fairlead.driver.prepare.steps import Steps
from fairlead.kube.limits import Clock

log = logging.getLogger(__name__)

RECOVERY_S = 60.0
Kind = Literal["claim", "orphan", "files"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """`name` is the claim's UID, or the name of the directory that was put aside; `subject` begins messages."""

    kind: Kind
    name: str
    subject: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryResult:
    """UIDs by what became of the claims. `not_undone` are those that could not be undone yet, with the reason."""

    kept: tuple[str, ...] = ()
    undone: tuple[str, ...] = ()
    rebuilt: tuple[str, ...] = ()
    earlier_boot: tuple[str, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    not_undone: tuple[tuple[str, str], ...] = ()


class Leftovers:
    def __init__(self, *, steps: Steps, claim_locks: KeyedLocks, gpu_locks: KeyedLocks) -> None:
        self._steps = steps
        self._records = steps.records
        self._claim_locks = claim_locks
        self._gpu_locks = gpu_locks
        self._guard = threading.Lock()
        self._not_undone: set[str] = set()

    def undo(self, record: ClaimRecord) -> None:
        """Undo a claim whose locks are held, and keep in mind when that fails. Raises whatever failed."""
        try:
            self._steps.undo(record)
        except Exception:
            with self._guard:
                self._not_undone.add(record.uid)
            raise
        self.forget(record.uid)

    def forget(self, uid: str) -> None:
        """The claim is in use again, or undone."""
        with self._guard:
            self._not_undone.discard(uid)

    def all(self) -> list[Leftover]:
        """Claims first. Raises OSError when a directory cannot be listed."""
        directories = {
            *self._steps.daemons.uids(),
            *self._steps.metadata.uids(),
        }  # before the records: those come first
        aside = self._steps.daemons.removals.pending()
        records = {record.uid: record for record in self._records.all()}
        with self._guard:
            self._not_undone.intersection_update(records)
            not_undone = sorted(self._not_undone)
        return [
            *(Leftover(kind="claim", name=uid, subject=str(records[uid])) for uid in not_undone),
            *(
                Leftover(kind="orphan", name=uid, subject=f"claim {uid}, which has no record")
                for uid in sorted(directories - records.keys())
            ),
            *(
                Leftover(kind="files", name=name, subject=f"claim {uid}, which has ended")
                for name, uid in aside.items()
            ),
        ]

    def attempt(self, leftover: Leftover) -> bool:
        """Whether it is gone. Raises whatever failed."""
        if leftover.kind == "files":
            return self._steps.daemons.removals.attempt(leftover.name)
        uid = leftover.name
        with self._claim_locks.hold([uid]):
            record = self._records.get(uid)
            if leftover.kind == "orphan":
                if record is None:
                    self._steps.remove_orphan(uid)
                return True
            with self._guard:
                wanted = uid in self._not_undone
            if record is None or not wanted:
                return True  # kubelet's own call was first
            with self._gpu_locks.hold(record.gpus_to_lock):
                self.undo(record)
        return True

    # -- at the start --------------------------------------------------------------------------------------------------

    def recover(self, clock: Clock = time.monotonic) -> RecoveryResult:
        """Fills the cache with the records that stay. Runs once, before any other thread.

        Raises OSError when the directories cannot be used at all.
        """
        self._steps.cdi_files.open()
        loaded = self._steps.checkpoint.load()
        self._records.replace_all(loaded.records)
        rebuilt = [uid for uid in self._steps.cdi_files.uids() if uid not in loaded.records and self._rebuild(uid)]
        undone: list[str] = []
        not_undone: list[tuple[str, str]] = []
        until = clock() + RECOVERY_S
        for record in self._records.all():
            if record.state == "prepared":
                continue
            if clock() >= until:
                not_undone.append((record.uid, "not tried yet: other claims took too long"))
                continue
            try:
                self._steps.undo(record)
                undone.append(record.uid)
            except Exception as error:
                not_undone.append((record.uid, reason(error)))
        self._remove_orphans({record.uid for record in self._records.all()}, until, clock)
        self._not_undone.update(uid for uid, _ in not_undone)
        return RecoveryResult(
            kept=tuple(record.uid for record in self._records.all() if record.state == "prepared"),
            undone=tuple(undone),
            rebuilt=tuple(rebuilt),
            earlier_boot=loaded.earlier_boot,
            unreadable=loaded.unreadable,
            not_undone=tuple(not_undone),
        )

    def _rebuild(self, uid: str) -> bool:
        """Whether a CDI file without a record gave one. No order of steps leaves such a file, so a record was lost."""
        record = self._steps.cdi_files.record(uid, boot_id=self._steps.checkpoint.boot_id)
        if record is not None:
            record = msgspec.structs.replace(record, state="prepared")
            self._records.put(record)
        try:
            if record is None:
                self._steps.cdi_files.remove(uid)
            else:
                self._steps.checkpoint.write(record)
        except Exception as error:
            # It is in memory all the same: a full disk at the start must not become a crash loop.
            log.error("claim %s: %s", uid, reason(error))
        return record is not None

    def _remove_orphans(self, known: set[str], until: float, clock: Clock) -> None:
        """MPS daemons and metadata of claims without a record: of an earlier boot, or lost."""
        found: set[str] = set()
        for uids in (self._steps.daemons.uids, self._steps.metadata.uids):
            try:
                found.update(uids())
            except OSError as error:
                log.error("MPS daemons and metadata without a record cannot be found: %s", reason(error))
        for uid in sorted(found - known):
            if clock() >= until:
                return
            try:
                self._steps.remove_orphan(uid)
            except Exception as error:
                log.error(
                    "claim %s has no record, and its MPS daemon or metadata cannot be removed: %s", uid, reason(error)
                )


def reason(error: Exception) -> str:
    """For a message to an administrator; an error that is no failure of hardware or disk with its type."""
    if isinstance(error, OSError):
        return files.describe(error)
    known = type(error).__module__.startswith("fairlead.")
    return str(error) if known else f"{type(error).__name__}: {error}"
