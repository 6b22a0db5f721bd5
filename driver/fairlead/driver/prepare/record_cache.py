"""The records of this node's claims in memory, shared by prepare, recovery, monitor and metrics. Thread-safe.

Ahead of the checkpoint by at most one step of each claim: a claim is reserved here before its first record is written,
and every record that is written is put here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from fairlead.driver.backend.types import MigPlacement
from fairlead.driver.prepare import records, shares
from fairlead.driver.prepare.records import ClaimRecord, DeviceRecord
from fairlead.driver.prepare.shares import Capacities, Overdraft


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
            found = records.conflict(record.devices, others) or shares.overdraft(record, others, capacities or {})
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
