"""How a queue stands against its fair share, and whether one queue may reclaim devices from another. The rules alone.

They depend on queues and amounts; not on gangs, devices, priorities of gangs, budgets or clocks. Within one queue there is preemption.
Shares: a queue may hold the larger of `deserved` and `fair`. "Over its share" is said of the first queue on the way up from the gang's own
for which that no longer holds, in any flavor that the gang asks for. Contested: queues beside it hold or ask for these flavors, too. An only
child's share is all that its parent has, and to be over that share takes nothing from other queues.
Example, 8 devices, queues a and b deserve 2 each: a alone asks for 6 and has a fair share of 6, so 7 would be over its share,
but uncontested. When b asks for 4, both have a fair share of 4 and a's fifth device is over a contested share.
Reclaim: the paths of reclaimer and victim meet at a common ancestor; compared are the two branches just below it, flavor
by flavor, with the request counted on the reclaimer's branch (flavors that no queue lists aside, see `Tree.deciding`):
    guarantee   the reclaimer's branch holds no more than it deserves. It may reclaim from a branch above what that deserves,
                even a gang without which the victim falls below: that gang ran on borrowed devices. Nothing else ever takes
                a queue below what it deserves, and this gives another queue what that deserves.
    fairness    the reclaimer's branch stays within its fair share. It may reclaim from a branch above its own, down to what
                that deserves and no further, and only if it ends with less surplus per weight than the victim had before
                (else whole devices would move back and forth over a rounding).
Every queue from the victim up to its branch must be above what it deserves, too. A set is allowed when its units can be taken one by one in
some order. Invariant: what a queue took by fairness it cannot lose to the same victim by fairness, for it ends within its share.
Example, 12 devices, queues a, b and c deserve 2 each. b holds all 12, a asks for 7, c for nothing: fair shares 6, 6 and 0.
    a asks for 2:  0 + 2 <= deserved 2, guarantee: b holds 12 > 2, so its gangs of up to 12 devices may go
    then 4 more:   2 + 4 > deserved 2 but <= fair share 6, fairness: b holds 10 > fair share 6; after a gang of 4 it holds 6 >= 2
    then 1 more:   6 + 1 > fair share 6: refused, OVER_SHARE
Source: KAI-Scheduler reclaimable.go and strategies.go, Kueue's fair sharing preemption; DESIGN 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from fairlead.engine.queues.tree import Queue
from fairlead.engine.types.values import Amount


def over_contested_share(queue: Queue, charge: Mapping[str, Amount]) -> Queue | None:
    """The first queue on the way up that would hold more than its share with this charge, where that share is contested."""
    deciding = queue.tree.deciding(charge)
    return next((step for step in queue.path() if _over_contested(step, deciding)), None)


def beyond_share(queue: Queue, charge: Mapping[str, Amount]) -> list[tuple[Queue, str, Amount]]:
    """Queue on the way up, flavor, and by how much the queue would hold more than its share of that with this charge."""
    return [
        (step, flavor, more)
        for step in queue.path()
        for flavor, value in queue.tree.deciding(charge).items()
        if (more := _excess(step, flavor, value)) > 0
    ]


def borrows(queue: Queue, charge: Mapping[str, Amount]) -> bool:
    """Whether the queue holds more than a contested share already, in one of these flavors."""
    return over_contested_share(queue, dict.fromkeys(charge, 0)) is not None


def fits_share(queue: Queue, charge: Mapping[str, Amount]) -> bool:
    """Whether the charge alone, with nothing else of the queues in use, is within their shares."""
    return all(
        value <= max(step.deserved(flavor), step.fair.get(flavor, 0))
        for step in queue.path()
        for flavor, value in queue.tree.deciding(charge).items()
    )


def _over_contested(step: Queue, charge: Mapping[str, Amount]) -> bool:
    """Whether queues beside it hold or ask for a flavor of which it would hold more than its share."""
    over = [flavor for flavor, value in charge.items() if _excess(step, flavor, value) > 0]
    if not over:
        return False
    siblings = step.tree.roots if step.parent is None else step.parent.children
    return any(other.demand.get(flavor) for other in siblings if other is not step for flavor in over)


def _excess(step: Queue, flavor: str, value: Amount) -> Amount:
    """Beyond the share, with so much more; negative where some of it is left."""
    return step.used.get(flavor, 0) + value - max(step.deserved(flavor), step.fair.get(flavor, 0))


class Rule(StrEnum):
    """What allows it, or what stands in the way."""

    GUARANTEE = "gets what it deserves"
    FAIRNESS = "gets its fair share"
    SAME_QUEUE = "is the same queue"
    NOTHING_ASKED = "frees nothing of a flavor that is asked for"
    OVER_SHARE = "would hold more than its fair share"
    WITHIN_SHARE = "holds no more than its fair share"
    WITHIN_DESERVED = "holds no more than it deserves"
    BELOW_DESERVED = "would be left with less than it deserves"
    NO_FAIRER = "holds no more surplus for its weight than the other would"


@dataclass(frozen=True, slots=True)
class ReclaimVerdict:
    """True where it is allowed. `queue` is the reclaimer's branch, or the queue because of which it is not allowed."""

    allowed: bool
    rule: Rule
    queue: str
    flavor: str = ""

    def __bool__(self) -> bool:
        return self.allowed

    def __str__(self) -> str:
        return f"queue {self.queue} {self.rule.value}{f' of flavor {self.flavor}' if self.flavor else ''}"


