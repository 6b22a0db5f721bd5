"""What a start does with the claims of the process before: finished ones stay, unfinished ones are undone.

A record that is lost or cannot be read is rebuilt from the claim's CDI file. Runs once, before any other thread.
Keeps: whatever fails for one claim, in whatever way, costs at most that claim, and the start takes at most about
`TIMEOUT_S`: the rest is left to `cleaner`; a broken or missing record costs at most its claim; a full disk does not keep the driver from starting; daemons
and files without a record are removed.
"""

from __future__ import annotations

import dataclasses
import logging
import time

import msgspec

from fairlead.driver.prepare.cdi_files import CdiFiles
from fairlead.driver.prepare.checkpoint import Checkpoint, Unreadable
from fairlead.driver.prepare.leftovers import reason
from fairlead.driver.prepare.record_cache import RecordCache
from fairlead.driver.prepare.steps import Steps
from fairlead.kube.limits import Clock

log = logging.getLogger(__name__)

TIMEOUT_S = 60.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryResult:
    """UIDs by what became of the claims. `not_undone` are those that could not be undone yet, with the reason."""

    kept: tuple[str, ...] = ()
    undone: tuple[str, ...] = ()
    rebuilt: tuple[str, ...] = ()
    earlier_boot: tuple[str, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    not_undone: tuple[tuple[str, str], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Recoverer:
    checkpoint: Checkpoint
    cdi_files: CdiFiles
    steps: Steps
    records: RecordCache
    clock: Clock = time.monotonic

    def recover(self) -> RecoveryResult:
        """Fills the cache with the records that stay. Raises OSError when the directories cannot be used at all."""
        self.cdi_files.open()
        loaded = self.checkpoint.load()
        self.records.replace_all(loaded.records)
        rebuilt = [uid for uid in self.cdi_files.uids() if uid not in loaded.records and self._rebuild(uid)]
        undone: list[str] = []
        not_undone: list[tuple[str, str]] = []
        until = self.clock() + TIMEOUT_S
        for record in self.records.all():
            if record.state == "prepared":
                continue
            if self.clock() >= until:
                not_undone.append((record.uid, "not tried yet: other claims took too long"))
                continue
            try:
                self.steps.undo(record)
                undone.append(record.uid)
            except Exception as error:
                not_undone.append((record.uid, reason(error)))
        self._remove_orphans({record.uid for record in self.records.all()}, until)
        return RecoveryResult(
            kept=tuple(record.uid for record in self.records.all() if record.state == "prepared"),
            undone=tuple(undone),
            rebuilt=tuple(rebuilt),
            earlier_boot=loaded.earlier_boot,
            unreadable=loaded.unreadable,
            not_undone=tuple(not_undone),
        )

    def _rebuild(self, uid: str) -> bool:
        """Whether a CDI file without a record gave one. No order of steps leaves such a file, so a record was lost."""
        record = self.cdi_files.record(uid, boot_id=self.checkpoint.boot_id)
        if record is not None:
            record = msgspec.structs.replace(record, state="prepared")
            self.records.put(record)
        try:
            if record is None:
                self.cdi_files.remove(uid)
            else:
                self.checkpoint.write(record)
        except Exception as error:
            # It is in memory all the same: a full disk at the start must not become a crash loop.
            log.error("claim %s: %s", uid, reason(error))
        return record is not None

    def _remove_orphans(self, known: set[str], until: float) -> None:
        """MPS daemons and metadata of claims without a record: of an earlier boot, or lost."""
        found: set[str] = set()
        for uids in (self.steps.daemons.uids, self.steps.metadata.uids):
            try:
                found.update(uids())
            except OSError as error:
                log.error("MPS daemons and metadata without a record cannot be found: %s", reason(error))
        for uid in sorted(found - known):
            if self.clock() >= until:
                return
            try:
                self.steps.remove_orphan(uid)
            except Exception as error:
                log.error(
                    "claim %s has no record, and its MPS daemon or metadata cannot be removed: %s", uid, reason(error)
                )
