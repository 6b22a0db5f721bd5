"""The file that says which GPUs are being cut, and what they were before: what a killed driver was doing.

Written before the first change of a GPU, removed after the last, so a GPU that it names may be in between. MIG devices do
not outlive a boot: neither does what the file says. A file that cannot be read is moved aside; its GPUs are then cut again as the
label says.
"""

# No `from __future__ import annotations`: msgspec reads the annotations.

import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec

from fairlead.driver.common import files

log = logging.getLogger(__name__)

BYTES_MAX = 1024 * 1024


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """How a GPU is cut: MIG mode, and its MIG devices as (profile ID, start), sorted by start."""

    enabled: bool
    placements: tuple[tuple[int, int], ...] = ()


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU on its way from `before` to `wanted`, or back where that failed (`undoing`: why)."""

    minor: int
    before: Cut
    wanted: Cut
    undoing: str = ""


class _Saved(msgspec.Struct, frozen=True, kw_only=True):
    boot_id: str
    gpus: dict[str, Intent]


class Intents:
    """Intents by GPU UUID. Not locked: one thread at a time cuts."""

    def __init__(self, path: Path, *, boot_id: str) -> None:
        self._path = path
        self._boot_id = boot_id

    def load(self) -> dict[str, Intent]:
        """Those of this boot. Raises OSError when the file is there and cannot be read."""
        try:
            saved = msgspec.json.decode(files.read(self._path, bytes_max=BYTES_MAX), type=_Saved)
        except FileNotFoundError:
            return {}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            aside = self._path.with_name(f"{self._path.name}.unreadable")
            log.error(
                "%s: cannot be read (%s); kept as %s. GPUs are cut as the node's label says", self._path, error, aside
            )
            self._path.rename(aside)
            return {}
        return saved.gpus if saved.boot_id == self._boot_id else {}

    def put(self, uuid: str, intent: Intent) -> None:
        """Raises OSError; then the file is as before."""
        self._save(self.load() | {uuid: intent})

    def remove(self, uuid: str) -> None:
        """Raises OSError."""
        found = self.load()
        if found.pop(uuid, None) is not None:
            self._save(found)

    def _save(self, gpus: Mapping[str, Intent]) -> None:
        if gpus:
            files.write(self._path, msgspec.json.encode(_Saved(boot_id=self._boot_id, gpus=dict(gpus))))
        else:
            files.remove(self._path)