def branches(reclaimer: Queue, victim: Queue) -> tuple[Queue, Queue]:
    """The two queues just below the common ancestor, the reclaimer's first. Of different leaves of one tree."""
    below = {step.parent: step for step in reclaimer.path()}
    for step in victim.path():
        if step.parent in below:
            return below[step.parent], step
    raise AssertionError("all paths end above the roots")


def path_to(branch: Queue, queue: Queue) -> Iterator[Queue]:
    """From the queue up to its branch."""
    step: Queue | None = queue
    while step is not None:
        yield step
        step = None if step is branch else step.parent


def may_reclaim(
    reclaimer: Queue, request: Mapping[str, Amount], victim: Queue, freed: Mapping[str, Amount]
) -> ReclaimVerdict:
    """Whether the victim queue must give up `freed` for `request`, both by flavor."""
    if reclaimer is victim:
        return ReclaimVerdict(False, Rule.SAME_QUEUE, victim.name)
    branch, victim_branch = branches(reclaimer, victim)
    wanted = sorted(wanted_of(reclaimer, request, freed))
    listed = not wanted or wanted[0] in reclaimer.tree.listed
    entitled = _entitlement(branch, reclaimer.tree.deciding(request) if listed else request)
    if not entitled:
        return entitled
    rule = entitled.rule
    if not wanted:
        return ReclaimVerdict(False, Rule.NOTHING_ASKED, victim.name)
    for queue in path_to(victim_branch, victim):
        if not any(queue.used.get(flavor, 0) > queue.deserved(flavor) for flavor in wanted):
            return ReclaimVerdict(False, Rule.WITHIN_DESERVED, queue.name, wanted[0])
        if rule is Rule.FAIRNESS:
            for flavor, value in sorted(freed.items()):
                if queue.used.get(flavor, 0) - value < queue.deserved(flavor):
                    return ReclaimVerdict(False, Rule.BELOW_DESERVED, queue.name, flavor)
    if rule is Rule.FAIRNESS:
        above = [flavor for flavor in wanted if victim_branch.used.get(flavor, 0) > victim_branch.fair.get(flavor, 0)]
        if not above:
            return ReclaimVerdict(False, Rule.WITHIN_SHARE, victim_branch.name, wanted[0])
        # Between priority bands the division has decided already: the lower band has what the higher one left over.
        if branch.spec.priority == victim_branch.spec.priority and all(
            branch.surplus(flavor, request[flavor]) >= victim_branch.surplus(flavor) for flavor in above
        ):
            return ReclaimVerdict(False, Rule.NO_FAIRER, victim_branch.name, above[0])
    return ReclaimVerdict(True, rule, branch.name)


def wanted_of(reclaimer: Queue, request: Mapping[str, Amount], freed: Mapping[str, Amount]) -> Mapping[str, Amount]:
    """What is freed of the flavors that are asked for: by these, and no others, the two queues are compared."""
    wanted = {flavor: value for flavor, value in freed.items() if value and request.get(flavor)}
    return reclaimer.tree.deciding(wanted)


def may_be_guaranteed(reclaimer: Queue, request: Mapping[str, Amount]) -> bool:
    """Whether the rule of guarantee allows the request against some victim: one of the queues on the way up deserves it."""
    deciding = reclaimer.tree.deciding(request)
    return bool(request) and any(
        all(step.used.get(flavor, 0) + value <= step.deserved(flavor) for flavor, value in deciding.items())
        for step in reclaimer.path()
    )


def _entitlement(branch: Queue, request: Mapping[str, Amount]) -> ReclaimVerdict:
    """By which rule the reclaimer's branch may have the request, if by any."""
    rule = Rule.GUARANTEE
    for flavor in sorted(request):
        after = branch.used.get(flavor, 0) + request[flavor]
        if after > branch.deserved(flavor):
            rule = Rule.FAIRNESS
            if after > branch.fair.get(flavor, 0):
                return ReclaimVerdict(False, Rule.OVER_SHARE, branch.name, flavor)
    return ReclaimVerdict(True, rule, branch.name)
