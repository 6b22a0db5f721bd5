"""NVIDIA's own MPS programs, as they are installed with the driver on this host.

Exists apart so that what MPS needs of the host is asked before a daemon is started, and said in words: the two programs
under the driver's root, and the host's process IDs, by which daemon and clients in other containers know each other.
"""

from __future__ import annotations

import os
from pathlib import Path

from fairlead.driver.backend import BackendError, MpsProgram

_BINARY_DIRS = ("opt/bin", "usr/bin", "usr/sbin", "bin", "sbin")
_LIBRARY_DIRS = ("usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "lib64")
# The kernel's number for the first process namespace (PROC_PID_INIT_INO).
_HOST_PIDS = "pid:[4026531836]"


def program(root: Path, *, proc: Path = Path("/proc")) -> MpsProgram:
    """MPS from under `root`, where the driver is installed. Raises a permanent BackendError."""
    directory = next((root / d for d in _BINARY_DIRS if (root / d / "nvidia-cuda-mps-control").is_file()), None)
    if directory is None or not (directory / "nvidia-cuda-mps-server").is_file():
        raise BackendError(
            f"MPS needs nvidia-cuda-mps-control and nvidia-cuda-mps-server, and they are not under {root}; "
            "install them with the driver, or use TimeSlicing",
            permanent=True,
        )
    try:
        own = str((proc / "self/ns/pid").readlink())
    except OSError as error:
        raise BackendError(f"MPS: {error}", permanent=True) from error
    if own != _HOST_PIDS:
        raise BackendError(
            "MPS: the driver does not see the host's processes; set hostPID: true in its pod", permanent=True
        )
    control = str(directory / "nvidia-cuda-mps-control")
    return MpsProgram(
        daemon=(control, "-f"),
        control=(control,),
        environment={
            "PATH": os.pathsep.join((str(directory), os.defpath)),
            "LD_LIBRARY_PATH": os.pathsep.join(str(root / each) for each in _LIBRARY_DIRS),
        },
        private_shm=True,
    )
