"""The next step of an eviction, from the marks on the gang's pods: a new leader continues where the last one stopped.

In this order:
- A mark with `whole` spreads to members that have none: they came later, or the leader died while marking. A move is called
  off instead: for those members no place is held.
- While the gang still runs with all its members, the eviction is cancelled when the beneficiary no longer waits, or a gang
  that goes for being idle is busy again. A gang that has lost members already is evicted to the end.
- When its time has come, or all its marked members have saved their work since they were asked to (`checkpointed-at`), and PodDisruptionBudgets allow all of it, it is evicted. Where they refuse for
  `REFUSAL_TIMEOUT_S`, it is cancelled, and the engine chooses other victims. Where another queue takes what it deserves
  (`EvictionMark.override_at`), budgets only delay: then the pods are deleted.
Pure. Chooses no victims and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fairlead.api.intent import IntentError, read_intent
from fairlead.controller.gangs.evictions import eviction_marks
from fairlead.controller.gangs.evictions.eviction_marks import EvictionMark
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.gangs.membership.members import Member

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
    pairs = eviction_marks.marked(gang)
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
        timeout_s = eviction_marks.REFUSAL_TIMEOUT_S
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
