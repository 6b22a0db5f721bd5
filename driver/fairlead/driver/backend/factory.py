"""From the value of `--backend` to a Backend: the one place that imports both implementations.

A value that names none is refused with the valid ones. NVML is imported only when it is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from fairlead.driver.backend import profiles
from fairlead.driver.backend.interface import Backend, Shares
from fairlead.driver.backend.simulated import fault_file
from fairlead.driver.backend.simulated.backend import SimulatedBackend

SIMULATED = "simulated"
STATE_FILE = "simulated-hardware.json"


class BackendSpecError(ValueError):
    """`--backend` names no backend."""


def open_backend(
    spec: str,
    *,
    node: str,
    data: Path | None,
    driver_root: Path = Path("/"),
    held: Callable[[], Collection[str]] = frozenset,
    shares: Shares | None = None,
) -> Backend:
    """`nvml`, or `simulated:` with a profile's name or the path of a profile file.

    `node` seeds the UUIDs of simulated GPUs. `data` is the directory in which simulated hardware keeps its state and
    reads its faults; with None it does neither. `held` gives the UUIDs of the devices that claims hold, `shares` whose programs they serve. Raises BackendSpecError, ProfileError, or BackendError when NVML cannot
    be reached.
    """
    kind, _, argument = spec.partition(":")
    if kind == SIMULATED and argument:
        return SimulatedBackend(
            profiles.load(argument),
            node=node,
            state_file=data / STATE_FILE if data else None,
            fault_file=data / fault_file.NAME if data else None,
            held=held,
            shares=shares,
        )
    if spec == "nvml":
        from fairlead.driver.backend.nvml.backend import NvmlBackend

        return NvmlBackend.open(driver_root=driver_root, shares=shares)
    if kind == SIMULATED:
        raise BackendSpecError(
            f"backend {spec!r}: names no profile; write simulated:<profile or file>, "
            f"with one of the profiles {', '.join(profiles.known())}"
        )
    raise BackendSpecError(
        f"backend {spec!r}: unknown; write nvml, or simulated:<profile or file> "
        f"with one of the profiles {', '.join(profiles.known())}"
    )
