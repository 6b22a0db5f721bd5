"""Which claims' shares a device has, and for which of them a process works: by the files that its container got mounted.

A process of the host is in a container of a claim when its mount namespace has one of the claim's files: device metadata, or the
MPS directories, told by device and path on it, which a container cannot make for itself. So memory that NVML counts for a process
is the claim's, whatever the process says of itself. Reads /proc at each question, of few processes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from fairlead.driver.common import mounts
from fairlead.driver.prepare.record_cache import RecordCache


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
