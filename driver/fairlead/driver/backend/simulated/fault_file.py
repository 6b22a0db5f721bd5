"""The file by which `fairlead fault` and `fairlead load` inject faults and load into simulated hardware.

Driver and command are two processes. The command writes all that is wanted; SimulatedBackend reads the file at each poll.
"""

# No `from __future__ import annotations`: msgspec reads the annotations.

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Final, Literal, get_args

import msgspec

from fairlead.driver.backend import xids
from fairlead.driver.backend.types import RecoveryAction, ThrottleReason
from fairlead.driver.common import files

NAME: Final = "simulated-faults.json"
XIDS_MAX: Final = 100

EccKind = Literal["corrected", "uncorrected"]
ECC_KINDS: Final[tuple[EccKind, ...]] = get_args(EccKind)


class XidEvent(msgspec.Struct, frozen=True, kw_only=True):
    """`number` distinguishes two events of one code."""

    minor: int
    code: int
    number: int


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a GPU or a MIG device. Where NVML has no utilisation (MIG), it shows as activity alone.

    `nvlink_bytes_per_second` is what is sent, and received, over all links; with None it follows the utilisation.
    """

    utilization_percent: Annotated[float, msgspec.Meta(ge=0, le=100)] = 0.0
    memory_used_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    nvlink_bytes_per_second: Annotated[float, msgspec.Meta(ge=0, le=1e15)] | None = None


class MemoryErrors(msgspec.Struct, frozen=True, kw_only=True):
    """ECC errors over a GPU's life. `pending`: a row of its memory is replaced at the next reset."""

    corrected: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    uncorrected: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    pending: bool = False


class WantedFaults(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs off the bus (by minor), recovery actions, reasons for lower clocks and errors of memory by minor, the last
    `XIDS_MAX` Xids, and the load by device's name; `held` is on every other device that a claim holds. A reset of
    those in `reset_fails` fails.
    """

    lost: frozenset[int] = frozenset()
    recovery: dict[int, RecoveryAction] = {}
    xids: tuple[XidEvent, ...] = ()
    loads: dict[str, Load] = {}
    held: Load | None = None
    throttled: dict[int, frozenset[ThrottleReason]] = {}
    memory_errors: dict[int, MemoryErrors] = {}
    reset_fails: frozenset[int] = frozenset()


def read(path: Path) -> WantedFaults | None:
    """None when there is no file, or none that can be read: then nothing changes."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=WantedFaults)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def inject(
    path: Path,
    minor: int,
    *,
    xid: int | None = None,
    lost: bool = False,
    throttle: ThrottleReason | None = None,
    ecc: EccKind | None = None,
    reset_fails: bool = False,
) -> WantedFaults:
    """Report an Xid, with the recovery action that its class asks for; take the GPU off the bus; hold its clocks down; let
    its resets fail; or count an ECC error, of which an uncorrected one takes a row of memory out of use. Raises OSError.
    """
    wanted = read(path) or WantedFaults()
    if lost:
        wanted = msgspec.structs.replace(wanted, lost=wanted.lost | {minor})
    if reset_fails:
        wanted = msgspec.structs.replace(wanted, reset_fails=wanted.reset_fails | {minor})
    if throttle is not None:
        reasons = wanted.throttled.get(minor, frozenset()) | {throttle}
        wanted = msgspec.structs.replace(wanted, throttled={**wanted.throttled, minor: reasons})
    if ecc is not None:
        before = wanted.memory_errors.get(minor, MemoryErrors())
        if ecc == "corrected":
            after = msgspec.structs.replace(before, corrected=before.corrected + 1)
        else:
            after = msgspec.structs.replace(before, uncorrected=before.uncorrected + 1, pending=True)
        wanted = msgspec.structs.replace(wanted, memory_errors={**wanted.memory_errors, minor: after})
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


def load_held(path: Path, wanted_load: Load | None) -> WantedFaults:
    """Put this load on every device while a claim holds it, unless it has one of its own. Raises OSError."""
    wanted = msgspec.structs.replace(read(path) or WantedFaults(), held=wanted_load)
    files.write(path, msgspec.json.encode(wanted))
    return wanted


def load(path: Path, device: str, wanted_load: Load) -> WantedFaults:
    """Put this load on a device, by name. Raises OSError."""
    wanted = read(path) or WantedFaults()
    wanted = msgspec.structs.replace(wanted, loads={**wanted.loads, device: wanted_load})
    files.write(path, msgspec.json.encode(wanted))
    return wanted


def clear(path: Path, minor: int | None = None) -> WantedFaults:
    """Reset one GPU, or all of them: their faults end. Loads stay, and so do counts of ECC errors. Raises OSError."""
    wanted = read(path) or WantedFaults()
    mended = wanted.recovery.keys() | wanted.throttled.keys() if minor is None else {minor}
    wanted = msgspec.structs.replace(
        wanted,
        lost=frozenset() if minor is None else wanted.lost - {minor},
        reset_fails=frozenset() if minor is None else wanted.reset_fails - {minor},
        recovery={each: action for each, action in wanted.recovery.items() if each not in mended},
        throttled={each: reasons for each, reasons in wanted.throttled.items() if each not in mended},
        memory_errors={
            each: msgspec.structs.replace(errors, pending=errors.pending and minor not in {None, each})
            for each, errors in wanted.memory_errors.items()
        },
    )
    files.write(path, msgspec.json.encode(wanted))
    return wanted


def reset(path: Path, minors: Collection[int]) -> WantedFaults:
    """What a reset of these GPUs cures: what asked for one, and rows of memory that waited for it. Raises OSError."""
    before = read(path) or WantedFaults()
    wanted = msgspec.structs.replace(
        before,
        recovery={each: action for each, action in before.recovery.items() if each not in minors or action == "reboot"},
        memory_errors={
            each: msgspec.structs.replace(errors, pending=errors.pending and each not in minors)
            for each, errors in before.memory_errors.items()
        },
    )
    if wanted != before:
        files.write(path, msgspec.json.encode(wanted))
    return wanted
