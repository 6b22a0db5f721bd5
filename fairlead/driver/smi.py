"""nvidia-smi, for the one thing that NVML has no call for: the time slice of a GPU.

Exists apart so that nothing else comes to need the program. Looked for where the driver is installed; a host without it
can do everything but time slices.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from fairlead.driver.backend import BackendError, TimeSlice

TIMEOUT_S = 20.0
_BINARY_DIRS = ("opt/bin", "usr/bin", "usr/sbin", "bin", "sbin")
_LIBRARY_DIRS = ("usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "lib64")
_INTERVALS: dict[TimeSlice, str] = {"Default": "0", "Short": "1", "Medium": "2", "Long": "3"}

Runner = Callable[[Sequence[str]], None]


def set_time_slice(run: Runner, gpu_uuid: str, interval: TimeSlice) -> None:
    """Raises BackendError."""
    run(("compute-policy", "-i", gpu_uuid, "--set-timeslice", _INTERVALS[interval]))


def runner(root: Path) -> Runner:
    """nvidia-smi under `root` as a function of its arguments, which raises BackendError when it fails."""

    def run(arguments: Sequence[str]) -> None:
        binary = next((root / d / "nvidia-smi" for d in _BINARY_DIRS if (root / d / "nvidia-smi").is_file()), None)
        if binary is None:
            raise BackendError(f"time slices need nvidia-smi, and there is none under {root}", permanent=True)
        libraries = os.pathsep.join(str(root / directory) for directory in _LIBRARY_DIRS)
        try:
            done = subprocess.run(  # noqa: S603 - a fixed program, arguments of our own
                (str(binary), *arguments),
                env={"LD_LIBRARY_PATH": libraries, "PATH": os.defpath},
                capture_output=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BackendError(f"nvidia-smi {' '.join(arguments)}: {error}") from error
        if done.returncode:
            said = (done.stderr or done.stdout).decode(errors="replace").strip()[:500]
            raise BackendError(f"nvidia-smi {' '.join(arguments)}: exit status {done.returncode}: {said}")

    return run
