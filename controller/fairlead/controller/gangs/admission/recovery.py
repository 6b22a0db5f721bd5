"""The next step of an admission that is not under way in this process: complete, undo, roll back, or none.

Derived from claims and pods alone, so a new leader continues where the last one stopped. A claim reserved for a gated
pod is the trace of an admission that began; all claims of a gang are written before its first pod is released. Hence:
- Some members fully written, none released: undo. All written, or some released: complete, so that none runs alone.
- Of these members released that have no devices and none that has, and not all others written: those are rolled back, then undo.
- Released but not bound in time, or with another scheduler than kube-scheduler not even tried: the whole gang is evicted (rolled
  back); a surplus member, or one that replaces another, alone.
- Released but not bound, and a claim of it is being deleted: kube-scheduler binds no pod to it any more. Rolled back at once.
- An allocation without a reservation, of which no living pod refers to the claim: orphaned, to be cleared.
Example: of a gang of 4, the leader died after writing 3 members' claims. 0 released + 3 written < 4: undo those 3.

The time in which a released pod must bind (`--gang-timeout`) counts from its claims' allocation; where no object says when that was,
from when this process first saw the pod released. A try that fails decides nothing: the scheduler may have seen the pod without its
gate before it saw the claim's allocation, and the next try binds it. While kube-scheduler does not run, nothing binds and nothing is
wrong with the node, so that time does not count: a released pod keeps the PodScheduled condition of a gated one (reason
SchedulingGated, written by the apiserver) until the scheduler tries it. A pod that names another scheduler may name one that does not
exist, and would hold its devices forever: its time begins `UNTRIED_MAX_S` after the allocation, tried or not.
Example: released at 0 s, scheduler back at 600 s, tried and refused at 601 s: with a timeout of 120 s rolled back at 721 s.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fairlead.api import names
from fairlead.controller.gangs.claims.allocations import allocated_node, known_allocation_time, node_of, results
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.controller.gangs.membership.members import Member
from fairlead.kube import core, resource, timestamps

UNTRIED_S = 15.0  # from the allocation: much longer than kube-scheduler takes to try a pod, where it runs
UNTRIED_PLAIN_S = 60.0  # the same for a gang of one that is not reported otherwise: thousands at once are a backlog
STAMP_S = 1.0  # times of objects are whole seconds: what says 10:00:00 was allocated up to a second later
REFUSAL_MAX = 300  # characters of what kube-scheduler said
BINDING_CONDITIONS_S = 600.0  # kube-scheduler's own timeout for binding conditions


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """Release these members; their claims are written."""

    members: tuple[tuple[Member, str], ...]  # with the node of each


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """Remove reservations and allocations written for these gated members."""

    members: tuple[Member, ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RollBack:
    """Evict the released members: the gang did not start."""

    members: tuple[Member, ...]
    nodes: tuple[str, ...]  # to which members did not bind
    why: str
    refused: tuple[tuple[str, str], ...] = ()  # of these nodes those that kube-scheduler refused, and what it said


Step = Complete | Undo | RollBack


def next_step(
    gang: Gang, *, now: float, timeout_s: float, tried: Mapping[str, float], node_exists: Callable[[str], bool]
) -> Step | None:
    """`tried`: of `tried_at`."""
    begun = [member for member in gang.gated if member.admission_begun]
    if begun:
        return _half_written(gang, begun, now=now, timeout_s=timeout_s, node_exists=node_exists)
    unbound = [member for member in gang.released if not (member.bound or member.terminating)]
    lost = [member for member in unbound if member.leaving_claims]
    if lost:
        claim = f"{lost[0].pod.metadata.namespace}/{lost[0].leaving_claims[0]}"
        why = f"ResourceClaim {claim} of pod {lost[0].pod.metadata.name} is being deleted: no pod that uses it is bound"
        return _roll_back(gang, lost, (), why)
    late = [member for member in unbound if bind_deadline(member, timeout_s, tried) <= now]
    return _late(gang, late, timeout_s) if late else None


def _half_written(
    gang: Gang, begun: Sequence[Member], *, now: float, timeout_s: float, node_exists: Callable[[str], bool]
) -> Step:
    ready = [(member, node) for member in begun if (node := reserved_on(member, node_exists)) is not None]
    partial = [member for member in begun if all(member is not done for done, _ in ready)]
    if partial:
        return Undo(members=tuple(partial), why="only some of its claims were written")
    if gang.placed + len(ready) < gang.size:
        living = [member for member in gang.released if not member.terminating]
        if not living:
            return Undo(members=tuple(begun), why=f"only {len(ready)} of {gang.size} members were written")
        if all(_released_with(member, ready) for member in living):
            why = f"only {len(living)} of its members without devices were released"
            return RollBack(members=tuple(living), nodes=(), why=why)
    elif gang.released and all(bind_deadline(member, timeout_s, {}) <= now for member, _ in ready):
        return _late(gang, [member for member, _ in ready], timeout_s)
    return Complete(members=tuple(ready))


def _released_with(member: Member, ready: Iterable[tuple[Member, str]]) -> bool:
    """Whether a member without devices was released by the admission that wrote the claims of these, and not before it."""
    written = [at for other, _ in ready if (at := allocation_time(other)) is not None]
    released = member.released_at if member.without_devices else None
    return released is not None and bool(written) and released >= min(written)


def _late(gang: Gang, late: Sequence[Member], timeout_s: float) -> RollBack | Undo:
    at = [(member, node) for member in late if (node := node_of(member) or _any_node(member))]
    nodes = tuple(sorted({node for _, node in at}))
    pods = ", ".join(member.pod.metadata.name for member in late[:4]) + (" …" if len(late) > 4 else "")
    ignored = next((other_scheduler(m) for m in late if not m.tried and other_scheduler(m)), "")
    if ignored:  # no node is at fault
        why = (
            f"{len(late)} of its pods ({pods}) name scheduler {ignored!r}, which has not tried them within "
            f"{UNTRIED_MAX_S + timeout_s:.0f} s: start it, or remove spec.schedulerName"
        )
        return _roll_back(gang, late, (), why)
    why = f"{len(late)} of its pods ({pods}) did not bind to {', '.join(nodes) or 'a node'} within {timeout_s:.0f} s"
    refused = {node: said for member, node in at if (said := _refusal(member.pod))}
    step = _roll_back(gang, late, nodes, why)
    return replace(step, refused=tuple(sorted(refused.items()))) if isinstance(step, RollBack) else step


def _refusal(pod: core.Pod) -> str:
    """What kube-scheduler said of a pod that it takes to fit no node; "" where it did not say that."""
    condition = pod.condition("PodScheduled")
    if condition is None or condition.status != "False" or condition.reason != "Unschedulable":
        return ""
    if condition.message.startswith(names.AWAITING_NODES):
        return ""
    return condition.message[:REFUSAL_MAX] or "it is unschedulable"


def _roll_back(gang: Gang, failed: Sequence[Member], nodes: tuple[str, ...], why: str) -> RollBack | Undo:
    """Roll back the whole gang, or `failed` alone where the others are enough, or had started before."""
    bound = [member for member in gang.released if member.bound]
    alone = len(bound) >= gang.together or _joined_later(failed, bound)
    members = tuple(failed) if alone else gang.released
    members = tuple(member for member in members if member in gang.released and not member.terminating)
    if not members:
        return Undo(members=tuple(failed), why=why)
    return RollBack(members=members, nodes=nodes, why=why)


def _joined_later(late: Sequence[Member], bound: Sequence[Member]) -> bool:
    """Whether these replace others of a gang that ran: their claims were allocated after a member had started.

    Of members that are admitted together all claims are written before the first is released.
    """
    starts = [timestamps.parse(start) for member in bound if (start := member.pod.status.start_time)]
    times = [
        known_allocation_time(each.claim, (member.pod,))
        for member in late
        for each in member.claims
        if each.claim is not None and each.allocated
    ]
    times += [member.released_at for member in late if member.without_devices]
    return bool(starts) and bool(times) and all(at is not None and at > min(starts) for at in times)


def reserved_on(member: Member, node_exists: Callable[[str], bool]) -> str | None:
    """The existing node of all the member's claims, if all are allocated and reserved for it; else None."""
    if not member.fully_reserved or any(pod_claim.leaving for pod_claim in member.claims):
        return None
    nodes = {allocated_node(pod_claim.claim) for pod_claim in member.claims if pod_claim.claim is not None}
    nodes.discard(None)
    node = nodes.pop() if len(nodes) == 1 else None
    return node if node is not None and node_exists(node) else None


