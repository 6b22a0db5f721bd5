"""The file of this node's repairs. It outlives the driver and the node's reboot, which verifies no GPU."""

from __future__ import annotations

from pathlib import Path

import msgspec

from fairlead.driver.common import files
from fairlead.driver.repair import state
from fairlead.driver.repair.state import Repairs

BYTES_MAX = 1 << 20


class StoreError(Exception):
    """The file cannot be read: what it says of half repaired GPUs is not known."""


class RepairStore:
    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> dict[str, state.Repair]:
        """Raises StoreError, rather than to forget a repair."""
        try:
            return state.decode(files.read(self._path, bytes_max=BYTES_MAX))
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise StoreError(
                f"{self._path}: cannot be read ({error}); look at the node's GPUs, then remove the file"
            ) from error

    def save(self, repairs: Repairs) -> None:
        """Durable when it returns. Raises OSError."""
        files.write(self._path, state.encode(repairs))
