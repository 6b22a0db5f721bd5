"""The claims' CDI specs in the directory that the container runtime reads.

Touches only files of the driver's own kind. Not durable: no spec outlives a boot, and the directory is usually in
memory. A spec's annotation is the spare copy of its claim's record, from which a lost record is rebuilt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from fairlead.api import names
from fairlead.driver.common import files
from fairlead.driver.prepare.cdi import BOOT_ID, RECORD
from fairlead.driver.prepare.records import ClaimRecord, valid_uid

BYTES_MAX: Final = 16 * 1024 * 1024
_PREFIX: Final = f"k8s.{names.DRIVER}-claim_"


class CdiFiles:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def open(self) -> None:
        """Make the directory, and remove what an earlier process half wrote. Raises OSError."""
        self._directory.mkdir(parents=True, exist_ok=True)
        files.remove_temporaries(self._directory, _PREFIX)

    def path(self, uid: str) -> Path:
        return self._directory / f"{_PREFIX}{uid}.json"

    def exists(self, uid: str) -> bool:
        return self.path(uid).is_file()

    def write(self, uid: str, spec: Mapping[str, Any]) -> None:
        """Raises OSError; then the directory is as before."""
        files.write(self.path(uid), msgspec.json.format(msgspec.json.encode(spec), indent=1), mode=0o644, durable=False)

    def remove(self, uid: str) -> bool:
        """Raises OSError; False when there was none."""
        return files.remove(self.path(uid), durable=False)

    def uids(self) -> list[str]:
        """UIDs of the claims that have a spec, sorted."""
        return sorted(path.name[len(_PREFIX) : -len(".json")] for path in self._directory.glob(f"{_PREFIX}*.json"))

    def record(self, uid: str, *, boot_id: str) -> ClaimRecord | None:
        """The record in a claim's spec; None when it cannot be read or is of another boot."""
        try:
            annotations = json.loads(files.read(self.path(uid), bytes_max=BYTES_MAX))["annotations"]
            if annotations[BOOT_ID] != boot_id:
                return None
            record = msgspec.json.decode(annotations[RECORD], type=ClaimRecord)
        except (OSError, ValueError, KeyError, TypeError, RecursionError, MemoryError):
            return None
        return record if record.uid == uid and valid_uid(uid) else None
