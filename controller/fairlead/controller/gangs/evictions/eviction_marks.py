"""What of an eviction under way is written in the cluster, so that it survives a leader: annotations and their codecs.

- `EvictionMark`, on each pod to be evicted, from the decision on: when, for which gang, and whether the whole gang goes.
They count only where the status of the Gang has the same decision (`membership.decisions`). Text that cannot be read counts as absent: such a pod is not evicted. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from fairlead.api import names
from fairlead.controller.gangs.evictions.moved import Spot, read_spot
from fairlead.controller.gangs.membership import decisions
from fairlead.controller.gangs.membership.decisions import Decision, Place
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.gangs.membership.members import Member
from fairlead.engine.types.plan import Eviction
from fairlead.kube import core, timestamps

REFUSAL_TIMEOUT_S = 300.0  # how long budgets may refuse an eviction before it is cancelled
HOLD_S = 300.0  # after the eviction's time: how long the devices stay reserved for the gang that gets them
REASON_MAX = 1000
TEXT_MAX = 16_384  # characters of a mark that is read; ours are shorter

Kind = Literal["Reclaim", "Preempt", "Replace", "Idle", "Move", "Hold"]


_WORDS: Mapping[Kind, str] = {
    "Reclaim": "reclaimed",
    "Preempt": "preempted",
    "Replace": "replaced",
    "Idle": "stopped as idle",
    "Move": "moved",
    "Hold": "stopped by a hold",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionMark:
    """On a pod that is to be evicted. `at` is unix seconds, to the second."""

    kind: Kind
    at: float
    whole: bool  # the gang stops; else only the marked pods go
    beneficiary: str = ""  # namespace/name of the gang that gets the devices
    why: str = ""
    override_at: float | None = None  # unix seconds: from then on budgets do not refuse it; None: they may
    asked: float | None = None  # unix seconds: since when it is to save its work; None: not known
    spot: Spot | None = None  # with Move: the place that is held for the pod made in its stead

    @property
    def beneficiary_id(self) -> GangId | None:
        namespace, _, name = self.beneficiary.partition("/")
        return (namespace, name) if name else None

    def annotations(self) -> dict[str, str]:
        fields: dict[str, Any] = {"kind": self.kind, "for": self.beneficiary, "whole": self.whole, "why": self.why}
        if self.override_at is not None:
            fields["override"] = timestamps.seconds(self.override_at)
        if self.asked is not None:
            fields["asked"] = timestamps.seconds(self.asked)
        if self.spot is not None:
            fields["place"] = self.spot.to_json()
        return {names.EVICT_AT: timestamps.seconds(self.at), names.EVICTION: json.dumps(fields)}

    @property
    def refusable_until(self) -> float:
        return self.at + REFUSAL_TIMEOUT_S if self.override_at is None else max(self.at, self.override_at)

    @property
    def description(self) -> str:
        """What happens, for which gang, why, and what would prevent it: the text for users, without the time."""
        return f"{self}: {self.why}" if self.why else str(self)

    def __str__(self) -> str:
        what = _WORDS[self.kind]
        return f"{what} for gang {self.beneficiary}" if self.beneficiary else what


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionProgress:
    """For reports: an eviction under way, and which budget refuses it."""

    mark: EvictionMark
    refused: str = ""

    def __str__(self) -> str:
        what = "to be evicted" if self.mark.whole else "some of its pods to be evicted"
        text = f"{what} at {timestamps.seconds(self.mark.at)}: {self.mark.description}"
        if not self.refused:
            return text
        return f"{text}; not yet: {self.refused}; tried until {timestamps.seconds(self.mark.refusable_until)}"


def mark_for(eviction: Eviction, *, at: float, asked: float | None = None) -> EvictionMark:
    return EvictionMark(
        kind=eviction.kind,
        at=float(int(at + 0.999)),
        whole=eviction.whole,
        beneficiary=eviction.beneficiary,
        override_at=None
        if eviction.refusable_s is None
        else float(int(at + min(eviction.refusable_s, REFUSAL_TIMEOUT_S) + 0.999)),
        asked=None if asked is None or not eviction.checkpoint_grace_s else float(int(asked)),
        why="; ".join(text for text in (eviction.reason.message, eviction.reason.advice) if text)[:REASON_MAX],
    )


def mark_of(pod: core.Pod) -> EvictionMark | None:
    """None when the pod has no mark, or one that cannot be read."""
    at, text = pod.metadata.annotations.get(names.EVICT_AT), pod.metadata.annotations.get(names.EVICTION)
    if not at or not text or len(text) > TEXT_MAX:
        return None
    try:
        read: Mapping[str, Any] = json.loads(text)
        kind = read["kind"]
        if kind not in get_args(Kind):
            return None
        return EvictionMark(
            kind=cast("Kind", kind),
            at=timestamps.parse(at),
            whole=bool(read["whole"]),
            beneficiary=str(read["for"]),
            why=str(read["why"]),
            override_at=timestamps.parse(read["override"]) if read.get("override") else None,
            asked=timestamps.parse(read["asked"]) if read.get("asked") else None,
            spot=read_spot(read["place"]) if read.get("place") else None,
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def progress(gang: Gang, refused: str) -> EvictionProgress | None:
    """The progress of the eviction that its pods' marks say. `refused`: why the last attempt was."""
    pairs = marked(gang)
    return EvictionProgress(mark=pairs[0][1], refused=refused) if pairs else None


