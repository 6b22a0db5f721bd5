"""The file by which `fairlead fault` and `fairlead load` inject faults and load into simulated hardware.

Driver and command are two processes. The command writes all that is wanted; SimulatedBackend reads the file at each poll.
"""

# No `from __future__ import annotations`: msgspec reads the annotations.

from pathlib import Path
from typing import Annotated, Final

import msgspec

from fairlead.driver.backend import xids
from fairlead.driver.backend.types import RecoveryAction
from fairlead.driver.common import files

NAME: Final = "simulated-faults.json"
XIDS_MAX: Final = 100


class XidEvent(msgspec.Struct, frozen=True, kw_only=True):
    """`number` distinguishes two events of one code."""

    minor: int
    code: int
    number: int


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Of a GPU or a MIG device, which has no utilisation of its own, as in NVML."""

    utilization_percent: Annotated[float, msgspec.Meta(ge=0, le=100)] = 0.0
    memory_used_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0


class WantedFaults(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs off the bus (by minor), recovery actions by minor, the last `XIDS_MAX` Xids, and the load by device's name."""

    lost: frozenset[int] = frozenset()
    recovery: dict[int, RecoveryAction] = {}
    xids: tuple[XidEvent, ...] = ()
    loads: dict[str, Load] = {}


def read(path: Path) -> WantedFaults | None:
    """None when there is no file, or none that can be read: then nothing changes."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=WantedFaults)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def inject(path: Path, minor: int, *, xid: int | None = None, lost: bool = False) -> WantedFaults:
    """Report an Xid, with the recovery action that its class asks for, or take the GPU off the bus. Raises OSError."""
    wanted = read(path) or WantedFaults()
    if lost:
        wanted = msgspec.structs.replace(wanted, lost=wanted.lost | {minor})
    if xid is not None:
        number = max((event.number for event in wanted.xids), default=0) + 1
        actions: dict[str, RecoveryAction] = {"needs-reset": "reset", "fatal": "reboot"}
        recovery = dict(wanted.recovery)
        if (kind := xids.classify(xid)) in actions:
            recovery[minor] = actions[kind]
        event = XidEvent(minor=minor, code=xid, number=number)
        wanted = msgspec.structs.replace(wanted, xids=(*wanted.xids[-XIDS_MAX + 1 :], event), recovery=recovery)
    files.write(path, msgspec.json.encode(wanted))
    return wanted


def load(path: Path, device: str, wanted_load: Load) -> WantedFaults:
    """Put this load on a device, by name. Raises OSError."""
    wanted = read(path) or WantedFaults()
    wanted = msgspec.structs.replace(wanted, loads={**wanted.loads, device: wanted_load})
    files.write(path, msgspec.json.encode(wanted))
    return wanted


def clear(path: Path, minor: int | None = None) -> WantedFaults:
    """Remove the faults of one GPU, or of all of them; loads stay. Raises OSError."""
    wanted = read(path) or WantedFaults()
    if minor is None:
        wanted = msgspec.structs.replace(wanted, lost=frozenset(), recovery={})
    else:
        recovery = {other: action for other, action in wanted.recovery.items() if other != minor}
        wanted = msgspec.structs.replace(wanted, lost=wanted.lost - {minor}, recovery=recovery)
    files.write(path, msgspec.json.encode(wanted))
    return wanted
