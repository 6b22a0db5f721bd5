"""From gangs as the cluster shows them to what the core is asked: who waits, who holds what.

Exists so that the core's snapshot is made in one place. Pure. A gang with more waiting members than it needs asks for
`size` of them first and for the others one by one, since the core places all members of a request or none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from fairlead.controller.gangs import evictions, release
from fairlead.controller.gangs.gangs import Gang, created_s
from fairlead.controller.gangs.members import Member, Problem
from fairlead.engine.types.gangs import ClaimRequest, GangRequest, RunningGang, RunningMember
from fairlead.engine.types.gangs import PendingMember as Asked
from fairlead.engine.types.pod_needs import PodNeeds
from fairlead.engine.types.reasons import Code
from fairlead.engine.types.references import PodRef
from fairlead.kube import resource, timestamps


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is remembered of a gang beyond its pods: its Gang object, and where it failed."""

    uid: str = ""
    created: float | None = None
    avoid: tuple[str, ...] = ()
    preemptor: bool = False  # others were evicted for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is known of a running gang beyond its pods and claims. Leaving are the UIDs of pods decided to be evicted."""

    leaving: Collection[str] = ()
    spared: bool = False  # could not be evicted a moment ago: no victim for now
    guards: Callable[[Member], tuple[str, ...]] | None = None
    owner_ends_by: Callable[[Member], float | None] | None = None


def blocked(gang: Gang) -> Problem | None:
    """Why the gang cannot be planned for now: the gravest problem first; None when it can."""
    problems = [*gang.problems, *(problem for member in gang.gated for problem in member.problems)]
    if problems:
        return next((problem for problem in problems if problem.code is Code.INVALID), problems[0])
    if gang.present < gang.size:
        missing = gang.size - gang.present
        word = "member is" if missing == 1 else "members are"
        return Problem(
            code=Code.GATHERING,
            message=f"{gang.present} of {gang.size} members exist; {missing} {word} still to be created",
        )
    return None


def wanted(gang: Gang) -> tuple[Member, ...]:
    """The members to ask for now."""
    waiting = [member for member in gang.gated if not member.touched]
    needed = gang.size - gang.placed - (len(gang.gated) - len(waiting))
    return tuple(waiting[: max(1, needed)])


def request(gang: Gang, standing: Standing, namespace_labels: Mapping[str, str]) -> GangRequest | None:
    """None when nobody waits."""
    members = wanted(gang)
    if not members:
        return None
    claims: dict[str, ClaimRequest] = {}
    asked: list[Asked] = []
    for member in members:
        for entry in member.entries:
            claims.setdefault(
                entry.key,
                ClaimRequest(
                    key=entry.key,
                    namespace=gang.namespace,
                    name=entry.claim.metadata.name if entry.claim else f"{member.pod.metadata.name}-{entry.name}",
                    spec=entry.spec,
                    allocation=entry.claim.status.allocation if entry.claim else None,
                ),
            )
        asked.append(Asked(pod=ref(member), needs=PodNeeds.of(member.pod), claims=tuple(e.key for e in member.entries)))
    placed = [node for member in gang.released if not member.leaving and (node := node_of(member))]
    return GangRequest(
        namespace=gang.namespace,
        name=gang.name,
        uid=standing.uid or min(member.uid for member in gang.members),
        size=gang.size,
        members=tuple(asked),
        claims=tuple(claims.values()),
        queue=gang.queue,
        namespace_labels=namespace_labels,
        priority=gang.priority,
        created=gang.created if standing.created is None else min(standing.created, gang.created),
        topology=gang.topology,
        placed_nodes=tuple(sorted(placed)),
        avoid=standing.avoid,
        preemptor=standing.preemptor,
        run_s=_run_s(members),
    )


def _run_s(members: Iterable[Member]) -> float | None:
    """The longest that one of them can run by its own deadline; None where one promises no end."""
    longest = 0.0
    for member in members:
        limit = member.pod.spec.active_deadline_seconds
        if limit is None:
            return None
        longest = max(longest, float(limit))
    return longest


