"""NVIDIA's programs as they are installed with the driver on this host: nvidia-smi, and those of MPS.

nvidia-smi is used only for what NVML has no call: the time slice of a GPU, and its reset; it is looked up under the driver's root at
each use, and without it everything else works. MPS needs its two programs under that root, and the host's process namespace, since
daemon and clients in other containers identify each other by process IDs: both are checked before a daemon starts.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from fairlead.driver.backend.interface import BackendError, InUse
from fairlead.driver.backend.types import MpsProgram, TimeSlice
from fairlead.driver.common import mounts
from fairlead.driver.common.driver_root import DriverRoot

SMI_TIMEOUT_S = 20.0
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


def smi(root: DriverRoot, timeout_s: float = SMI_TIMEOUT_S) -> Runner:
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


def mps(root: DriverRoot, *, proc: Path = Path("/proc")) -> MpsProgram:
    """The MPS programs under `root`. Raises a permanent BackendError that names what is missing."""
    control = root.find_program("nvidia-cuda-mps-control")
    if control is None or root.find_program("nvidia-cuda-mps-server") is None:
        raise BackendError(
            f"MPS needs nvidia-cuda-mps-control and nvidia-cuda-mps-server, and they are not under {root.path}; "
            "install them with the driver, or use TimeSlicing",
            permanent=True,
        )
    try:
        sees_host = mounts.sees_host_processes(proc)
    except OSError as error:
        raise BackendError(f"MPS: {error}", permanent=True) from error
    if not sees_host:
        raise BackendError(
            "MPS: the driver does not see the host's processes; set hostPID: true in its pod", permanent=True
        )
    command = root.program_path(control)
    return MpsProgram(daemon=(command, "-f"), control=(command,), environment=root.environment(), root=root)
