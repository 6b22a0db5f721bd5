"""Which evictions were decided of a gang, and until when devices are reserved for it: in the status of its Gang, which only the controller writes.

Written before the marks on its pods, which say when each of them goes: a mark counts only where a decision says the same, so that whoever
gets a mark onto a pod locks no device with it and gives no gang precedence. What cannot be read counts as absent. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairlead.api.gang import DECISIONS_MAX
from fairlead.kube import timestamps

DECISIONS = "evictions"  # of a Gang's status
RESERVED = "reservedUntil"
AHEAD_MAX_S = 86_400.0 + 300.0  # a reservation that is read ends by then, or is none
Place = tuple[str, tuple[str, ...]]  # node, devices as driver/pool/device


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """`at`: unix seconds, to the second. `place`: with kind Move, what is held for the new pods."""

    kind: str
    at: float
    beneficiary: str = ""
    place: frozenset[Place] = frozenset()

    def says(self, kind: str, at: float, beneficiary: str, place: Place | None) -> bool:
        return (self.kind, self.at, self.beneficiary) == (kind, at, beneficiary) and (
            place is None or place in self.place
        )

    def to_json(self) -> dict[str, Any]:
        place = [{"node": node, "devices": list(devices)} for node, devices in sorted(self.place)]
        fields = {"kind": self.kind, "at": timestamps.seconds(self.at), "beneficiary": self.beneficiary}
        return {**fields, "place": place} if place else fields


def decisions(raw: Mapping[str, Any] | None) -> tuple[Decision, ...]:
    """The decisions that a Gang object records, as the API shows it."""
    found = _status(raw).get(DECISIONS)
    try:
        return tuple(_decision(each) for each in found[:DECISIONS_MAX]) if isinstance(found, Sequence) else ()
    except (ValueError, KeyError, TypeError, OverflowError, AttributeError):
        return ()


def reserved_until(raw: Mapping[str, Any] | None, now: float) -> float:
    """Unix seconds; 0 without a reservation, or with one too far ahead."""
    try:
        until = timestamps.parse(_status(raw)[RESERVED])
    except (ValueError, KeyError, TypeError, OverflowError):
        return 0.0
    return until if until <= now + AHEAD_MAX_S else 0.0


def without_records(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """The status but for what evictions write there."""
    return {name: value for name, value in status.items() if name not in {DECISIONS, RESERVED}}


def _decision(read: Mapping[str, Any]) -> Decision:
    place = frozenset((str(each["node"]), tuple(map(str, each["devices"]))) for each in read.get("place") or ())
    beneficiary = str(read.get("beneficiary", ""))
    return Decision(kind=str(read["kind"]), at=timestamps.parse(read["at"]), beneficiary=beneficiary, place=place)


def _status(raw: Mapping[str, Any] | None) -> Mapping[str, Any]:
    status = (raw or {}).get("status")
    return status if isinstance(status, Mapping) else {}
