"""An eviction under way: what of it is written on the gang's pods, so that it survives a leader, and the next step from that.

`EvictionMark`, on each pod to be evicted, from the decision on, says when, for which gang, and whether the whole gang goes. A mark
counts only where the status of the Gang has the same decision (`membership.decisions`). Text that cannot be read counts as absent:
such a pod is not evicted. The steps, in this order:
- A mark with `whole` spreads to members that have none: they came later, or the leader died while marking. A move is called
  off instead: for those members no place is held.
- While the gang still runs with all its members, the eviction is cancelled when the beneficiary no longer waits, or a gang
  that goes for being idle is busy again. A gang that has lost members already is evicted to the end.
- When its time has come, or all its marked members have saved their work since they were asked to (`checkpointed-at`), and
  PodDisruptionBudgets allow all of it, it is evicted. Where they refuse for `REFUSAL_TIMEOUT_S`, it is cancelled, and the engine
  chooses other victims. Where another queue takes what it deserves (`EvictionMark.override_at`), budgets only delay: then the pods
  are deleted.
Pure. Chooses no victims and writes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

from fairlead.api import names
from fairlead.api.intent import IntentError, read_intent
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


RETRY_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Give these members the mark of the others."""

    members: tuple[Member, ...]
    mark: EvictionMark


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing before `until`. `refused` names the budget that refuses now, if one does."""

    until: float
    mark: EvictionMark
    refused: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict:
    members: tuple[Member, ...]
    mark: EvictionMark
    partly_gone: bool  # the gang has lost members already: budgets are tried pod by pod
    overridden: str = ""  # the refusal of a budget that counts no more: the pods are deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Remove the marks. `refused`: budgets refused for too long; else it is no longer needed."""

    members: tuple[Member, ...]
    mark: EvictionMark
    why: str
    refused: bool = False


Step = Spread | Wait | Evict | Cancel


def next_step(
    gang: Gang,
    *,
    now: float,
    still_waits: Callable[[GangId], bool],
    idle: Callable[[], bool] = lambda: True,
    node_goes: Callable[[], bool] = lambda: True,
    on_hold: Callable[[], bool] = lambda: True,
    refusal: Callable[[tuple[Member, ...]], str],
    refused: str = "",
) -> Step | None:
    """`still_waits`: whether a beneficiary still needs the devices. `idle`: whether a gang that goes for being idle still is.
    `node_goes`: whether a node of a gang that moves for that still goes. `on_hold`: whether a hold still says
    that it goes. `refusal`: why budgets forbid it now, or "".

    `refused`: what the eviction API said last, or "".
    """
    pairs = marked(gang)
    if not pairs:
        return None
    members, mark = tuple(member for member, _ in pairs), pairs[0][1]
    if mark.whole:
        marked_uids = {member.uid for member in members}
        others = tuple(m for m in gang.released if m.uid not in marked_uids and not m.terminating)
        if others and mark.kind == "Move" and gang.placed >= gang.size:
            return Cancel(members=members, mark=mark, why="a place is held for some of its pods only")
        if others:
            return Spread(members=others, mark=replace(mark, spot=None))
    cancellable = not mark.whole or gang.placed >= gang.size
    if cancellable and mark.beneficiary_id is not None and not still_waits(mark.beneficiary_id):
        return Cancel(members=members, mark=mark, why=f"gang {mark.beneficiary} no longer waits for it")
    if cancellable and mark.kind == "Idle" and not idle():
        return Cancel(members=members, mark=mark, why="it is idle no more, or is to stay all the same")
    if cancellable and mark.kind == "Move" and mark.beneficiary_id is None and not node_goes():
        return Cancel(members=members, mark=mark, why="its node does not go any more")
    if cancellable and mark.kind == "Hold" and not on_hold():
        return Cancel(members=members, mark=mark, why="it was resumed")
    due = max(mark.at for _, mark in pairs)
    if now < due and all(_saved(member, each) for member, each in pairs):
        due = now
    if now < due:
        return Wait(until=due, mark=mark)
    why = refusal(members)
    if mark.override_at is not None and (why or refused):
        until = max(due, mark.override_at)
        if now >= until:
            return Evict(members=members, mark=mark, partly_gone=not cancellable, overridden=why or refused)
        if why:
            return Wait(until=min(now + RETRY_S, until), mark=mark, refused=why)
    if why:
        timeout_s = REFUSAL_TIMEOUT_S
        if now >= due + timeout_s:
            return Cancel(members=members, mark=mark, why=f"given up after {timeout_s:.0f} s: {why}", refused=True)
        if cancellable:
            return Wait(until=now + RETRY_S, mark=mark, refused=why)
    return Evict(members=members, mark=mark, partly_gone=not cancellable)


def _saved(member: Member, mark: EvictionMark) -> bool:
    """Whether the pod says that its work is saved, since it was asked."""
    if mark.asked is None:
        return False
    try:
        saved = read_intent(member.pod.metadata.annotations, lenient=True).checkpointed
    except IntentError:
        return False
    return saved is not None and saved >= mark.asked
