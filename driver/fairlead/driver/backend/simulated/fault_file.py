"""The file by which `fairlead fault` and `fairlead load` inject faults and load into simulated hardware; and what of it holds now.

Driver and command are two processes. The command writes all that is wanted; SimulatedBackend reads the file at each poll.
"""

# No `from __future__ import annotations`: msgspec reads the annotations.

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Annotated, Final, Literal, get_args

import msgspec

from fairlead.driver.backend import xids
from fairlead.driver.backend.types import Process, RecoveryAction, ThrottleReason
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


class WantedFaults(msgspec.Struct, kw_only=True):
    """GPUs off the bus (by minor), recovery actions, reasons for lower clocks and errors of memory by minor, the last
    `XIDS_MAX` Xids, and the load by device's name; `held` is on every other device that a claim holds. A reset of
    those in `reset_fails` fails.
    """

    lost: set[int] = set()
    recovery: dict[int, RecoveryAction] = {}
    xids: list[XidEvent] = []
    loads: dict[str, Load] = {}
    held: Load | None = None
    throttled: dict[int, frozenset[ThrottleReason]] = {}
    memory_errors: dict[int, MemoryErrors] = {}
    reset_fails: set[int] = set()


@dataclasses.dataclass(slots=True)
class InjectedFaults:
    """What is wrong with simulated hardware now, and how busy it is: as WantedFaults, or as tests set it.

    `xids` are (minor, code) not yet reported, `busy` (minor, start) of instances with clients, `processes` those on a GPU, by minor.
    `before` is called with operation and minor before each operation: it may sleep or raise.
    """

    lost: set[int] = dataclasses.field(default_factory=set)
    recovery: dict[int, RecoveryAction] = dataclasses.field(default_factory=dict)
    xids: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    busy: set[tuple[int, int]] = dataclasses.field(default_factory=set)
    loads: dict[str, Load] = dataclasses.field(default_factory=dict)
    held: Load | None = None
    throttled: dict[int, frozenset[ThrottleReason]] = dataclasses.field(default_factory=dict)
    memory_errors: dict[int, MemoryErrors] = dataclasses.field(default_factory=dict)
    processes: dict[int, tuple[Process, ...]] = dataclasses.field(default_factory=dict)
    reset_fails: set[int] = dataclasses.field(default_factory=set)
    before: Callable[[str, int], None] | None = None

    def follow(self, wanted: WantedFaults) -> None:
        """All but the Xids, of which those that are new count."""
        for name in wanted.__struct_fields__:
            if name != "xids":
                setattr(self, name, getattr(wanted, name))


def read(path: Path) -> WantedFaults | None:
    """None when there is no file, or none that can be read: then nothing changes."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=WantedFaults)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


@contextlib.contextmanager
def _changed(path: Path) -> Iterator[WantedFaults]:
    """What is wanted, to be changed inside and written at the end. Raises OSError."""
    wanted = read(path) or WantedFaults()
    yield wanted
    files.write(path, msgspec.json.encode(wanted))


def inject(
    path: Path,
    minor: int,
    *,
    xid: int | None = None,
    lost: bool = False,
    throttle: ThrottleReason | None = None,
    ecc: EccKind | None = None,
    reset_fails: bool = False,
) -> None:
    """Report an Xid, with the recovery action that its class asks for; take the GPU off the bus; hold its clocks down; let
    its resets fail; or count an ECC error, of which an uncorrected one takes a row of memory out of use. Raises OSError.
    """
    with _changed(path) as wanted:
        if lost:
            wanted.lost.add(minor)
        if reset_fails:
            wanted.reset_fails.add(minor)
        if throttle is not None:
            wanted.throttled[minor] = wanted.throttled.get(minor, frozenset()) | {throttle}
        if ecc is not None:
            before = wanted.memory_errors.get(minor, MemoryErrors())
            wanted.memory_errors[minor] = MemoryErrors(
                corrected=before.corrected + (ecc == "corrected"),
                uncorrected=before.uncorrected + (ecc == "uncorrected"),
                pending=before.pending or ecc == "uncorrected",
            )
        if xid is not None:
            actions: dict[str, RecoveryAction] = {"needs-reset": "reset", "fatal": "reboot"}
            if (kind := xids.classify(xid)) in actions:
                wanted.recovery[minor] = actions[kind]
            number = max((event.number for event in wanted.xids), default=0) + 1
            event = XidEvent(minor=minor, code=xid, number=number)
            wanted.xids = [*wanted.xids[-XIDS_MAX + 1 :], event]


def load_held(path: Path, wanted_load: Load | None) -> None:
    """Put this load on every device while a claim holds it, unless it has one of its own. Raises OSError."""
    with _changed(path) as wanted:
        wanted.held = wanted_load


def load(path: Path, device: str, wanted_load: Load) -> None:
    """Put this load on a device, by name. Raises OSError."""
    with _changed(path) as wanted:
        wanted.loads[device] = wanted_load


def clear(path: Path, minor: int | None = None) -> None:
    """Reset one GPU, or all of them: their faults end. Loads stay, and so do counts of ECC errors. Raises OSError."""
    with _changed(path) as wanted:
        mended = (
            {minor} if minor is not None else {*wanted.lost, *wanted.reset_fails, *wanted.recovery, *wanted.throttled}
        )
        wanted.lost -= mended
        wanted.reset_fails -= mended
        wanted.recovery = {each: action for each, action in wanted.recovery.items() if each not in mended}
        wanted.throttled = {each: reasons for each, reasons in wanted.throttled.items() if each not in mended}
        _replace_rows(wanted, wanted.memory_errors if minor is None else mended)


def reset(path: Path, minors: Collection[int]) -> None:
    """What a reset of these GPUs cures: what asked for one, and rows of memory that waited for it. Raises OSError."""
    if not path.exists():
        return
    with _changed(path) as wanted:
        wanted.recovery = {
            each: action for each, action in wanted.recovery.items() if each not in minors or action == "reboot"
        }
        _replace_rows(wanted, minors)


def _replace_rows(wanted: WantedFaults, minors: Collection[int]) -> None:
    for minor in wanted.memory_errors.keys() & set(minors):
        wanted.memory_errors[minor] = msgspec.structs.replace(wanted.memory_errors[minor], pending=False)
