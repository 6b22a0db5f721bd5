"""From the text of `--backend` to a Backend.

Exists so that one place knows the implementations, and that a typo is answered with what would be right. NVML is loaded
only when it is asked for.
"""

from __future__ import annotations

from pathlib import Path

from fairlead.driver.backend import profiles
from fairlead.driver.backend.simulated import fault_file
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.backend.types import Backend

SIMULATED = "simulated"
STATE_FILE = "simulated-hardware.json"


class BackendSpecError(ValueError):
    """`--backend` names no backend."""


def open_backend(spec: str, *, node: str, data: Path | None, driver_root: Path = Path("/")) -> Backend:
    """`nvml`, or `simulated:` with a profile's name or the path of a profile file.

    `node` makes the UUIDs of simulated GPUs; `data` is where simulated hardware keeps its MIG instances and finds its
    faults; without it, nowhere. Raises BackendSpecError, ProfileError, or BackendError when NVML cannot be reached.
    """
    kind, _, argument = spec.partition(":")
    if kind == SIMULATED and argument:
        return SimulatedBackend(
            profiles.load(argument),
            node=node,
            state_file=data / STATE_FILE if data else None,
            fault_file=data / fault_file.NAME if data else None,
        )
    if spec == "nvml":
        from fairlead.driver.backend.nvml.backend import NvmlBackend

        return NvmlBackend.open(driver_root=driver_root)
    if kind == SIMULATED:
        raise BackendSpecError(
            f"backend {spec!r}: names no profile; write simulated:<profile or file>, "
            f"with one of the profiles {', '.join(profiles.known())}"
        )
    raise BackendSpecError(
        f"backend {spec!r}: unknown; write nvml, or simulated:<profile or file> "
        f"with one of the profiles {', '.join(profiles.known())}"
    )
