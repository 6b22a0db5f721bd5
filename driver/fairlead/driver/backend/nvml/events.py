"""Xids from an NVML event set, drained without waiting.

A GPU whose events cannot be registered is still monitored by its recovery action.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from fairlead.driver.backend.interface import BackendError
from fairlead.driver.backend.nvml.calls import Calls
from fairlead.driver.backend.types import Xid

log = logging.getLogger(__name__)

EVENTS_MAX = 1000  # per drain: a broken GPU can report without end


class Events:
    """One event set and the GPUs that are registered with it. Not locked."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._set: Any = None
        self._registered: set[str] = set()

    def drain(self, uuids: Iterable[str]) -> tuple[Xid, ...]:
        """The Xids since the last call. GPUs among `uuids` that are new are registered first."""
        nv = self._calls.nv
        try:
            if self._set is None:
                self._set = self._calls.query("EventSetCreate")
            if self._set is None:
                return ()
            for uuid in sorted(set(uuids) - self._registered):
                self._register(uuid)
            found: list[Xid] = []
            for _ in range(EVENTS_MAX):
                try:
                    event = nv.nvmlEventSetWait_v2(self._set, 0)
                except nv.NVMLError as error:
                    if error.value != nv.NVML_ERROR_TIMEOUT:
                        log.debug("NVML events: %s", error)
                    break
                if event.eventType == nv.nvmlEventTypeXidCriticalError:
                    uuid = self._calls.query("DeviceGetUUID", event.device)
                    if uuid is not None:
                        found.append(Xid(uuid=str(uuid), code=int(event.eventData)))
        except BackendError as error:
            log.debug("NVML events: %s", error)
            return ()
        return tuple(found)

    def _register(self, uuid: str) -> None:
        self._registered.add(uuid)
        try:
            device = self._calls.call("DeviceGetHandleByUUID", uuid)
            self._calls.call("DeviceRegisterEvents", device, self._calls.nv.nvmlEventTypeXidCriticalError, self._set)
        except BackendError as error:
            log.info("GPU %s: its Xids cannot be read (%s); its recovery action still is", uuid, error)
