"""What a start does with what the process before left: finished claims are kept, unfinished ones undone, lost records rebuilt.

Exists apart from prepare.py because it runs once, before any other thread. Keeps: a broken or missing record costs at most
its claim; a full disk does not keep the driver from starting; nothing that no record tells of goes on.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

import msgspec

from fairlead.driver.backend.interface import BackendError
from fairlead.driver.common import files
from fairlead.driver.prepare import cdi
from fairlead.driver.prepare.checkpoint import Checkpoint, Loaded, Unreadable
from fairlead.driver.prepare.records import ClaimRecord
from fairlead.driver.prepare.steps import Steps

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What a start found of the process before. `stuck` are claims that could not be undone yet, with the reason."""

    kept: tuple[str, ...] = ()
    undone: tuple[str, ...] = ()
    rebuilt: tuple[str, ...] = ()
    earlier_boot: tuple[str, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    stuck: tuple[tuple[str, str], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Recoverer:
    """`note` is told each record that is known again."""

    checkpoint: Checkpoint
    store: cdi.Store
    steps: Steps
    note: Callable[[ClaimRecord], None]

    def load(self) -> Loaded:
        """Raises OSError when the directories cannot be used at all."""
        self.store.open()
        return self.checkpoint.load()

    def settle(self, loaded: Loaded, records: Callable[[], tuple[ClaimRecord, ...]]) -> Recovery:
        """`records` are those known now; what is undone leaves them, what is rebuilt joins them."""
        rebuilt = [uid for uid in self.store.uids() if uid not in loaded.records and self._rebuild(uid)]
        undone: list[str] = []
        stuck: list[tuple[str, str]] = []
        for record in records():
            if record.state == "prepared":
                continue
            try:
                self.steps.undo(record)
                undone.append(record.uid)
            except (BackendError, OSError) as error:
                stuck.append((record.uid, str(error)))
        self._clear_orphans({record.uid for record in records()})
        return Recovery(
            kept=tuple(record.uid for record in records() if record.state == "prepared"),
            undone=tuple(undone),
            rebuilt=tuple(rebuilt),
            earlier_boot=loaded.earlier_boot,
            unreadable=loaded.unreadable,
            stuck=tuple(stuck),
        )

    def _rebuild(self, uid: str) -> bool:
        """Whether a CDI file without a record gave one. Neither order of steps leaves such a file: a record was lost."""
        record = self.store.record(uid, boot_id=self.checkpoint.boot_id)
        if record is not None:
            record = msgspec.structs.replace(record, state="prepared")
            self.note(record)
        try:
            if record is None:
                self.store.remove(uid)
            else:
                self.checkpoint.write(record)
        except OSError as error:
            # Known in memory all the same: a full disk at the start must not become a crash loop.
            log.error("claim %s: %s", uid, files.describe(error))
        return record is not None

    def _clear_orphans(self, known: set[str]) -> None:
        """Daemons and metadata of claims that nothing else tells of: records of an earlier boot, or lost ones."""
        for uid in sorted({*self.steps.daemons.uids(), *self.steps.metadata.uids()} - known):
            try:
                self.steps.daemons.stop(uid)
                self.steps.metadata.remove(uid)
            except (BackendError, OSError) as error:
                log.error("claim %s is not known, and what is left of it stays: %s", uid, error)
