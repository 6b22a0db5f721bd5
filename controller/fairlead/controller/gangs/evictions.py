"""What to do about a gang that is being evicted: from its pods alone, so that a new leader goes on where the last one stopped.

Exists so that an eviction has one course, whoever carries it out. Each pod that is to go carries a `Mark` from the decision on:
until when it may write a checkpoint, for whom it goes, and whether the whole gang does. Then, in this order:
- A mark that says "whole" spreads to members that have none (they came later, or we ended while marking).
- While the gang still runs whole, it is cancelled when nobody waits for it any more; a gang already torn goes on to its end.
- When its time has come and PodDisruptionBudgets allow all of it, it is evicted; where they do not for `PATIENCE_S`, it is
  given up, and the core chooses others.
Pure. Chooses no victims and writes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from fairlead.api import names
from fairlead.controller.gangs.gangs import Gang, GangId
from fairlead.controller.gangs.members import Member
from fairlead.engine.types.plan import Eviction
from fairlead.kube import core, timestamps

PATIENCE_S = 300.0  # how long a budget may refuse before others are chosen
RETRY_S = 5.0
HOLD_S = 300.0  # how long what was freed is kept for the gang it was freed for, should it not land at once
RETURN_S = 600.0  # how long an evicted gang without pods is remembered, so that pods made anew keep its age
REASON_MAX = 1000

Kind = Literal["Reclaim", "Preempt", "Replace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What a pod that is to be evicted carries. `at` is unix seconds, to the second."""

    kind: Kind
    at: float
    whole: bool
    beneficiary: str = ""  # namespace/name of the gang for which it goes
    why: str = ""

    @property
    def for_gang(self) -> GangId | None:
        namespace, _, name = self.beneficiary.partition("/")
        return (namespace, name) if name else None

    def annotations(self) -> dict[str, str]:
        said = {"kind": self.kind, "for": self.beneficiary, "whole": self.whole, "why": self.why}
        return {names.EVICT_AT: timestamps.seconds(self.at), names.EVICTION: json.dumps(said)}

    @property
    def given_up_at(self) -> float:
        """Until then budgets may refuse it."""
        return self.at + PATIENCE_S

    @property
    def story(self) -> str:
        """What happens for whom, why, and what would help: all that a user is told beside the time."""
        return f"{self}: {self.why}" if self.why else str(self)

    def __str__(self) -> str:
        what = {"Reclaim": "reclaimed", "Preempt": "preempted", "Replace": "replaced"}[self.kind]
        return f"{what} for gang {self.beneficiary}" if self.beneficiary else what


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """For reports: the eviction that a gang is in, and what holds it up."""

    mark: Mark
    refused: str = ""

    def __str__(self) -> str:
        who = "to be evicted" if self.mark.whole else "some of its pods to be evicted"
        text = f"{who} at {timestamps.seconds(self.mark.at)}: {self.mark.story}"
        if not self.refused:
            return text
        return f"{text}; not yet: {self.refused}; tried until {timestamps.seconds(self.mark.given_up_at)}"


def mark_for(eviction: Eviction, *, at: float) -> Mark:
    return Mark(
        kind=eviction.kind,
        at=float(int(at + 0.999)),
        whole=eviction.whole,
        beneficiary=eviction.beneficiary,
        why="; ".join(text for text in (eviction.reason.message, eviction.reason.advice) if text)[:REASON_MAX],
    )


def times(decided: Iterable[Eviction], now: float) -> dict[str, float]:
    """When each gang goes: those for one other gang together, after the longest grace, so that nobody stops in vain."""
    known = list(decided)
    grace: dict[str, float] = {}
    for eviction in known:
        key = eviction.beneficiary or eviction.id
        grace[key] = max(grace.get(key, 0.0), eviction.checkpoint_grace_s)
    return {eviction.id: now + grace[eviction.beneficiary or eviction.id] for eviction in known}


