"""nvidia-smi, used only for what NVML has no call: the time slice of a GPU, and its reset.

The program is looked up under the driver's root at each use; without it everything else works.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Collection, Sequence

from fairlead.driver.backend.interface import BackendError, InUse
from fairlead.driver.backend.types import TimeSlice
from fairlead.driver.common.driver_root import DriverRoot

TIMEOUT_S = 20.0
RESET_TIMEOUT_S = 150.0  # eight GPUs with NVSwitches take most of a minute
_INTERVALS: dict[TimeSlice, str] = {"Default": "0", "Short": "1", "Medium": "2", "Long": "3"}

Runner = Callable[[Sequence[str]], None]


def set_time_slice(run: Runner, gpu_uuid: str, interval: TimeSlice) -> None:
    """Raises BackendError."""
    run(("compute-policy", "-i", gpu_uuid, "--set-timeslice", _INTERVALS[interval]))


def reset(run: Runner, gpu_uuids: Collection[str]) -> None:
    """Raises InUse or BackendError; nvidia-smi says which other GPUs have to be reset in the same command."""
    try:
        run(("--gpu-reset", "-i", ",".join(sorted(gpu_uuids))))
    except BackendError as error:
        if "in use by" in str(error).lower():
            raise InUse(str(error)) from error
        raise


def runner(root: DriverRoot, timeout_s: float = TIMEOUT_S) -> Runner:
    """nvidia-smi under `root` as a function of its arguments, which raises BackendError when it fails."""

    def run(arguments: Sequence[str]) -> None:
        binary = root.find_program("nvidia-smi")
        if binary is None:
            raise BackendError(
                f"time slices and resets need nvidia-smi, and there is none under {root.path}", permanent=True
            )
        try:
            done = subprocess.run(  # noqa: S603 - a fixed program, arguments of our own
                (*root.launcher(), root.program_path(binary), *arguments),
                env=root.environment(),
                capture_output=True,
                timeout=timeout_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BackendError(f"nvidia-smi {' '.join(arguments)}: {error}") from error
        if done.returncode:
            output = (done.stderr or done.stdout).decode(errors="replace").strip()[:500]
            raise BackendError(f"nvidia-smi {' '.join(arguments)}: exit status {done.returncode}: {output}")

    return run
