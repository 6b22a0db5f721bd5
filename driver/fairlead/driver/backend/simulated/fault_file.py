"""The file through which `fairlead fault` tells simulated hardware what shall go wrong.

Exists because driver and command are two processes, and hardware has no API for breaking it. The command writes the
whole wish; the hardware reads it at each look. Only the simulated backend reads it.
"""

# No `from __future__ import annotations`: msgspec reads the annotations.

from pathlib import Path
from typing import Final

import msgspec

from fairlead.driver.backend import xids
from fairlead.driver.backend.types import Recovery
from fairlead.driver.common import files

NAME: Final = "simulated-faults.json"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """`number` tells two reports of one code apart."""

    minor: int
    code: int
    number: int


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    lost: frozenset[int] = frozenset()
    recovery: dict[int, Recovery] = {}
    xids: tuple[Event, ...] = ()


def read(path: Path) -> Wanted | None:
    """None when there is no file, or none that can be read: then nothing changes."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Wanted)
    except (OSError, msgspec.DecodeError):
        return None


def inject(path: Path, minor: int, *, xid: int | None = None, lost: bool = False) -> Wanted:
    """Report an Xid of a GPU, with the recovery that its class asks for, or take the GPU off the bus. Raises OSError."""
    wanted = read(path) or Wanted()
    if lost:
        wanted = msgspec.structs.replace(wanted, lost=wanted.lost | {minor})
    if xid is not None:
        number = max((event.number for event in wanted.xids), default=0) + 1
        needs: dict[str, Recovery] = {"needs-reset": "reset", "fatal": "reboot"}
        recovery = dict(wanted.recovery)
        if (kind := xids.classify(xid)) in needs:
            recovery[minor] = needs[kind]
        event = Event(minor=minor, code=xid, number=number)
        wanted = msgspec.structs.replace(wanted, xids=(*wanted.xids[-99:], event), recovery=recovery)
    files.write(path, msgspec.json.encode(wanted))
    return wanted


def mend(path: Path, minor: int | None = None) -> Wanted:
    """Make one GPU, or all of them, well again. Raises OSError."""
    wanted = read(path) or Wanted()
    if minor is None:
        wanted = msgspec.structs.replace(wanted, lost=frozenset(), recovery={})
    else:
        recovery = {other: action for other, action in wanted.recovery.items() if other != minor}
        wanted = msgspec.structs.replace(wanted, lost=wanted.lost - {minor}, recovery=recovery)
    files.write(path, msgspec.json.encode(wanted))
    return wanted
