from __future__ import annotations

from pathlib import Path

from fairlead.driver.backend import Backend, BackendError


class NvmlBackend:
    @classmethod
    def open(cls, *, driver_root: Path) -> Backend:
        raise BackendError("not yet")
