"""A gang made of its pods: which of them are members, and what they agree on.

Members must agree on size, queue, topology, models and subgroups; where none states one, a PodGroup object of the gang's name does. A
disagreement, an unreadable annotation or a missing size becomes a `GangProblem` in words. Pure; decides nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from fairlead.api import foreign, names, owners
from fairlead.api.align import by_subgroup
from fairlead.api.intent import Intent, IntentError
from fairlead.api.models import Models
from fairlead.controller.gangs.membership.gangs import Gang, GangId, SharedDecision, intent, named_gang
from fairlead.controller.gangs.membership.jobs import JobPods, job_pods
from fairlead.controller.gangs.membership.members import GangProblem, GroupTerms, Lookup, Member, Stage
from fairlead.controller.gangs.membership.ranks import ranks, subgroup
from fairlead.controller.gangs.membership.sizes import Intents, agreed, of_one_source, size_of
from fairlead.controller.gangs.pods import is_member, member_of
from fairlead.engine.types.reasons import Code
from fairlead.kube import core

NOTES_MAX = 4
CONSUMERS_MAX = 256
"""Of a claim's `status.reservedFor`. Source: k8s.io/api `resource/v1`, ResourceClaimReservedForMaxSize."""


def build_gang(gang: GangId, pods: Iterable[core.Pod], lookup: Lookup, *, known: bool = False) -> Gang | None:
    """The gang made of those of `pods` that are its members; None when there is none.

    `known` says that the gang was reported before; then a finished pod is a member though its claims are gone.
    """
    chosen = [pod for pod in pods if is_member(pod, lookup) or _was_member(pod, known)]
    everyone = tuple(sorted((member_of(pod, lookup) for pod in chosen), key=_order))
    if all(member.stage is Stage.DELETED for member in everyone):
        return None
    members = tuple(member for member in everyone if not member.unmanaged)
    unmanaged = tuple(member for member in everyone if member.unmanaged)
    if not members:
        return Gang(id=gang, size=1, members=(), unmanaged=unmanaged)
    solo = not any(named_gang(member.pod) for member in members)
    intents, problems = _intents(members)
    intents, astray = of_one_source(intents)
    if astray:
        of_gang = {member.uid for member, _ in intents}
        members = tuple(member for member in members if member.uid in of_gang or member.pod.finished)
    problems += [] if solo else _namesakes(gang, members)
    active: Intents = [pair for pair in intents if pair[0].stage in {Stage.GATED, Stage.RELEASED}] or intents
    jobs = () if solo else _jobs(gang, members, lookup)
    if astray:
        makers = {member.owner for member in members}
        jobs = tuple(job for job in jobs if job.uid in makers)
    size, size_problem = size_of(gang, active, jobs, lookup)
    queue, queue_problem = agreed("queue", active, lambda intent: intent.queue)
    topology, topology_problem = agreed("topology", active, lambda intent: intent.topology)
    models, models_problem = agreed("models", active, lambda intent: intent.models)
    align, align_problem = agreed("align", active, lambda intent: intent.align)
    subgroup_size, subgroup_problem = agreed("subgroup-size", active, lambda intent: intent.subgroup_size)
    inner, inner_problem = agreed("subgroup-topology", active, lambda intent: intent.subgroup_topology)
    found = (
        size_problem,
        queue_problem,
        topology_problem,
        models_problem,
        align_problem,
        subgroup_problem,
        inner_problem,
    )
    problems += [each for each in found if each]
    problems += _crowded(members)
    first = active[0][1] if active else Intent()
    terms = _terms(gang, first, lookup)
    if size is None and not solo and not size_problem:
        size, missing = _size_elsewhere(gang, first, terms)
        problems += [missing] if missing else []
    if terms is not None:
        queue, topology = queue or terms.queue, topology or terms.topology
    priority, notes = _priority(active, terms, lookup)
    grouped = inner is not None or by_subgroup(align)
    subgroups, missing_index = _subgroups(intents, jobs, subgroup_size) if grouped else ({}, None)
    problems += [missing_index] if missing_index else []
    foreign_queue = all(intent.foreign_queue for _, intent in active if intent.queue is not None)
    return Gang(
        id=gang,
        size=size or 1,
        members=members,
        queue=queue,
        topology=topology,
        models=cast("Models | None", models),
        align=align,
        subgroup_size=subgroup_size if grouped else None,
        subgroup_topology=inner,
        subgroups=subgroups,
        min_runtime_s=first.min_runtime_s,
        checkpoint_grace_s=first.checkpoint_grace_s,
        movable=_movable(active),
        checkpointed=_checkpointed(active),
        foreign_queue=queue is not None and foreign_queue,
        problems=tuple(problems),
        notes=tuple(
            dict.fromkeys(
                (*([astray] if astray else ()), *notes, *(note for _, intent in active for note in intent.notes))
            )
        )[:NOTES_MAX],
        solo=solo,
        jobs=jobs,
        unmanaged=unmanaged,
        stated_priority=priority,
        group_preempts=terms is None or terms.preempts,
        shared_with=_shared_with(gang, members, lookup.namespace_labels(gang[0])),
    )


