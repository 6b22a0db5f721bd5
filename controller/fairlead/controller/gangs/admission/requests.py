"""From a pending gang to the engine's `GangRequest`: which members to place now, with which claims.

The engine places all members of a request or none. A gang that does not run requests as many as have to run together
(`Gang.together`), and each further one by itself. To a gang that runs each waiting member is added by itself, also where it is
short: a member that replaces another waits neither for others to be recreated nor for their places. A subgroup of which nothing
runs joins whole. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from fairlead.api import names
from fairlead.api.models import Models, worker_group
from fairlead.controller.gangs.claims.allocations import node_of, pod_ref
from fairlead.controller.gangs.claims.quotas import Classes, admission_charge
from fairlead.controller.gangs.membership.gangs import Gang, created_s
from fairlead.controller.gangs.membership.members import GangProblem, Member, PodClaim
from fairlead.engine.types.gangs import ClaimRequest, GangRequest, Hold, PendingMember, PlacedMember, RefusedNode
from fairlead.engine.types.pods import Namespaces, PodNeeds
from fairlead.engine.types.reasons import Code
from fairlead.kube.spec_key import spec_key

AWAIT_CLAIMS_S = 2.0
SERVICES = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "LeaderWorkerSet"})
POOLS_MAX = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class GangRecord:
    """What is known of a gang beyond its pods: from its Gang object, and from failures in this term."""

    uid: str = ""  # of the Gang object
    queued_since: float | None = None  # unix seconds, of an incarnation that was evicted or rolled back
    avoid_nodes: tuple[str, ...] = ()  # it failed there
    refused: tuple[RefusedNode, ...] = ()  # kube-scheduler refused its pods there
    preemptor: bool = False  # others were evicted for it
    hold: Hold | None = None  # of its Gang object

    def uid_of(self, gang: Gang) -> str:
        return self.uid or min(member.uid for member in gang.members)

    def created(self, gang: Gang) -> float:
        """The gang's age for every order: of its oldest pod, or of an earlier incarnation."""
        return gang.created if self.queued_since is None else min(self.queued_since, gang.created)


def blocking_problem(gang: Gang) -> GangProblem | None:
    """Why the gang is not requested now, the gravest problem first; None when it can be."""
    problems = [*gang.problems, *(problem for member in gang.gated for problem in member.problems)]
    if problems:
        return next((problem for problem in problems if problem.code is Code.INVALID), problems[0])
    if gang.started:
        return None
    missing = gang.size - gang.present
    exist = f"{gang.present} of {gang.size} members exist"
    failed = gang.failed_job
    if failed is not None:
        text = f"{failed.ended}; it makes no more pods: {exist}; delete it and create it again"
        return GangProblem(code=Code.NO_MORE_PODS, message=text)
    if missing <= 0:
        return None
    word = "member is" if missing == 1 else "members are"
    at_once = sum(job.at_once for job in gang.jobs)
    limit = ""
    if gang.jobs and at_once < gang.together:
        runs = ", ".join(f"{job.name} runs {job.at_once}" for job in gang.jobs[:4])
        limit = f" (of its Jobs {runs} pods at once: raise parallelism, or lower the size, unless others make the rest)"
    leaving = [member.pod.metadata.name for member in gang.released if member.terminating]
    if leaving:
        limit = f" (pod {leaving[0]} of before is leaving still: its controller may wait for that)"
    elif _made_in_order(gang):
        limit = " (a StatefulSet makes a pod when the one before is ready: set podManagementPolicy: Parallel)"
    return GangProblem(code=Code.GATHERING, message=f"{exist}; {missing} {word} still to be created{limit}")


def _made_in_order(gang: Gang) -> bool:
    """Whether its pods are made one by one: a StatefulSet's, of which one waits. A LeaderWorkerSet makes its own StatefulSets Parallel."""
    kinds = {owner.kind for member in gang.gated if (owner := member.pod.metadata.controller) is not None}
    of_lws = any(names.LWS_NAME in member.pod.metadata.labels for member in gang.gated)
    return kinds == {"StatefulSet"} and len(gang.gated) == 1 and not of_lws