def same(one: GangRequest | None, other: GangRequest | None) -> bool:
    """Whether two requests get the same answer: a claim made meanwhile, under another key, changes nothing."""
    if one is None or other is None:
        return one is other
    return _gist(one) == _gist(other)


def _gist(asked: GangRequest) -> tuple[object, ...]:
    return (
        dataclasses.replace(asked, uid="", claims=(), members=()),
        [(member.pod, member.needs) for member in asked.members],
        [(claim.spec, claim.allocation) for claim in asked.claims],
    )


def running(
    gang: Gang, standing: Standing, namespace_labels: Mapping[str, str], around: Surroundings | None = None
) -> RunningGang | None:
    """What the gang holds; None when it holds nothing."""
    claims = held(gang.members)
    if not claims:
        return None
    around = around or Surroundings()
    started = {uid: allocated_s(claim) for uid, claim in claims.items()}
    holders = [*gang.released, *(member for member in gang.members if member.pod.finished and member.entries)]
    members = () if around.spared else tuple(_running_member(member, started, around) for member in holders)
    ends = [_ends_by(member, around) for member in gang.released if not member.leaving]
    return RunningGang(
        namespace=gang.namespace,
        name=gang.name,
        uid=standing.uid or min(member.uid for member in gang.members),
        queue=gang.queue,
        claims=tuple(sorted(claims)),
        namespace_labels=namespace_labels,
        priority=gang.priority,
        created=gang.created if standing.created is None else min(standing.created, gang.created),
        started=min(started.values()),
        size=gang.size,
        members=members,
        min_runtime_s=gang.min_runtime_s,
        checkpoint_grace_s=gang.checkpoint_grace_s,
        ends_by=None if None in ends else max((end for end in ends if end is not None), default=None),
    )


def _running_member(member: Member, started: Mapping[str, float], around: Surroundings) -> RunningMember:
    uids = tuple(e.claim.metadata.uid for e in member.entries if e.claim and e.claim.metadata.uid in started)
    return RunningMember(
        pod=ref(member),
        node=node_of(member) or "",
        claims=uids,
        started=max((started[uid] for uid in uids), default=created_s(member.pod)),
        leaving=member.leaving
        or member.pod.finished
        or member.uid in around.leaving
        or evictions.mark_of(member.pod) is not None,
        guarded_by=around.guards(member) if around.guards else (),
    )


def _ends_by(member: Member, around: Surroundings) -> float | None:
    """When the cluster will end this pod at the latest: by its own deadline or its Job's."""
    limit, began = member.pod.spec.active_deadline_seconds, member.pod.status.start_time
    own = timestamps.parse(began) + limit if limit is not None and began else None
    owners = around.owner_ends_by(member) if around.owner_ends_by else None
    return min((end for end in (own, owners) if end is not None), default=None)


def held(members: Iterable[Member]) -> dict[str, resource.ResourceClaim]:
    """The claims, by UID, that are allocated and reserved for one of these members."""
    found: dict[str, resource.ResourceClaim] = {}
    for member in members:
        for entry in member.entries:
            if entry.claim is not None and entry.allocated and entry.reserved_for(member.uid):
                found.setdefault(entry.claim.metadata.uid, entry.claim)
    return found


def ref(member: Member) -> PodRef:
    return PodRef(member.pod.metadata.namespace, member.pod.metadata.name, member.uid)


def node_of(member: Member) -> str | None:
    """Where a member runs, or is about to."""
    return member.pod.spec.node_name or release.pinned_node(member.pod)


def allocated_s(claim: resource.ResourceClaim) -> float:
    stamp = claim.status.allocation.allocation_timestamp if claim.status.allocation else None
    return timestamps.parse(stamp) if stamp else 0.0


def allocated_node(claim: resource.ResourceClaim) -> str | None:
    """The one node that the allocation names; None when it names none or several."""
    selector = claim.status.allocation.node_selector if claim.status.allocation else None
    if selector is None or len(selector.node_selector_terms) != 1:
        return None
    for field in selector.node_selector_terms[0].match_fields:
        if field.key == "metadata.name" and field.operator == "In" and len(field.values) == 1:
            return field.values[0]
    return None
