"""When NVML may be called: any number of calls at once, or a reset alone; and the Xids of one session.

A GPU is not reset while any process has it open, and this process has with each handle. So a reset waits until no call
is under way, ends the session, and opens another; handles of the session before are not used again.
Xids come from an event set, drained without waiting. A GPU whose events cannot be registered is still monitored by its recovery action.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

from fairlead.driver.backend.interface import BackendError
from fairlead.driver.backend.nvml.calls import Calls
from fairlead.driver.backend.types import Xid

log = logging.getLogger(__name__)


class SessionBusy(Exception):  # noqa: N818 - named after what went wrong, as the backend's errors
    """A call did not return in time."""


class Session:
    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._calls = 0
        self._alone = False

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """One call among others; waits while a reset is under way."""
        with self._condition:
            while self._alone:
                self._condition.wait()
            self._calls += 1
        try:
            yield
        finally:
            with self._condition:
                self._calls -= 1
                self._condition.notify_all()

    @contextlib.contextmanager
    def alone(self, timeout_s: float) -> Iterator[None]:
        """With no call under way, and none until it ends. Raises SessionBusy when a call does not return in time."""
        deadline_s = time.monotonic() + timeout_s
        with self._condition:
            while self._alone:
                if not self._condition.wait(deadline_s - time.monotonic()):
                    raise SessionBusy
            self._alone = True
            try:
                while self._calls:
                    if not self._condition.wait(max(0.0, deadline_s - time.monotonic())):
                        raise SessionBusy
            except SessionBusy:
                self._alone = False
                self._condition.notify_all()
                raise
        try:
            yield
        finally:
            with self._condition:
                self._alone = False
                self._condition.notify_all()


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