def claims_awaited_until(gang: Gang) -> float:
    """Until when the claim controller's claims are awaited, unix seconds; 0 where none is missing.

    For an entry that names a template it makes a claim, a moment after the pod was created; one made here before that would
    be the second. It may be away, or far behind: so not for longer than `AWAIT_CLAIMS_S`.
    """
    without = (
        member for member in gang.gated if any(claim.claim is None and claim.source is None for claim in member.claims)
    )
    return max((created_s(member.pod) + AWAIT_CLAIMS_S for member in without), default=0.0)


def members_to_place(gang: Gang) -> tuple[Member, ...]:
    """As many as have to run together, those without devices first, else one; none whose admission has begun."""
    waiting = [member for member in gang.gated if not member.admission_begun]
    if gang.subgroups:
        waiting.sort(key=lambda member: gang.ranks.get(member.uid, -1))
    if any(member.without_devices for member in waiting):
        waiting.sort(key=lambda member: not member.without_devices)
    if gang.started and waiting:
        return _joining(gang, waiting)
    needed = gang.size - gang.placed - (len(gang.gated) - len(waiting))
    return tuple(waiting[: max(1, needed)])


def _joining(gang: Gang, waiting: list[Member]) -> tuple[Member, ...]:
    """One member; of a subgroup of which none runs all, since alone it might choose a domain that has no room for the others."""
    name = gang.subgroups.get(waiting[0].uid)
    if name is None or any(gang.subgroups.get(member.uid) == name for member in gang.released):
        return (waiting[0],)
    return tuple(member for member in waiting if gang.subgroups.get(member.uid) == name)


def gang_request(
    gang: Gang,
    record: GangRecord,
    namespace_labels: Mapping[str, str],
    *,
    limited: frozenset[str] = frozenset(),
    classes: Classes | None = None,
    namespaces: Namespaces | None = None,
    models: Models | None = None,
    ends_by: float | None = None,
) -> GangRequest | None:
    """None when no member waits. `ends_by`: when its workload ends it, unix seconds. `models`: what counts where its members say nothing; None: what its queue says. `limited`: what ResourceQuotas of the namespace limit. `namespaces`: those that a selector selects."""
    members = members_to_place(gang)
    if not members:
        return None
    there = [(node, member.uid) for member in gang.released if not member.terminating and (node := node_of(member))]
    placed = [node for node, _ in there]
    return GangRequest(
        namespace=gang.namespace,
        name=gang.name,
        uid=record.uid_of(gang),
        # The engine counts living pods only, and a gang that runs may be short while members are replaced.
        size=max(1, min(gang.together, len(members) + len(placed))),
        members=tuple(
            pending_member(gang, member, _needs(member, namespaces), (each.key for each in member.claims))
            for member in members
        ),
        claims=_claim_requests(gang, members),
        queue=gang.queue,
        namespace_labels=namespace_labels,
        priority=gang.priority,
        created=record.created(gang),
        topology=gang.topology,
        models=gang.models or models,
        align=gang.align,
        subgroup_topology=gang.subgroup_topology,
        placed_nodes=tuple(sorted(placed)),
        placed_subgroups=tuple(sorted((gang.subgroups[uid], node) for node, uid in there if uid in gang.subgroups)),
        placed_claims=placed_claims(member for member in gang.released if not member.terminating),
        placed_members=placed_members(gang) if gang.align else (),
        avoid=record.avoid_nodes,
        refused=record.refused,
        preempts=gang.preempts,
        preemptor=record.preemptor,
        hold=record.hold,
        run_s=_run_s(members),
        endless=endless(gang),
        ends_by=ends_by,
        quota_charge=admission_charge(members, limited, classes or {}),
    )


def pending_member(gang: Gang, member: Member, needs: PodNeeds, claims: Iterable[str]) -> PendingMember:
    """`claims`: keys of the request's claims that are the member's."""
    return PendingMember(
        pod=pod_ref(member),
        needs=needs,
        claims=tuple(claims),
        labels=member.pod.metadata.labels,
        rank=gang.ranks.get(member.uid),
        subgroup=gang.subgroups.get(member.uid, ""),
        worker_group=worker_group(member.pod.metadata.labels),
    )


