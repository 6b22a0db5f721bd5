"""The plan's evictions, each with the figures that justify it: of chosen units for another gang, and of gangs that go for none.

A message says the cause alone: for which gang and when pods go is said once, by the marks that pods carry. Three go for no other gang, with
their checkpoint-grace, and the first two only where their PodDisruptionBudgets allow all of it; neither shares nor min-runtime protect them:
    hold     they, their queue, or one above, are on hold with `evict`: whoever may write the hold could delete the pods as well
    idle     their queue evicts gangs whose devices are idle, and the gang was told first (`IdleSpan.noticed`) and has had the grace of its
             queue. A gang is not idle where samples are old (`known_until`). Example, for 1h, grace 10m: idle since 12:00, told at 13:00,
             evicted at 13:10; told late, at 15:00: evicted at 15:10
    broken   a device has a NoExecute taint that its claim does not tolerate (any more). An elastic gang loses the members that hold such
             devices, any other goes whole, to be placed on sound devices together; also where the cluster's own taint eviction has deleted
             the pods that hold them already
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from fairlead.engine.allocator.candidates import taints
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.nodes import tolerated
from fairlead.engine.queues.charges import Charge, add
from fairlead.engine.queues.limits import evicting_hold
from fairlead.engine.queues.tree import Queue
from fairlead.engine.reclaim.candidates import EvictionUnit
from fairlead.engine.reclaim.eviction_policy import Preemptor
from fairlead.engine.reclaim.policy import branches
from fairlead.engine.reclaim.protection import Protection
from fairlead.engine.types.allocation import AllocatedDevice
from fairlead.engine.types.gangs import RunningGang
from fairlead.engine.types.plan import Eviction, EvictionKind
from fairlead.engine.types.reasons import Code, Reason
from fairlead.engine.types.settings import DisruptionBudget, IdlePolicy
from fairlead.engine.types.values import amount_text
from fairlead.kube import timestamps
from fairlead.kube.resource import DeviceTaint


def evictions(preemptor: Preemptor, chosen: Sequence[EvictionUnit], protection: Protection) -> list[Eviction]:
    """One per gang, in the order in which they were chosen. The units are gone already, the preemptor is not charged yet."""
    gangs: dict[str, list[EvictionUnit]] = {}
    lost: dict[Queue, Charge] = {}  # by branch of the victims: all that goes for this preemptor
    for unit in chosen:
        gangs.setdefault(unit.gang.id, []).append(unit)
        if unit.queue is not preemptor.queue:
            add(lost.setdefault(branches(preemptor.queue, unit.queue)[1], {}), unit.charge)
    return [_eviction(preemptor, units, lost, protection) for units in gangs.values()]


def _eviction(
    preemptor: Preemptor, units: Sequence[EvictionUnit], lost: Mapping[Queue, Charge], protection: Protection
) -> Eviction:
    first = units[0]
    gang, queue = first.gang, first.queue
    preempted = queue is preemptor.queue
    entitled = not preempted and _guaranteed(preemptor, queue)
    refusable_s = protection.budget_delay_s(gang, queue) if entitled else None
    eviction = Eviction.of(
        gang,
        [member for unit in units for member in unit.members],
        "Preempt" if preempted else "Reclaim",
        _preempted(preemptor, first) if preempted else _reclaimed(preemptor, first, lost),
        queue=queue.name,
        whole=first.whole,
        checkpoint_grace_s=protection.checkpoint_grace_s(gang, queue),
    )
    return replace(eviction, beneficiary=preemptor.gang.id, refusable_s=refusable_s)


def _preempted(preemptor: Preemptor, unit: EvictionUnit) -> Reason:
    queue = unit.queue.name  # "": neither is in one
    both = f"of the same queue {queue}" if queue else "of no queue, as this one"
    policy = f", or preemption: Never in queue {queue}," if queue else ""
    return Reason(
        code=Code.PREEMPTED,
        message=f"{both}, with priority {preemptor.gang.priority} against its {unit.gang.priority}",
        advice=f"{_afterwards(unit)}; a higher priority{policy} would keep it",
    )


def _reclaimed(preemptor: Preemptor, unit: EvictionUnit, lost: Mapping[Queue, Charge]) -> Reason:
    """What both branches were entitled to and held before anything went."""
    branch, victim_branch = branches(preemptor.queue, unit.queue)
    guaranteed = _guaranteed(preemptor, unit.queue)
    figures = []
    for flavor, value in sorted(preemptor.queue.tree.deciding(preemptor.charge).items()):
        victim_held = victim_branch.used.get(flavor, 0) + lost[victim_branch].get(flavor, 0)
        figures.append(
            f"queue {branch.name} holds {amount_text(branch.used.get(flavor, 0))} of {flavor}, "
            f"asks for {amount_text(value)} more and {_entitled(branch, flavor, guaranteed=guaranteed)}; "
            f"queue {victim_branch.name} holds {amount_text(victim_held)} "
            f"and {_entitled(victim_branch, flavor, guaranteed=guaranteed)}"
        )
    return Reason(
        code=Code.RECLAIMED,
        message="; ".join(figures),
        advice=f"{_afterwards(unit)}; more deserved for queue {unit.queue.name}, or a longer min-runtime, would keep it",
    )


def _guaranteed(preemptor: Preemptor, victim: Queue) -> bool:
    """Whether the preemptor's branch is within what it deserves with the gang."""
    branch, _ = branches(preemptor.queue, victim)
    deciding = branch.tree.deciding(preemptor.charge)
    return all(branch.used.get(flavor, 0) + value <= branch.deserved(flavor) for flavor, value in deciding.items())