def _any_node(member: Member) -> str | None:
    return next((node for each in member.claims if each.claim and (node := allocated_node(each.claim))), None)


def bind_deadline(member: Member, timeout_s: float, tried: Mapping[str, float]) -> float:
    """By when the member must be bound, unix seconds; inf while kube-scheduler itself has not tried it.

    Counted from the allocation, which outlives a leader, or from what the bind clock says (`tried`) where that was later.
    """
    claims = [each.claim for each in member.claims if each.claim is not None and each.allocated]
    allocated = allocation_time(member)
    if allocated is None:
        began = tried.get(member.uid, NEVER)
    else:
        began = max(allocated + STAMP_S, tried.get(member.uid, allocated))
    slow = any(result.binding_conditions for claim in claims for result in results(claim))
    return began + timeout_s + (BINDING_CONDITIONS_S if slow else 0.0)


def untried(gang: Gang, now: float) -> tuple[int, float | None]:
    """Released members that kube-scheduler should have tried by now, and when the next should have been; unix seconds."""
    after_s = UNTRIED_PLAIN_S if gang.plain else UNTRIED_S
    due = [bind_deadline(member, after_s, {}) for member in gang.released if not member.bound and not member.tried]
    return sum(at <= now for at in due), min((at for at in due if at > now), default=None)


def next_deadline(gang: Gang, timeout_s: float, tried: Mapping[str, float]) -> float | None:
    """When time alone may change the gang's next step; unix seconds."""
    waiting = [m for m in gang.released if not m.bound] + [m for m in gang.gated if m.admission_begun]
    times = [time for member in waiting if (time := bind_deadline(member, timeout_s, tried)) != float("inf")]
    return min(times, default=None)


def orphaned_allocations(
    claims: Iterable[resource.ResourceClaim],
    *,
    drivers: tuple[str, ...],
    used: Callable[[resource.ResourceClaim], bool],
) -> list[resource.ResourceClaim]:
    """Claims with devices of these drivers, without a reservation, and not `used` by a living pod."""
    return [
        claim
        for claim in claims
        if claim.status.allocation is not None
        and not claim.status.reserved_for
        and any(result.driver in drivers for result in results(claim))
        and not used(claim)
    ]


NEVER = float("inf")
UNTRIED_MAX_S = 480.0
"""Ten minutes in all with the usual `--gang-timeout`: longer than a scheduler takes to start again."""


def allocation_time(member: Member) -> float | None:
    """When the last of a member's claims was allocated, unix seconds; None where that is not known of one of them, or it has none.

    Of a member without devices: when it was released.
    """
    if member.without_devices:
        return member.released_at
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
