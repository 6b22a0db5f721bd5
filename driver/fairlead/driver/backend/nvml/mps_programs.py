"""NVIDIA's MPS programs as they are installed with the driver on this host.

Checks what MPS needs of the host before a daemon starts: the two programs under the driver's root, and the host's
process namespace, since daemon and clients in other containers identify each other by process IDs.
"""

from __future__ import annotations

from pathlib import Path

from fairlead.driver.backend.interface import BackendError
from fairlead.driver.backend.types import MpsProgram
from fairlead.driver.common import mounts
from fairlead.driver.common.driver_root import DriverRoot


def locate(root: DriverRoot, *, proc: Path = Path("/proc")) -> MpsProgram:
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