def mark_of(pod: core.Pod) -> Mark | None:
    """None when the pod has none, or none that can be read (then it is not evicted)."""
    at, said = pod.metadata.annotations.get(names.EVICT_AT), pod.metadata.annotations.get(names.EVICTION)
    if not at or not said:
        return None
    try:
        read: Mapping[str, Any] = json.loads(said)
        kind = read["kind"]
        if kind not in get_args(Kind):
            return None
        return Mark(
            kind=cast("Kind", kind),
            at=timestamps.parse(at),
            whole=bool(read["whole"]),
            beneficiary=str(read["for"]),
            why=str(read["why"]),
        )
    except (ValueError, KeyError, TypeError):
        return None


# ------------------------------------------------------------------------------------------------------- the course


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """These members get the mark of the others."""

    members: tuple[Member, ...]
    mark: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Look again at that time. `refused` says which budget forbids it now, if one does."""

    until: float
    mark: Mark
    refused: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict:
    members: tuple[Member, ...]
    mark: Mark
    torn: bool  # some are gone already


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Take the marks away. `refused`: it was wanted, but could not be done."""

    members: tuple[Member, ...]
    mark: Mark
    why: str
    refused: bool = False


Step = Spread | Wait | Evict | Cancel


def marked(gang: Gang) -> tuple[tuple[Member, Mark], ...]:
    """The members that are to be evicted and are not yet on their way out."""
    return tuple(
        (member, mark) for member in gang.released if not member.leaving and (mark := mark_of(member.pod)) is not None
    )


def next_step(
    gang: Gang, *, now: float, wanted: Callable[[GangId], bool], refusal: Callable[[tuple[Member, ...]], str]
) -> Step | None:
    """`wanted` says whether a gang still waits for what it was promised; `refusal` why budgets forbid it now."""
    pairs = marked(gang)
    if not pairs:
        return None
    members, mark = tuple(member for member, _ in pairs), pairs[0][1]
    if mark.whole:
        have = {member.uid for member in members}
        others = tuple(m for m in gang.released if m.uid not in have and not m.leaving)
        if others:
            return Spread(members=others, mark=mark)
    whole = gang.placed >= gang.size
    stoppable = whole or not mark.whole
    if stoppable and mark.for_gang is not None and not wanted(mark.for_gang):
        return Cancel(members=members, mark=mark, why=f"gang {mark.beneficiary} no longer waits for it")
    due = max(mark.at for _, mark in pairs)
    if now < due:
        return Wait(until=due, mark=mark)
    why = refusal(members)
    if why:
        if now >= due + PATIENCE_S:
            return Cancel(members=members, mark=mark, why=f"given up after {PATIENCE_S:.0f} s: {why}", refused=True)
        if stoppable:
            return Wait(until=now + RETRY_S, mark=mark, refused=why)
    return Evict(members=members, mark=mark, torn=not stoppable)


# -------------------------------------------------------------------------------------------------- for whom, for long


def holds_until(gang: Gang) -> float:
    """Until when devices are held for this waiting gang, because others were evicted for it; 0 when they are not."""
    times = [0.0]
    for member in gang.gated:
        text = member.pod.metadata.annotations.get(names.HOLDS_UNTIL)
        if text:
            try:
                times.append(timestamps.parse(text))
            except ValueError:
                continue
    return max(times)


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What a Gang object remembers of its last eviction. `since` is when the gang got in line first, unix seconds."""

    at: float
    since: float
    mark: str  # "reclaimed for gang ml/x"
    why: str
    owner: str = ""  # UID of what makes the pod of a gang of one: its next pod has another name

    @property
    def story(self) -> str:
        return f"evicted at {timestamps.seconds(self.at)}: {self.mark}: {self.why}"

    def annotation(self) -> str:
        said = {
            "at": timestamps.seconds(self.at),
            "since": timestamps.seconds(self.since),
            "what": self.mark,
            "why": self.why,
            "owner": self.owner,
        }
        return json.dumps(said)


def past_of(raw: Mapping[str, Any]) -> Past | None:
    """Of a Gang object as the API shows it."""
    text = (raw.get("metadata", {}).get("annotations") or {}).get(names.EVICTED)
    if not text:
        return None
    try:
        read = json.loads(text)
        return Past(
            at=timestamps.parse(read["at"]),
            since=timestamps.parse(read["since"]),
            mark=str(read["what"]),
            why=str(read["why"]),
            owner=str(read["owner"]),
        )
    except (ValueError, KeyError, TypeError):
        return None
