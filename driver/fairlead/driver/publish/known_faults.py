"""What is known of the GPUs' faults from one poll to the next, and of their Xids since this process started.

Faults outlive a restart of the driver in a file. Each change is logged and kept; one that cannot be kept is in memory all the same.
Counts of Xids are bounded: beyond `CODES_MAX` different codes of one GPU, further ones count together as "other".
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from fairlead.driver.backend import xids
from fairlead.driver.backend.types import GpuStatus, Xid
from fairlead.driver.common import files
from fairlead.driver.publish import faults
from fairlead.driver.publish.faults import Faults

log = logging.getLogger(__name__)

CODES_MAX = 32
OTHER = "other"


class KnownFaults:
    """`current` begins with the faults of this boot that are in `path`; without a path nothing is kept. Reads the file at once."""

    def __init__(self, path: Path | None = None, *, boot_id: str = "") -> None:
        self.current: Faults = {}
        self._path = path
        self._boot_id = boot_id
        if path is not None:
            try:
                self.current = faults.decode(path.read_bytes(), boot_id=boot_id)
            except OSError:
                log.debug("%s: no faults of before", path)

    def update(self, statuses: Sequence[GpuStatus], events: Sequence[Xid], *, now_s: float) -> None:
        for event in events:
            log.warning("GPU %s: %s: %s", event.uuid, xids.describe(event.code), xids.classify(event.code))
        self._keep(faults.fold(self.current, statuses, events, now_s=now_s))

    def healed(self, uuids: Collection[str]) -> None:
        """These GPUs were reset and found well: the faults that this cures end."""
        self._keep(faults.healed(self.current, uuids))

    def _keep(self, found: Faults) -> None:
        before, self.current = self.current, found
        if found == before:
            return
        for uuid in sorted(before.keys() | found.keys()):
            if before.get(uuid) != found.get(uuid):
                message = faults.describe(found, uuid) or "healthy again"
                log.warning("GPU %s: %s", uuid, message, extra={"severe": faults.is_severe(found, uuid)})
        if self._path is None:
            return
        try:
            files.write(self._path, faults.encode(found, boot_id=self._boot_id), durable=False)
        except OSError as error:
            log.warning("%s: faults will not survive a restart: %s", self._path, error)


class XidCounts:
    """`by_gpu` has counts by GPU UUID and code, `last` the last code by GPU UUID. Both are replaced, never changed."""

    def __init__(self) -> None:
        self.by_gpu: Mapping[str, Mapping[str, int]] = {}
        self.last: Mapping[str, int] = {}

    def add(self, events: Iterable[Xid]) -> None:
        counts = {uuid: dict(codes) for uuid, codes in self.by_gpu.items()}
        last = dict(self.last)
        for event in events:
            codes = counts.setdefault(event.uuid, {})
            code = str(event.code)
            if code not in codes and len(codes.keys() - {OTHER}) >= CODES_MAX:
                code = OTHER
            codes[code] = codes.get(code, 0) + 1
            last[event.uuid] = event.code
        self.by_gpu, self.last = counts, last