def _entitled(queue: Queue, flavor: str, *, guaranteed: bool) -> str:
    if guaranteed:
        return f"deserves {amount_text(queue.deserved(flavor))}"
    return f"has a fair share of {amount_text(queue.fair.get(flavor, 0))}"


def _afterwards(unit: EvictionUnit) -> str:
    return "recreated, its pods wait with its age" if unit.whole else "its other pods run on"


def making_room(made: Sequence[Eviction]) -> Reason:
    """Why the gang itself still waits."""
    names = ", ".join(
        f"{eviction.id} (queue {eviction.queue})" if eviction.queue else eviction.id for eviction in made[:3]
    )
    more = f" and {len(made) - 3} more" if len(made) > 3 else ""
    pods = sum(len(eviction.pods) for eviction in made)
    grace_s = max(eviction.checkpoint_grace_s for eviction in made)
    after = f", after {grace_s:g} s to save their work" if grace_s else ""
    return Reason(
        code=Code.MAKING_ROOM,
        message=f"{pods} pod{'s' if pods != 1 else ''} of {names}{more} {'are' if pods != 1 else 'is'} being evicted for it{after}",
        advice="it starts when they are gone; the devices that they release are held for it",
        could_ever_fit=True,
    )


class BudgetsLeft:
    def __init__(self, budgets: Iterable[DisruptionBudget]) -> None:
        self._left = {(budget.namespace, budget.name): budget.allowed for budget in budgets}

    def take(self, gang: RunningGang) -> bool:
        """Whether all its pods may go now; then they are counted. Else it is decided again when a budget changes."""
        guards = Counter((gang.namespace, name) for member in gang.members for name in member.guarded_by)
        if any(count > self._left.get(guard, 0) for guard, count in guards.items()):
            return False
        for guard, count in guards.items():
            self._left[guard] -= count
        return True


def whole_evictions(
    kind: EvictionKind,
    why: Callable[[RunningGang, Queue], Reason | None],
    running: Iterable[tuple[RunningGang, Queue]],
    budgets: BudgetsLeft,
    leaving: Collection[str],
    protection: Protection,
) -> Iterator[Eviction]:
    """One for each gang that goes: `why` says for which reason. `leaving`: UIDs of pods that go for another reason."""
    for gang, queue in running:
        reason = why(gang, queue)
        if reason is None or not gang.members or any(each.leaving or each.pod.uid in leaving for each in gang.members):
            continue
        if budgets.take(gang):
            grace_s = protection.checkpoint_grace_s(gang, queue)
            yield Eviction.of(gang, gang.members, kind, reason, queue=queue.name, checkpoint_grace_s=grace_s)


def held_reason(gang: RunningGang, queue: Queue) -> Reason | None:
    """Why a hold evicts it; None where none does."""
    found = evicting_hold(gang, queue)
    if found is None:
        return None
    advice = f"recreated, its pods wait with its age until `{found.resume(gang)}`"
    return Reason(code=Code.ON_HOLD, message=str(found), advice=advice)