def marked(gang: Gang) -> tuple[tuple[Member, EvictionMark], ...]:
    """The members that are to be evicted, as was decided, and are not yet terminating."""
    if not gang.decisions:
        return ()
    return tuple(
        (member, mark)
        for member in gang.released
        if not member.terminating
        and (mark := mark_of(member.pod)) is not None
        and any(follows(mark, each) for each in gang.decisions)
    )


def stops(gang: Gang) -> bool:
    """Whether all of the gang is to be evicted: then none of its members is requested."""
    return any(mark.whole for _, mark in marked(gang))


def decision(mark: EvictionMark, place: Iterable[Spot] = ()) -> Decision:
    """What is recorded of it before it is written."""
    places = frozenset(_place(spot) for spot in place)
    return Decision(kind=mark.kind, at=mark.at, beneficiary=mark.beneficiary, place=places)


def over(gang: Gang, raw: Mapping[str, Any], now: float) -> dict[str, None]:
    """What of the records of evictions in the status of its Gang is of no use any more, as a merge patch."""
    status = raw.get("status") or {}
    old = all(each.at < now - HOLD_S for each in decisions.decisions(raw)) and not marked(gang)
    ended = decisions.reserved_until(raw, now) <= now
    gone = {decisions.DECISIONS: old, decisions.RESERVED: ended}
    return {field: None for field, useless in gone.items() if useless and field in status}


def follows(mark: EvictionMark, decided: Decision) -> bool:
    place = None if mark.spot is None else _place(mark.spot)
    return decided.says(mark.kind, mark.at, mark.beneficiary, place)


def _place(spot: Spot) -> Place:
    return spot.node, tuple(str(device) for device in spot.devices)


def eviction_times(decided: Iterable[Eviction], now: float) -> dict[str, float]:
    """When each gang is evicted, by id: all for one beneficiary together, after the longest checkpoint grace.

    Example: for gang x, a with 10 s of grace and b with 60 s: both at now + 60, so that a does not stop early in vain.
    """
    known = list(decided)
    grace_s: dict[str, float] = {}
    for eviction in known:
        key = eviction.beneficiary or eviction.id
        grace_s[key] = max(grace_s.get(key, 0.0), eviction.checkpoint_grace_s)
    return {eviction.id: now + grace_s[eviction.beneficiary or eviction.id] for eviction in known}
