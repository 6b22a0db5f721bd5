"""What nvidia-smi says, with which everything else is compared."""

from __future__ import annotations

import csv
import dataclasses
import io
import subprocess
from collections.abc import Sequence

FIELDS = (
    "index",
    "uuid",
    "name",
    "driver_version",
    "pci.bus_id",
    "memory.total",
    "memory.used",
    "memory.reserved",
    "utilization.gpu",
    "power.draw",
    "compute_mode",
    "persistence_mode",
    "mig.mode.current",
)
SETTINGS = ("compute_mode", "persistence_mode", "mig.mode.current")


@dataclasses.dataclass(frozen=True)
class Smi:
    """`command` runs nvidia-smi."""

    command: tuple[str, ...]

    def gpus(self) -> list[dict[str, str]]:
        """One row for each GPU, by FIELDS. Raises OSError or SubprocessError."""
        text = self._run(f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits")
        rows = csv.reader(io.StringIO(text), skipinitialspace=True)
        return [dict(zip(FIELDS, row, strict=True)) for row in rows if row]

    def processes(self) -> list[str]:
        """Process IDs with a context on a GPU."""
        return self._run("--query-compute-apps=pid", "--format=csv,noheader").split()

    def settings(self) -> list[tuple[str, ...]]:
        """What must be at the end as it was at the beginning."""
        return [tuple(gpu[name] for name in ("uuid", *SETTINGS)) for gpu in self.gpus()]

    def change(self, *arguments: str) -> None:
        """Raises OSError or SubprocessError."""
        self._run(*arguments)

    def _run(self, *arguments: str) -> str:
        words: Sequence[str] = (*self.command, *arguments)
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=30).stdout
