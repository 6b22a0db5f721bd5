"""What is left of claims that could not be undone, and of their containers' files; and one attempt at each. Thread-safe.

Three kinds. "claim": a record whose undo failed, so that its devices stay held. "orphan": an MPS daemon or metadata
without a record. "files": a directory that was put aside and is not gone yet. When, and how often, is cleaner.py's.
Keeps: an attempt holds the locks of its own claim and GPUs only, and whatever it raises concerns that claim only.
"""

from __future__ import annotations

import dataclasses
import threading
from typing import Literal

from fairlead.driver.common import files
from fairlead.driver.common.locks import KeyedLocks
from fairlead.driver.prepare.record_cache import RecordCache
from fairlead.driver.prepare.records import ClaimRecord
from fairlead.driver.prepare.steps import Steps

Kind = Literal["claim", "orphan", "files"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """`name` is the claim's UID, or the name of the directory that was put aside; `subject` begins messages."""

    kind: Kind
    name: str
    subject: str


class Leftovers:
    def __init__(self, *, steps: Steps, records: RecordCache, claim_locks: KeyedLocks, gpu_locks: KeyedLocks) -> None:
        self._steps = steps
        self._records = records
        self._claim_locks = claim_locks
        self._gpu_locks = gpu_locks
        self._guard = threading.Lock()
        self._not_undone: set[str] = set()

    def undo(self, record: ClaimRecord) -> None:
        """Undo a claim whose locks are held, and keep in mind when that fails. Raises whatever failed."""
        try:
            self._steps.undo(record)
        except Exception:
            self.not_undone(record.uid)
            raise
        self.forget(record.uid)

    def forget(self, uid: str) -> None:
        """The claim is in use again, or undone."""
        with self._guard:
            self._not_undone.discard(uid)

    def not_undone(self, uid: str) -> None:
        with self._guard:
            self._not_undone.add(uid)

    def all(self) -> list[Leftover]:
        """Claims first. Raises OSError when a directory cannot be listed."""
        directories = [
            *self._steps.daemons.uids(),
            *self._steps.metadata.uids(),
        ]  # before the records: those come first
        aside = self._steps.daemons.removals.pending()
        records = {record.uid: record for record in self._records.all()}
        with self._guard:
            self._not_undone.intersection_update(records)
            not_undone = sorted(self._not_undone)
        return [
            *(Leftover(kind="claim", name=uid, subject=str(records[uid])) for uid in not_undone),
            *(
                Leftover(kind="orphan", name=uid, subject=f"claim {uid}, which has no record")
                for uid in sorted({*directories} - records.keys())
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


def reason(error: Exception) -> str:
    """For a message to an administrator; an error that is no failure of hardware or disk with its type."""
    if isinstance(error, OSError):
        return files.describe(error)
    known = type(error).__module__.startswith("fairlead.")
    return str(error) if known else f"{type(error).__name__}: {error}"
