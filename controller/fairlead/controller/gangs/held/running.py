"""From a gang that holds devices to the engine's `RunningGang`: what its queue is charged for, and what can be evicted. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from fairlead.api.bounds import NO_BOUNDS, Bounds
from fairlead.api.models import Models
from fairlead.controller.gangs.admission.requests import GangRecord, endless, pending_member, placed_claims
from fairlead.controller.gangs.claims.allocations import allocation_times, held_claims, node_of, pod_ref
from fairlead.controller.gangs.evictions import eviction_marks
from fairlead.controller.gangs.evictions.moved import unpinned
from fairlead.controller.gangs.held.leaving import leaving_since
from fairlead.controller.gangs.membership.gangs import Gang, created_s
from fairlead.controller.gangs.membership.members import Member
from fairlead.engine.types.gangs import ClaimRequest, GangRequest, IdleSpan, PendingMember, RunningGang, RunningMember
from fairlead.engine.types.plan import Admission
from fairlead.engine.types.pods import PodNeeds
from fairlead.kube import core, timestamps


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningContext:
    """What is known of a running gang beyond its pods and claims."""

    evicting: Collection[str] = ()  # UIDs of pods whose eviction is decided but not yet marked on them
    not_evictable: bool = False  # an eviction failed a moment ago: no victim for now
    budgets_of: Callable[[Member], tuple[str, ...]] = lambda _: ()  # names of its PodDisruptionBudgets
    job_deadline: Callable[[Member], float | None] = lambda _: None  # unix seconds
    bounds: Bounds = NO_BOUNDS  # of its namespace
    idle: IdleSpan | None = None  # where its queue asks for that
    models: Models | None = None  # what counts where its members say nothing; None: what its queue says
    movable: bool = False  # its queue lets gangs move that do not say so themselves
    restart_s: float | None = None  # from its admission until it ran, in this run and earlier ones
    volumes_of: Callable[[Member], tuple[core.NodeSelector, ...] | None] = lambda _: ()  # None: not ready
    running_since: float | None = None  # unix seconds: of an earlier member of this run, which was replaced since


def running_gang(
    gang: Gang, record: GangRecord, namespace_labels: Mapping[str, str], context: RunningContext
) -> RunningGang | None:
    """None when the gang holds nothing."""
    started = allocation_times(gang.members)
    if not started:
        return None
    holders = [*gang.released, *(member for member in gang.members if member.pod.finished and member.claims)]
    evictable = () if context.not_evictable else holders
    evicted = {member.uid: mark.at for member, mark in eviction_marks.marked(gang)}
    going = evicted.keys() | set(context.evicting)
    started_before = context.running_since
    ends = [_ends_by(member, context) for member in gang.released if not member.terminating]
    return RunningGang(
        namespace=gang.namespace,
        name=gang.name,
        uid=record.uid_of(gang),
        queue=gang.queue,
        claims=tuple(sorted(started)),
        namespace_labels=namespace_labels,
        priority=gang.priority,
        created=record.created(gang),
        started=min(*started.values(), started_before) if started_before else min(started.values()),
        size=max(1, gang.together),
        members=tuple(_running_member(member, started, context, going, evicted) for member in evictable),
        min_runtime_s=gang.min_runtime_s,
        checkpoint_grace_s=gang.checkpoint_grace_s,
        endless=endless(gang),
        ends_by=None if None in ends else max((end for end in ends if end is not None), default=None),
        bounds=context.bounds,
        idle=context.idle,
        movable=gang.movable,
        relocation=_relocation(gang, record, namespace_labels, context),
        checkpointed=gang.checkpointed,
        restart_s=context.restart_s,
        hold=record.hold,
        pods=tuple(member.uid for member in holders) if context.not_evictable else (),
    )


def _relocation(
    gang: Gang, record: GangRecord, namespace_labels: Mapping[str, str], context: RunningContext
) -> GangRequest | None:
    """What its pods would ask for if they were made again. None: it may not move, or is not whole, or shares claims."""
    if not (context.movable if gang.movable is None else gang.movable) or context.not_evictable:
        return None
    members = gang.released
    uids = {member.uid for member in members}
    if gang.gated or gang.placed < gang.size or not all(member.owner for member in members):
        return None
    found: list[PendingMember] = []
    wanted: dict[str, ClaimRequest] = {}
    for member in members:
        node = node_of(member)
        volumes = context.volumes_of(member) if member.pod.spec.volumes else ()
        has_place = member.fully_reserved or member.without_devices
        if node is None or volumes is None or not has_place or member.terminating:
            return None
        for each in member.claims:
            assert each.claim is not None, "it is reserved"
            if {user.uid for user in each.claim.status.reserved_for} - uids:
                return None
            key = f"move/{each.key}"
            wanted[key] = ClaimRequest(key=key, namespace=gang.namespace, name=each.claim.metadata.name, spec=each.spec)
        needs = PodNeeds.of(member.pod)
        needs = replace(needs, affinity=unpinned(needs.affinity, node), volumes=volumes)
        found.append(pending_member(gang, member, needs, (f"move/{each.key}" for each in member.claims)))
    return GangRequest(
        namespace=gang.namespace,
        name=gang.name,
        uid=record.uid_of(gang),
        size=len(found),
        members=tuple(found),
        claims=tuple(wanted.values()),
        queue=gang.queue,
        namespace_labels=namespace_labels,
        priority=gang.priority,
        created=record.created(gang),
        topology=gang.topology,
        subgroup_topology=gang.subgroup_topology,
        models=gang.models or context.models,
        align=gang.align,
        placed_claims=placed_claims(members),
    )


def admitted_gang(
    gang: Gang, admission: Admission, record: GangRecord, namespace_labels: Mapping[str, str], now: float
) -> RunningGang:
    """What a gang holds while its admission is written, earlier claims included. Without members: no victim yet."""
    admitted = {assigned.pod.uid for assigned in admission.assignments}
    earlier = held_claims(member for member in gang.members if member.uid not in admitted)
    return RunningGang(
        namespace=gang.namespace,
        name=gang.name,
        uid=admission.uid,
        queue=admission.queue or gang.queue,
        claims=tuple(sorted({claim.key for claim in admission.claims} | set(earlier))),
        namespace_labels=namespace_labels,
        priority=gang.priority,
        created=record.created(gang),
        started=now,
        size=max(1, gang.together),
        min_runtime_s=gang.min_runtime_s,
        checkpoint_grace_s=gang.checkpoint_grace_s,
        pods=tuple(sorted(admitted | {member.uid for member in gang.released})),
    )


def _running_member(
    member: Member,
    started: Mapping[str, float],
    context: RunningContext,
    going: Collection[str],
    evicted: Mapping[str, float],
) -> RunningMember:
    """`going`: UIDs of pods that are to be evicted; `evicted`: when, where that is set."""
    uids = tuple(
        pod_claim.claim.metadata.uid
        for pod_claim in member.claims
        if pod_claim.claim and pod_claim.claim.metadata.uid in started
    )
    return RunningMember(
        pod=pod_ref(member),
        node=node_of(member) or "",
        claims=uids,
        started=max((started[uid] for uid in uids), default=created_s(member.pod)),
        leaving=member.uid in going or member.terminating or member.pod.finished,
        leaving_since=leaving_since(member.pod),
        evicted_at=evicted.get(member.uid),
        done=member.pod.status.phase == "Succeeded",
        guarded_by=context.budgets_of(member),
    )


def _ends_by(member: Member, context: RunningContext) -> float | None:
    """When the cluster will end this pod at the latest: by its own activeDeadlineSeconds or its Job's."""
    limit, began = member.pod.spec.active_deadline_seconds, member.pod.status.start_time
    own = timestamps.parse(began) + limit if limit is not None and began else None
    return min((end for end in (own, context.job_deadline(member)) if end is not None), default=None)
