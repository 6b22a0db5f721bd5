"""What the leader sees of devices and claims, as the ledger's account takes it. Frozen values; times in unix microseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fairlead.history.ledger.entries import Allocation, Decision, End, Measure, Unit, Wait

# Of time that no claim holds, and of it that in which nothing could be given.
Vacancy = Literal["nominated", "fragmented", "free", "drained", "broken"]
Unavailable = Literal["drained", "broken"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitSeen:
    """A unit that is published, and what its unheld part is good for. `whole`: all of it."""

    unit: Unit
    node: str
    whole: Measure
    vacancy: Vacancy


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSeen:
    """The driver's last sample of a device: whether it is idle, since when, and how busy it was. None: not reported."""

    idle: bool
    since_us: int
    sampled_us: int
    busy_percent: int | None = None
    memory_peak_bytes: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSeen:
    """A device that a claim holds."""

    unit: Unit
    device: str
    measure: Measure
    usage: UsageSeen | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSeen:
    """An allocated claim. `started_us`: when the first container of its pods ran; `finished_us`: when the last one had ended."""

    allocation: Allocation
    parts: tuple[PartSeen, ...]
    started_us: int | None = None
    finished_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimEnded:
    """A claim whose allocation is gone. `lost`: its work was lost to an eviction."""

    claim_uid: str
    at_us: int
    ended_by: End
    lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What changed until `now_us`; the first one of a term has everything that is there."""

    now_us: int
    units: tuple[UnitSeen, ...] = ()
    gone: tuple[Unit, ...] = ()
    claims: tuple[ClaimSeen, ...] = ()
    ended: tuple[ClaimEnded, ...] = ()
    waits: tuple[Wait, ...] = ()
    decisions: tuple[Decision, ...] = ()
