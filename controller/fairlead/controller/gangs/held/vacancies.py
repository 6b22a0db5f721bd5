"""Places of pods that are gone: held for members that replace them, or awaited until the claim controller frees them. Pure.

A member of a running gang that fails, is evicted alone or is deleted leaves a vacancy, as long as fewer members run than have to run
together. Its node and devices count as taken and are charged to the gang's queue, until the member that replaces it asks for a
place (`controller.commit.places`).

A claim that is still allocated though its pod is gone is a leftover: between the pod's deletion and the claim controller's write
nothing else shows that its devices come free without an eviction, and a second gang would be evicted for the same beneficiary.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from fairlead.controller.gangs.claims.allocations import allocated_at, node_of, pod_ref
from fairlead.controller.gangs.evictions import eviction_marks
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.gangs.membership.members import Member
from fairlead.engine.types.gangs import RunningGang, RunningMember
from fairlead.engine.types.values import PodRef
from fairlead.kube import core, resource


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacancy:
    """`claims` are the member's own, as they were allocated."""

    member: Member
    node: str
    claims: tuple[resource.ResourceClaim, ...]

    @property
    def uid(self) -> str:
        return self.member.uid


def vacancy_of(member: Member) -> Vacancy | None:
    """The place of a member that runs; None where it has none, or shares its devices with others."""
    node = node_of(member)
    claims = tuple(each.claim for each in member.claims if each.claim is not None)
    has_place = member.fully_reserved or member.without_devices
    if node is None or not has_place or any(len(claim.status.reserved_for) > 1 for claim in claims):
        return None
    return Vacancy(member=member, node=node, claims=claims)


def short_of(gang: Gang) -> int:
    """How many members a running gang lacks; 0 for one that does not run or is on its way out."""
    if not gang.started or any(mark.whole for _, mark in eviction_marks.marked(gang)):
        return 0
    return max(0, gang.together - len(gang.running))


def unbound(gang: Gang) -> int:
    """As `short_of`, but a member counts from when it is bound: until then it may be rolled back again."""
    return short_of(gang) or (sum(not member.bound for member in gang.running) if gang.started else 0)


def more_pods_come(gang: Gang) -> bool:
    """Whether members wait, or the gang's Jobs make more than run. Of other workloads that is not known: then not."""
    if gang.gated:
        return True
    owners = {member.owner for member in gang.running}
    jobs = [job for job in gang.jobs if not job.ended]
    return owners <= {job.uid for job in jobs} and sum(job.at_once for job in jobs) > len(gang.running)


def may_be_replaced(gang: Gang) -> bool:
    """Whether something makes another pod in the place of one that ended."""
    return all(member.owner for member in gang.running) and gang.failed_job is None


def overdue_text(gang: Gang, timeout_s: float) -> str:
    lacking = short_of(gang)
    were = "was" if lacking == 1 else "were"
    return f"{lacking} of its {gang.together} members {were} not replaced within {timeout_s:.0f} s"


def with_vacancies(
    running: RunningGang, vacancies: Sequence[Vacancy], hurt: Container[str] = frozenset()
) -> RunningGang:
    """As the engine sees it while nothing asks for these places: the gang holds them.

    `hurt` are UIDs of pods whose device broke: the place is of no use, and its member is gone or going.
    """
    by_uid = {vacancy.uid: vacancy for vacancy in vacancies}
    members = [
        replace(member, leaving=member.pod.uid in hurt) if member.pod.uid in by_uid else member
        for member in running.members
    ]
    present = {member.pod.uid for member in members}
    members += [
        replace(_held_member(vacancy), leaving=uid in hurt) for uid, vacancy in by_uid.items() if uid not in present
    ]
    claims = {*running.claims, *(claim.metadata.uid for vacancy in vacancies for claim in vacancy.claims)}
    return replace(running, members=tuple(members), claims=tuple(sorted(claims)))


def _held_member(vacancy: Vacancy) -> RunningMember:
    return RunningMember(
        pod=pod_ref(vacancy.member),
        node=vacancy.node,
        claims=tuple(claim.metadata.uid for claim in vacancy.claims),
        started=max((allocated_at(claim, (vacancy.member.pod,)) for claim in vacancy.claims), default=0.0),
    )


def devices_of(vacancy: Vacancy) -> set[tuple[str, str, str]]:
    """Driver, pool and name of each."""
    return {
        (result.driver, result.pool, result.device)
        for claim in vacancy.claims
        for result in (claim.status.allocation.devices.results if claim.status.allocation else ())
        if not result.admin_access
    }


def avoided_nodes(own: Iterable[Vacancy], others: Iterable[Vacancy]) -> frozenset[str]:
    """Nodes on which places are held for other gangs only: they come last."""
    return frozenset({each.node for each in others} - {each.node for each in own})


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """What one deleted pod holds until the claim controller has written. `claims` are UIDs."""

    gang_id: GangId
    queue: str | None
    pod: PodRef
    node: str
    claims: tuple[str, ...]


def leftover(
    pod: core.Pod, claims: Iterable[resource.ResourceClaim], gang_id: GangId, queue: str | None
) -> Leftover | None:
    """What a pod that was deleted still holds; None where it holds nothing alone."""
    uid = pod.metadata.uid
    held = tuple(
        sorted(
            claim.metadata.uid
            for claim in claims
            if claim.status.allocation is not None and {user.uid for user in claim.status.reserved_for} <= {uid}
        )
    )
    if not held:
        return None
    ref = PodRef(pod.metadata.namespace, pod.metadata.name, uid)
    return Leftover(gang_id=gang_id, queue=queue, pod=ref, node=pod.spec.node_name, claims=held)


def with_leftover(running: RunningGang | None, left: Leftover, labels: Mapping[str, str]) -> RunningGang:
    """The gang as the engine sees it; `running` without the pod, None where nothing else of it runs."""
    member = RunningMember(pod=left.pod, node=left.node, claims=left.claims, leaving=True)
    if running is None:
        namespace, name = left.gang_id
        running = RunningGang(
            namespace=namespace, name=name, uid=left.pod.uid, queue=left.queue, claims=(), namespace_labels=labels
        )
    claims = tuple(sorted({*running.claims, *left.claims}))
    return replace(running, claims=claims, members=(*running.members, member))