def _jobs(gang: GangId, members: Sequence[Member], lookup: Lookup) -> tuple[JobPods, ...]:
    """The Jobs that make the gang's pods: those whose template names it, and owners of members. None that is being deleted."""
    found = {job.metadata.uid: job for job in lookup.jobs_of(gang)}
    for member in members:
        job = lookup.job_of(member.pod)
        if job is not None:
            found.setdefault(job.metadata.uid, job)
    return tuple(job_pods(job, members) for _, job in sorted(found.items()) if not job.metadata.deletion_timestamp)


def _subgroups(
    intents: Intents, jobs: Sequence[JobPods], size: int | None
) -> tuple[dict[str, str], GangProblem | None]:
    """The subgroups of members, by UID; and the problem that one which waits is in none."""
    by_rank = ranks((member for member, _ in intents), jobs)
    found: dict[str, str] = {}
    problem: GangProblem | None = None
    for member, each in intents:
        name = subgroup(by_rank.get(member.uid), size, each.subgroup)
        if name is not None:
            found[member.uid] = name
        elif problem is None and member.stage is Stage.GATED:
            message = (
                f"member {member.pod.metadata.name} is in no subgroup: it has no index; use an Indexed Job, a JobSet, a StatefulSet "
                f"or a LeaderWorkerSet, or write {names.SUBGROUP}: <name> on each pod"
            )
            problem = GangProblem(code=Code.INVALID, message=message)
    return found, problem


def _intents(members: Iterable[Member]) -> tuple[Intents, list[GangProblem]]:
    """What each member's annotations and labels ask for; members whose annotations cannot be read are left out."""
    intents: list[tuple[Member, Intent]] = []
    problems: list[GangProblem] = []
    for member in members:
        try:
            intents.append((member, intent(member.pod)))
        except IntentError as error:
            problems.append(GangProblem(code=Code.INVALID, message=f"member {member.pod.metadata.name}: {error}"))
    return intents, problems


def _namesakes(gang: GangId, members: Iterable[Member]) -> list[GangProblem]:
    """A pod without gang annotation whose own name is the gang's."""
    for member in members:
        if member.stage in {Stage.GATED, Stage.RELEASED} and not named_gang(member.pod):
            message = (
                f"pod {member.pod.metadata.name} has the gang's name but is no member; delete it and give it another "
                f"name, or annotate it with {names.GANG}: {gang[1]}"
            )
            return [GangProblem(code=Code.INVALID, message=message)]
    return []


def _crowded(members: Sequence[Member]) -> list[GangProblem]:
    """A claim that more members share than it can be reserved for: the apiserver would refuse the admission each time."""
    if len(members) <= CONSUMERS_MAX:
        return []
    living = (member for member in members if member.stage in {Stage.GATED, Stage.RELEASED})
    users = Counter(each.claim.metadata.name for member in living for each in member.claims if each.claim is not None)
    return [
        GangProblem(
            code=Code.INVALID,
            message=f"{count} members share ResourceClaim {name}, and a claim is reserved for at most {CONSUMERS_MAX} pods: use "
            "several claims, or a template, which makes one for each pod",
        )
        for name, count in users.items()
        if count > CONSUMERS_MAX
    ]


