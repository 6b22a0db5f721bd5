"""The records of this node's claims in memory, and the programs of their shares. Thread-safe.

The cache is ahead of the checkpoint by at most one step of each claim: a claim is reserved here before its first record is written,
and every record that is written is put here.

A process of the host is in a container of a claim when its mount namespace has one of the claim's files: device metadata, or the
MPS directories, told by device and path on it, which a container cannot make for itself. So memory that NVML counts for a process
is the claim's, whatever the process says of itself. Reads /proc at each question, of few processes.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from fairlead.driver.backend.types import MigPlacement
from fairlead.driver.common import mounts
from fairlead.driver.prepare import records
from fairlead.driver.prepare.records import Capacities, ClaimRecord, DeviceRecord, Overdraft


class RecordCache:
    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._records: dict[str, ClaimRecord] = {}
        self._listeners: list[Callable[[], None]] = []

    def subscribe(self, changed: Callable[[], None]) -> Callable[[], None]:
        """`changed` is called after each change, by the thread that makes it, until what is returned is called."""
        self._listeners.append(changed)
        return lambda: self._listeners.remove(changed)

    def _tell(self) -> None:
        for changed in tuple(self._listeners):
            changed()

    def all(self) -> tuple[ClaimRecord, ...]:
        """Every claim that is prepared, or on its way to or from it; sorted by UID."""
        with self._mutex:
            return tuple(self._records[uid] for uid in sorted(self._records))

    def get(self, uid: str) -> ClaimRecord | None:
        with self._mutex:
            return self._records.get(uid)

    def put(self, record: ClaimRecord) -> None:
        with self._mutex:
            self._records[record.uid] = record
        self._tell()

    def remove(self, uid: str) -> None:
        with self._mutex:
            self._records.pop(uid, None)
        self._tell()

    def replace_all(self, found: Mapping[str, ClaimRecord]) -> None:
        """The records by UID, as they were read from disk."""
        with self._mutex:
            self._records = dict(found)
        self._tell()

    def reserve(
        self, record: ClaimRecord, capacities: Capacities | None = None
    ) -> tuple[DeviceRecord, ClaimRecord] | Overdraft | None:
        """Put the record unless another claim conflicts with it; then the device in conflict and that claim's record,
        or the capacity that their shares overdraw together.

        Of two claims for one device at once, one is refused before anything is done for it.
        """
        with self._mutex:
            others = [other for other in self._records.values() if other.uid != record.uid]
            found = records.conflict(record.devices, others) or records.overdraft(record, others, capacities or {})
            if found is None:
                self._records[record.uid] = record
            return found

    def held(self) -> frozenset[str]:
        """UUIDs of the GPUs and MIG devices that prepared claims hold. Admin access holds nothing."""
        return frozenset(
            device.uuid
            for record in self.all()
            if record.state == "prepared"
            for device in record.devices
            if not device.admin
        )

    def own_mig(self) -> frozenset[MigPlacement]:
        """The MIG devices that claims created, or may have created."""
        return frozenset(
            (device.gpu_uuid, device.mig.profile_id, device.mig.start)
            for record in self.all()
            for device in record.devices
            if device.mig is not None and device.mig_may_exist
        )


class SharePrograms:
    """As backend.interface.Shares. `files` gives the directories of a claim of which its containers get something, by UID."""

    def __init__(
        self, records: RecordCache, files: Callable[[str], Iterable[Path]], *, proc: Path = Path("/proc")
    ) -> None:
        self._records = records
        self._files = files
        self._proc = proc

    def of(self, uuid: str) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for record in self._records.all():
            for device in record.devices if record.state == "prepared" else ():
                if device.share_id and not device.admin and device.uuid == uuid:
                    found[record.uid] = found.get(record.uid, 0) + device.consumed.get("memory", 0)
        return found

    def claims(self, pids: Iterable[int]) -> Mapping[int, frozenset[str]] | None:
        try:
            if not mounts.sees_host_processes(self._proc):
                return None
            own = mounts.origins(self._proc / "self/mountinfo")
        except OSError:
            return None
        places: dict[bytes, list[tuple[bytes, str]]] = {}
        for record in self._records.all():
            for directory in self._files(record.uid):
                if (at := mounts.origin(directory, own)) is not None:
                    places.setdefault(at[0], []).append((at[1], record.uid))
        found: dict[int, frozenset[str]] = {}
        for pid in pids:
            with contextlib.suppress(OSError):  # it has ended
                there = mounts.origins(self._proc / str(pid) / "mountinfo")
                found[pid] = frozenset(
                    uid
                    for _, device, path in there
                    for directory, uid in places.get(device, ())
                    if mounts.is_below(path, directory)
                )
        return found