class IdleGangs:
    """The idle gangs of one queue tree, at `now` (unix seconds). `due`: when time alone may change the answers."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._policies: dict[Queue, IdlePolicy | None] = {}
        self.due: list[float] = []

    def policy(self, queue: Queue) -> IdlePolicy | None:
        """Its own, else that of the first queue above that has one."""
        if queue not in self._policies:
            found = (step.spec.idle for step in queue.path() if step.spec.idle is not None)
            self._policies[queue] = next(found, None)
        return self._policies[queue]

    def suspended(self, gang: RunningGang, queue: Queue) -> bool:
        """Whether it is the first to go, whatever its min-runtime."""
        return gang.idle is not None and self._follows(gang, queue, "suspendBorrowing")

    def reason(self, gang: RunningGang, queue: Queue) -> Reason | None:
        """Why it is evicted; None where it is not."""
        policy, idle = self.policy(queue), gang.idle
        if policy is None or idle is None or idle.noticed is None or not self._follows(gang, queue, "evict"):
            return None
        those = "one of its devices is" if policy.devices == "Any" else "all its devices are"
        since, told = timestamps.seconds(idle.since), timestamps.seconds(idle.noticed)
        return Reason(
            code=Code.IDLE,
            message=f"{those} idle since {since}; it was notified at {told}",
            advice="recreated, its pods wait behind those that wait already; the annotation fairlead.dev/keep-idle would keep it",
        )

    def _follows(self, gang: RunningGang, queue: Queue, then: str) -> bool:
        """Whether that is what follows for the gang, and its time has come."""
        policy, idle = self.policy(queue), gang.idle
        if (
            policy is None
            or policy.then != then
            or idle is None
            or idle.noticed is None
            or self._now >= idle.known_until
        ):
            return False
        at = max(idle.since + policy.for_s, idle.noticed + policy.grace_s)
        if at > self._now:
            self.due.append(at)
        return at <= self._now


class BrokenDevices:
    def __init__(self, inventory: Inventory, now: float) -> None:
        self._inventory = inventory
        self._now = now
        self.due: float | None = None

    def evictions(self, running: Iterable[RunningGang]) -> Iterator[Eviction]:
        """One for each gang that must give up devices; queues are filled in by the plan."""
        for gang in running:
            found = self._of(gang)
            if found is not None:
                yield found

    def _of(self, gang: RunningGang) -> Eviction | None:
        faults = {uid: fault for uid in gang.claims if (fault := self.fault(uid)) is not None}
        staying = [member for member in gang.members if not member.leaving]
        hurt = [member for member in gang.members if not member.done and any(uid in faults for uid in member.claims)]
        hurt_staying = [member for member in hurt if not member.leaving]
        whole = len(staying) - len(hurt_staying) < gang.size
        going = staying if whole and hurt else hurt_staying
        if not going:
            return None
        pods = len(staying) + len(hurt) - len(hurt_staying)
        first = min(faults.values())
        reason = Reason(
            code=Code.BROKEN,
            message=f"{first}; {len(hurt)} of its {pods} pods hold{'s' if len(hurt) == 1 else ''} such devices, it needs {gang.size}: "
            + ("all of them go" if whole else "only those go"),
            advice="recreated, its pods wait with its age and are given other devices",
        )
        queue, grace_s = gang.queue or "", gang.checkpoint_grace_s or 0.0
        return Eviction.of(gang, going, "Replace", reason, queue=queue, whole=whole, checkpoint_grace_s=grace_s)

    def fault(self, uid: str) -> str | None:
        """Which taint of a device evicts those who hold the claim; None where none does."""
        claim = self._inventory.claim(uid)
        for held in claim.devices if claim is not None else ():
            device = None if held.admin else self._inventory.tainted_with(held.ref)
            if device is None:
                continue
            for taint in taints(device, self._inventory.rules):
                if taint.effect == "NoExecute" and self._evicts(taint, held):
                    value = f"={taint.value}" if taint.value else ""
                    return f"device {device.ref} has the taint {taint.key}{value}:NoExecute"
        return None

    def _evicts(self, taint: DeviceTaint, held: AllocatedDevice) -> bool:
        """Not tolerated, or no longer."""
        ends: list[float] = []
        for toleration in held.tolerations:
            if not tolerated(taint.key, taint.value, taint.effect, (toleration,)):
                continue
            if toleration.toleration_seconds is None or taint.time_added is None:
                return False
            ends.append(timestamps.parse(taint.time_added) + toleration.toleration_seconds)
        if not ends or min(ends) <= self._now:
            return True
        self.due = min(ends) if self.due is None else min(self.due, *ends)
        return False
