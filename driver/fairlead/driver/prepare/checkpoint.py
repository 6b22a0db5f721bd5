"""The records of claims on disk, one file each: what a killed driver was doing; and the CDI specs, which hold a spare copy.

One file per claim keeps a write small however many claims a node has, and a broken file costs one claim. A file is a
header line {schema, bootID, sha256} and the record as it was hashed: the sum is over bytes, so a field that a later
version adds does not make an old file "corrupt".
CDI specs lie in the directory that the container runtime reads; only files of the driver's own kind are touched. They are not durable: no
spec outlives a boot, and the directory is usually in memory. A lost record is rebuilt from its spec's annotation.
Keeps: a file that cannot be read, for whatever reason, is moved aside, never deleted and never fatal; a record of an earlier boot is removed,
since MIG instances and CDI files do not outlive a boot.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from fairlead.api import names
from fairlead.driver.common import files
from fairlead.driver.prepare import records
from fairlead.driver.prepare.cdi import BOOT_ID, RECORD
from fairlead.driver.prepare.records import ClaimRecord, valid_uid

SCHEMA = 1
BYTES_MAX = 4 * 1024 * 1024
_SUFFIX = ".json"
_ASIDE = ".unreadable"


class _Header(msgspec.Struct, frozen=True, kw_only=True, rename={"boot_id": "bootID"}):
    schema: int
    boot_id: str
    sha256: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A file that was moved aside, and why."""

    uid: str
    path: Path
    reason: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What was on disk: records of this boot by UID, files moved aside, UIDs of an earlier boot that were removed."""

    records: dict[str, ClaimRecord]
    unreadable: tuple[Unreadable, ...] = ()
    earlier_boot: tuple[str, ...] = ()


class Checkpoint:
    """The records under one directory. Not locked: preparer.py lets one thread at a time work on a claim."""

    def __init__(self, directory: Path, *, boot_id: str) -> None:
        self._directory = directory
        self.boot_id = boot_id

    def path(self, uid: str) -> Path:
        return self._directory / f"{uid}{_SUFFIX}"

    def load(self) -> Loaded:
        """Read everything. Raises OSError only when the directory itself cannot be made or read."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.remove_temporaries(self._directory)
        found: dict[str, ClaimRecord] = {}
        unreadable: list[Unreadable] = []
        earlier: list[str] = []
        for path in sorted(self._directory.glob(f"*{_SUFFIX}")):
            uid = path.name.removesuffix(_SUFFIX)
            try:
                boot_id, record = _decode(files.read(path, bytes_max=BYTES_MAX))
                if record.uid != uid or not records.valid_uid(uid):
                    raise ValueError(f"it is the record of claim {record.uid!r}")
            except (
                Exception
            ) as error:  # also RecursionError, MemoryError: one file must not keep the driver from starting
                reason = str(error) if isinstance(error, OSError | ValueError) else f"{type(error).__name__}: {error}"
                unreadable.append(Unreadable(uid=uid, path=self._move_aside(path), reason=reason))
                continue
            if boot_id != self.boot_id:
                with contextlib.suppress(OSError):  # else it is dropped at the next start
                    files.remove(path)
                earlier.append(uid)
                continue
            found[uid] = record
        return Loaded(records=found, unreadable=tuple(unreadable), earlier_boot=tuple(earlier))

    def write(self, record: ClaimRecord, *, durable: bool = True) -> None:
        """Raises OSError; then the record on disk is as before."""
        payload = msgspec.json.encode(record)
        header = _Header(schema=SCHEMA, boot_id=self.boot_id, sha256=hashlib.sha256(payload).hexdigest())
        files.write(self.path(record.uid), msgspec.json.encode(header) + b"\n" + payload + b"\n", durable=durable)

    def remove(self, uid: str) -> bool:
        return files.remove(self.path(uid))

    def set_aside(self) -> dict[str, Path]:
        """Records that could not be read, by the claim's UID."""
        found = sorted(self._directory.glob(f"*{_SUFFIX}{_ASIDE}*"))
        return {path.name.partition(_SUFFIX)[0]: path for path in found}

    def _move_aside(self, path: Path) -> Path:
        """Rename it to a free name. What cannot be renamed stays, and is reported again at the next start."""
        for number in range(1000):
            aside = path.with_name(f"{path.name}{_ASIDE}{f'.{number}' if number else ''}")
            if not aside.exists():
                try:
                    path.rename(aside)
                except OSError:
                    return path
                return aside
        return path


def _decode(content: bytes) -> tuple[str, ClaimRecord]:
    """(boot ID, record). Raises ValueError that says what is wrong with the file."""
    first, newline, rest = content.partition(b"\n")
    if not newline:
        raise ValueError(f"cut short: {len(content)} bytes without a header line")
    try:
        header = msgspec.json.decode(first, type=_Header)
    except msgspec.DecodeError as error:
        raise ValueError(f"header: {error}") from error
    payload = rest.removesuffix(b"\n")
    if hashlib.sha256(payload).hexdigest() != header.sha256:
        raise ValueError(f"sha256 does not match its {len(payload)} bytes: cut short or changed")
    try:
        return header.boot_id, msgspec.json.decode(payload, type=ClaimRecord)
    except msgspec.DecodeError as error:
        raise ValueError(f"record (schema {header.schema}, this driver writes {SCHEMA}): {error}") from error


# -- CDI files ---------------------------------------------------------------------------------------------------------

CDI_BYTES_MAX: Final = 16 * 1024 * 1024
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
            annotations = json.loads(files.read(self.path(uid), bytes_max=CDI_BYTES_MAX))["annotations"]
            if annotations[BOOT_ID] != boot_id:
                return None
            record = msgspec.json.decode(annotations[RECORD], type=ClaimRecord)
        except (OSError, ValueError, KeyError, TypeError, RecursionError, MemoryError):
            return None
        return record if record.uid == uid and valid_uid(uid) else None
