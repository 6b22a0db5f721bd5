"""Since when kube-scheduler could have bound the released pods of each gang.

The time in which a released pod must bind (`--gang-timeout`) counts from its claims' allocation; where no object says when that was,
from when this process first saw the pod released. A try that fails decides nothing: the scheduler may have seen the pod without
its gate before it saw the claim's allocation, and the next try binds it.
While kube-scheduler does not run, nothing binds and nothing is wrong with the node, so that time does not count: a released pod keeps
the PodScheduled condition of a gated one (reason SchedulingGated, written by the apiserver) until the scheduler tries it.
That is for kube-scheduler only. A pod that names another scheduler may name one that does not exist, and would hold its devices for
ever: its time begins `UNTRIED_MAX_S` after the allocation, tried or not.
Example: released at 0 s, scheduler back at 600 s, tried and refused at 601 s: with a timeout of 120 s rolled back at 721 s.

Keeps no more than this process saw; after a change of leaders a pod that was tried before counts from its allocation, or from now.
"""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api import names
from fairlead.controller.gangs.claims.allocation_times import known_allocation_time
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.controller.gangs.membership.members import Member

NEVER = float("inf")
UNTRIED_MAX_S = 480.0
"""Ten minutes in all with the usual `--gang-timeout`: longer than a scheduler takes to start again."""


def allocation_time(member: Member) -> float | None:
    """When the last of a member's claims was allocated, unix seconds; None where that is not known of one of them, or it has none."""
    claims = [each.claim for each in member.claims if each.claim is not None and each.allocated]
    times = [known_allocation_time(claim, (member.pod,)) for claim in claims]
    known = [at for at in times if at is not None]
    return max(known) if known and len(known) == len(times) else None


def other_scheduler(member: Member) -> str:
    """The scheduler that the pod names; "" where that is kube-scheduler's default profile."""
    name = member.pod.spec.scheduler_name
    return "" if name == names.DEFAULT_SCHEDULER else name


def tried_at(gang: Gang, before: Mapping[str, float], now: float) -> Mapping[str, float]:
    """By pod UID, unix seconds of the first try, before it `NEVER` or, with another scheduler, when its time begins; without entry where it was tried from the start.

    `before`: the last result for this gang. Where the time of its allocation is not known, a pod that was tried from the start has the
    time of the first look.
    """
    tried: dict[str, float] = {}
    for member in gang.released:
        if member.bound:
            continue
        if not member.tried and other_scheduler(member):
            allocated = allocation_time(member)
            latest = (now if allocated is None else allocated) + UNTRIED_MAX_S
            tried[member.uid] = min(before.get(member.uid, latest), latest)
        elif not member.tried:
            tried[member.uid] = NEVER
        elif member.uid in before or allocation_time(member) is None:
            tried[member.uid] = min(before.get(member.uid, now), now)
    return tried
