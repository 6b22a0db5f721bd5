"""The file that keeps the faults over a restart of the driver."""

from __future__ import annotations

import logging
from pathlib import Path

from fairlead.driver.common import files
from fairlead.driver.publish import faults
from fairlead.driver.publish.faults import Faults

log = logging.getLogger(__name__)


class FaultStore:
    def __init__(self, path: Path, *, boot_id: str) -> None:
        self._path = path
        self._boot_id = boot_id

    def load(self) -> Faults:
        """The faults of this boot; none where there is no file that can be read."""
        try:
            return faults.decode(self._path.read_bytes(), boot_id=self._boot_id)
        except OSError:
            return {}

    def save(self, found: Faults) -> None:
        """A failure is only logged: the faults stay in memory."""
        try:
            files.write(self._path, faults.encode(found, boot_id=self._boot_id), durable=False)
        except OSError as error:
            log.warning("%s: faults will not survive a restart: %s", self._path, error)