def placed_claims(members: Iterable[Member]) -> tuple[tuple[str, ClaimRequest], ...]:
    """What these members hold, by worker group: of each kind of claim a few on several nodes, since some node may be lost."""
    kept: dict[tuple[str, bytes], dict[str, ClaimRequest]] = {}
    for member in members:
        group = worker_group(member.pod.metadata.labels)
        for each in member.claims:
            claim = _allocated(each)
            if claim is None or claim.allocation is None or not claim.allocation.devices.results:
                continue
            by_pool = kept.setdefault((group, spec_key(each.spec)), {})
            pool = claim.allocation.devices.results[0].pool
            if pool not in by_pool and len(by_pool) < POOLS_MAX:
                by_pool[pool] = claim
    return tuple((group, claim) for (group, _), by_pool in kept.items() for claim in by_pool.values())


def placed_members(gang: Gang) -> tuple[PlacedMember, ...]:
    """What the released members of an aligned gang hold."""
    return tuple(
        PlacedMember(
            claims=tuple(claim for each in member.claims if (claim := _allocated(each)) is not None),
            subgroup=gang.subgroups.get(member.uid, ""),
            worker_group=worker_group(member.pod.metadata.labels),
        )
        for member in gang.released
        if not member.terminating
    )


def _allocated(each: PodClaim) -> ClaimRequest | None:
    """A member's claim with its devices; None while it has none."""
    claim = each.claim
    if claim is None or claim.status.allocation is None:
        return None
    meta = claim.metadata
    return ClaimRequest(
        key=meta.uid, namespace=meta.namespace, name=meta.name, spec=each.spec, allocation=claim.status.allocation
    )


def _needs(member: Member, namespaces: Namespaces | None) -> PodNeeds:
    needs = PodNeeds.of(member.pod, namespaces)
    return replace(needs, volumes=member.volumes) if member.volumes else needs


def _claim_requests(gang: Gang, members: Iterable[Member]) -> tuple[ClaimRequest, ...]:
    """One per claim, in the order of members; members may share a claim."""
    found: dict[str, ClaimRequest] = {}
    for member in members:
        for pod_claim in member.claims:
            claim = pod_claim.claim
            found.setdefault(
                pod_claim.key,
                ClaimRequest(
                    key=pod_claim.key,
                    namespace=gang.namespace,
                    name=_claim_name(member, pod_claim),
                    spec=pod_claim.spec,
                    allocation=claim.status.allocation if claim else None,
                ),
            )
    return tuple(found.values())


def _claim_name(member: Member, pod_claim: PodClaim) -> str:
    """Also of a claim that does not exist yet."""
    if pod_claim.claim is not None:
        return pod_claim.claim.metadata.name
    return pod_claim.source.claim if pod_claim.source else f"{member.pod.metadata.name}-{pod_claim.name}"


def _run_s(members: Iterable[Member]) -> float | None:
    """The longest activeDeadlineSeconds; None where a member has none."""
    longest = 0.0
    for member in members:
        limit = member.pod.spec.active_deadline_seconds
        if limit is None:
            return None
        longest = max(longest, float(limit))
    return longest


def endless(gang: Gang) -> bool:
    """Whether each of its pods is started again when it ends, and made again when it goes."""
    return all(
        member.pod.spec.restart_policy == "Always"
        and (owner := member.pod.metadata.controller) is not None
        and owner.kind in SERVICES
        for member in gang.members
    )


def same_request(one: GangRequest | None, other: GangRequest | None) -> bool:
    """Whether two requests get the same answer: a claim created meanwhile has another key but changes nothing."""
    if one is None or other is None:
        return one is other
    return _without_keys(one) == _without_keys(other)


def _without_keys(request: GangRequest) -> tuple[object, ...]:
    return (
        replace(request, uid="", claims=(), members=()),
        [
            (member.pod, member.needs, member.labels, member.rank, member.subgroup, member.worker_group)
            for member in request.members
        ],
        [(claim.spec, claim.allocation) for claim in request.claims],
    )
