"""The faults of the node's GPUs, from one poll to the next and over restarts of the driver. Each change is logged and kept."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from fairlead.driver.backend import xids
from fairlead.driver.backend.types import GpuStatus, Xid
from fairlead.driver.publish import faults
from fairlead.driver.publish.faults import Faults

log = logging.getLogger(__name__)


class KnownFaults:
    """`current` begins with those known from before a restart; `save` is called with all of them whenever they change."""

    def __init__(self, initial: Faults | None = None, save: Callable[[Faults], None] | None = None) -> None:
        self.current: Faults = initial or {}
        self._save = save

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
        if self._save is not None:
            self._save(found)