def _terms(gang: GangId, intent: Intent, lookup: Lookup) -> GroupTerms | None:
    """What the PodGroup object of the gang's name states, where the members follow another system."""
    if intent.provider is None or intent.group is None or intent.group.name != gang[1]:
        return None
    return lookup.pod_group(intent.provider, *gang)


def _priority(active: Intents, terms: GroupTerms | None, lookup: Lookup) -> tuple[int | None, list[str]]:
    """What counts in place of the pods' priority: the PodGroup's, else the highest of Kueue's classes; and what cannot count."""
    if terms is not None and terms.priority is not None:
        return terms.priority, []
    asked = sorted({intent.priority_class for _, intent in active if intent.priority_class is not None})
    values = {name: lookup.workload_priority(name) for name in asked}
    notes = [
        f"{foreign.PRIORITY_KEY.path}: there is no WorkloadPriorityClass {name!r}; the pods' priority counts: create it, or set priorityClassName"
        for name, value in values.items()
        if value is None
    ]
    return max((value for value in values.values() if value is not None), default=None), notes


def _shared_with(gang: GangId, members: Iterable[Member], labels: Mapping[str, str]) -> SharedDecision | None:
    """The first other system that lays claim to a member that has not ended, else the one that the namespace is of."""
    try:
        owned_by = owners.owner(labels)
    except owners.UnknownSystemError as error:
        return SharedDecision("Unknown", f"Namespace {gang[0]}: {error}")
    found = next((each for member in members for each in _claimants(member) if each.system != owned_by), None)
    text = owners.decision(gang[0], owned_by, found)
    return SharedDecision(found.title if found else owners.SYSTEMS[owned_by or owners.FAIRLEAD], text) if text else None


def _claimants(member: Member) -> Iterator[owners.Claimant]:
    """By gates and labels; of a scheduler's name the webhook tells, which is not kept of a watched pod."""
    if member.stage in {Stage.GATED, Stage.RELEASED}:
        gates = (gate.name for gate in member.pod.spec.scheduling_gates)
        yield from owners.claimants(member.pod.metadata.labels, gates)


def _size_elsewhere(gang: GangId, intent: Intent, terms: GroupTerms | None) -> tuple[int | None, GangProblem | None]:
    """The size where no member states it."""
    if not intent.size_elsewhere:
        cure = f"annotate each with {names.GANG_SIZE}: <number>"
        if intent.system == "Kueue":
            cure = f"annotate each with {names.KUEUE_SIZE}: <number>"
        return None, GangProblem(code=Code.INVALID, message=f"no member says how many there are; {cure}")
    if terms is not None:
        return terms.size, None
    message = (
        f"PodGroup {gang[0]}/{gang[1]} of {intent.provider} does not exist, or this cluster does not serve it; "
        f"create it, or annotate each member with {names.GANG_SIZE}: <number>"
    )
    return None, GangProblem(code=Code.GATHERING, message=message)


def _movable(intents: Intents) -> bool | None:
    """One member that says no keeps all of them."""
    said = {intent.movable for _, intent in intents} - {None}
    return None if not said else said == {True}


def _checkpointed(intents: Intents) -> float | None:
    """The oldest of what the released members say; None where one says nothing."""
    times = [intent.checkpointed for member, intent in intents if member.stage is Stage.RELEASED]
    known = [time for time in times if time is not None]
    return min(known) if known and len(known) == len(times) else None


def _order(member: Member) -> tuple[int, str, str]:
    """By completion index where the pod has one, then by name."""
    return -1 if member.index is None else member.index, member.pod.metadata.name, member.uid


def _was_member(pod: core.Pod, known: bool) -> bool:
    """Finished pods no longer have claims that show it."""
    return pod.finished and (known or named_gang(pod) is not None)
