"""A gang made of its pods: which of them are members, how many it needs, and what they agree on.

Members must agree on size, queue, topology, models and subgroups; where none states one, a PodGroup object of the gang's name does. A
disagreement, an unreadable annotation or a missing size becomes a `GangProblem` in words. Members that are of one workload and disagree
are of two generations of its template: the newest counts.

A size that a user wrote stays. One that the webhook counted (`api.derived`) follows what it was counted of: a Job says how many pods it
runs at once, other workloads have the size in their templates, which the webhook counts again at each change. While the gang runs, the
size grows only with the members that run: a larger gang is placed when there is room, and nothing is evicted because it is not.
Example: a Job of 12 waits and is made a Job of 6. Its template, and the six pods that are left, say 12; the gang's size is 6.
Pure; decides nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar, cast

from fairlead.api import foreign, names, owners
from fairlead.api.align import by_subgroup
from fairlead.api.derived import JOB, Source, source_text, workload_of
from fairlead.api.gang import GANG_SIZE_MAX
from fairlead.api.intent import Intent, IntentError
from fairlead.api.models import Models
from fairlead.controller.gangs.membership.gangs import Gang, GangId, SharedDecision, created_s, intent, named_gang
from fairlead.controller.gangs.membership.jobs import JobPods, job_pods, ranks
from fairlead.controller.gangs.membership.members import GangProblem, GroupTerms, Lookup, Member, Stage
from fairlead.controller.gangs.pods import is_member, member_of
from fairlead.engine.types.reasons import Code
from fairlead.kube import core

NOTES_MAX = 4
CONSUMERS_MAX = 256
"""Entries of a claim's `status.reservedFor`. Source: k8s.io/api `resource/v1`, ResourceClaimReservedForMaxSize."""

V = TypeVar("V", bound=int | str)
Intents = Sequence[tuple[Member, Intent]]
Problems = list[GangProblem]
LIVING = frozenset({Stage.GATED, Stage.RELEASED})


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
    problems: Problems = []
    intents, astray = _of_one_source(_intents(members, problems))
    if astray:
        of_gang = {member.uid for member, _ in intents}
        members = tuple(member for member in members if member.uid in of_gang or member.pod.finished)
    if not solo:
        _check_namesakes(gang, members, problems)
    active: Intents = [pair for pair in intents if pair[0].stage in LIVING] or intents
    jobs = () if solo else _jobs(gang, members, lookup)
    if astray:
        makers = {member.owner for member in members}
        jobs = tuple(job for job in jobs if job.uid in makers)

    def agreed(what: str, pick: Callable[[Intent], V | None]) -> V | None:
        return _agreed(what, active, pick, problems)

    size = _size_of(gang, active, jobs, lookup, problems)
    queue = agreed("queue", lambda each: each.queue)
    topology = agreed("topology", lambda each: each.topology)
    models = cast("Models | None", agreed("models", lambda each: each.models))
    align = agreed("align", lambda each: each.align)
    subgroup_size = agreed("subgroup-size", lambda each: each.subgroup_size)
    inner = agreed("subgroup-topology", lambda each: each.subgroup_topology)
    _check_shared_claims(members, problems)
    first = active[0][1] if active else Intent()
    terms = _terms(gang, first, lookup)
    if not solo and all(each.size is None for _, each in active):
        size = _size_elsewhere(gang, first, terms, problems)
    if terms is not None:
        queue, topology = queue or terms.queue, topology or terms.topology
    priority, notes = _priority(active, terms, lookup)
    grouped = inner is not None or by_subgroup(align)
    notes += [note for _, each in active for note in each.notes]
    return Gang(
        id=gang,
        size=size or 1,
        members=members,
        queue=queue,
        topology=topology,
        models=models,
        align=align,
        subgroup_size=subgroup_size if grouped else None,
        subgroup_topology=inner,
        subgroups=_subgroups(intents, jobs, subgroup_size, problems) if grouped else {},
        min_runtime_s=first.min_runtime_s,
        checkpoint_grace_s=first.checkpoint_grace_s,
        movable=_movable(active),
        checkpointed=_checkpointed(active),
        foreign_queue=queue is not None and all(each.foreign_queue for _, each in active if each.queue is not None),
        problems=tuple(problems),
        notes=tuple(dict.fromkeys([astray, *notes] if astray else notes))[:NOTES_MAX],
        solo=solo,
        jobs=jobs,
        unmanaged=unmanaged,
        stated_priority=priority,
        group_preempts=terms is None or terms.preempts,
        shared_with=_shared_with(gang, members, lookup.namespace_labels(gang[0])),
    )


def _intents(members: Iterable[Member], problems: Problems) -> Intents:
    """What each member's annotations and labels ask for; members whose annotations cannot be read are left out."""
    intents: list[tuple[Member, Intent]] = []
    for member in members:
        try:
            intents.append((member, intent(member.pod)))
        except IntentError as error:
            problems.append(_invalid(f"member {member.pod.metadata.name}: {error}"))
    return intents


def _invalid(message: str) -> GangProblem:
    return GangProblem(code=Code.INVALID, message=message)


def _jobs(gang: GangId, members: Sequence[Member], lookup: Lookup) -> tuple[JobPods, ...]:
    """The Jobs that make the gang's pods: those whose template names it, and owners of members. None that is being deleted."""
    found = {job.metadata.uid: job for job in lookup.jobs_of(gang)}
    for member in members:
        job = lookup.job_of(member.pod)
        if job is not None:
            found.setdefault(job.metadata.uid, job)
    return tuple(job_pods(job, members) for _, job in sorted(found.items()) if not job.metadata.deletion_timestamp)


# -- what members agree on --------------------------------------------------------------------------------------------


def _agreed(what: str, intents: Intents, pick: Callable[[Intent], V | None], problems: Problems) -> V | None:
    """The one value that members state, or of two generations the newest's; where they state several that is a problem."""
    stating = [(member, value) for member, each in intents if (value := pick(each)) is not None]
    given: dict[V, str] = {}
    for member, value in stating:
        given.setdefault(value, member.pod.metadata.name)
    if len(given) <= 1:
        return next(iter(given), None)
    workloads = {_workload(member) for member, _ in stating}
    if len(workloads) == 1 and None not in workloads:
        return max(stating, key=lambda each: (created_s(each[0].pod), each[0].pod.metadata.name))[1]
    said = ", ".join(f"{name} says {value}" for value, name in list(given.items())[:4])
    problems.append(_invalid(f"members disagree on the {what}: {said}; give all members one value and recreate them"))
    return None


def _workload(member: Member) -> str | None:
    metadata = member.pod.metadata
    owner = metadata.controller
    return workload_of(metadata.annotations, metadata.labels, None if owner is None else (owner.kind, owner.name))


def _size_of(gang: GangId, intents: Intents, jobs: Iterable[JobPods], lookup: Lookup, problems: Problems) -> int | None:
    """None where no member states it, or they disagree."""
    stated = _agreed("gang-size", intents, lambda each: each.size, problems)
    sources = {each.size_from for _, each in intents if each.size is not None}
    source = sources.pop() if len(sources) == 1 else None
    if stated is None or source is None:
        return stated
    now = _counted(gang, source, jobs, lookup)
    if now is None or not 1 <= now <= GANG_SIZE_MAX:
        now = stated
    running = sum(member.runs for member, _ in intents)
    if running and now > running:
        least = min(each.size for member, each in intents if member.runs and each.size is not None)
        now = min(now, max(least, running))
    return now


def _counted(gang: GangId, source: Source, jobs: Iterable[JobPods], lookup: Lookup) -> int | None:
    """What the workload says now; None where it is not known."""
    kind, name = source
    if kind == JOB:
        named = [job.at_start for job in jobs if name and job.name == f"{gang[0]}/{name}"]
        return named[0] if named and named[0] > 0 else None
    return lookup.workload_size(gang, source_text(kind, name))


def _size_elsewhere(gang: GangId, first: Intent, terms: GroupTerms | None, problems: Problems) -> int | None:
    """The size where no member states it."""
    if not first.size_elsewhere:
        size = names.KUEUE_SIZE if first.system == "Kueue" else names.GANG_SIZE
        problems.append(_invalid(f"no member says how many there are; annotate each with {size}: <number>"))
        return None
    if terms is not None:
        return terms.size
    message = (
        f"PodGroup {gang[0]}/{gang[1]} of {first.provider} does not exist, or this cluster does not serve it; "
        f"create it, or annotate each member with {names.GANG_SIZE}: <number>"
    )
    problems.append(GangProblem(code=Code.GATHERING, message=message))
    return None


def _of_one_source(intents: Intents) -> tuple[Intents, str]:
    """The members that are of the gang where workloads that are each a whole gang have one name, and what to say of the others.

    Each counted its own pods: together they would be torn. The gang is the one that runs, else the oldest; the others wait for its end.
    """
    by_source: dict[Source, list[Member]] = {}
    for member, each in intents:
        if each.size_from is not None and not member.pod.finished:
            by_source.setdefault(each.size_from, []).append(member)
    if len(by_source) < 2:
        return intents, ""
    first = min(by_source, key=lambda source: _precedence(by_source[source]))
    others = sorted(source for source in by_source if source != first)
    kept = [pair for pair in intents if pair[1].size_from in {None, first}]
    listed = ", ".join(source_text(*source) for source in others[:4])
    return kept, (
        f"pods of {listed} have this gang's name and are no members, since {source_text(*first)} is a gang of its own size: give them "
        "another gang name, or write one gang-size, of all together, on each"
    )


def _precedence(members: Sequence[Member]) -> tuple[bool, float, str]:
    return (
        not any(member.runs for member in members),
        min(created_s(member.pod) for member in members),
        min(member.uid for member in members),
    )


def _subgroups(intents: Intents, jobs: Sequence[JobPods], size: int | None, problems: Problems) -> dict[str, str]:
    """The subgroups of members, by UID: what a pod says, else by its rank. That one which waits is in none is a problem."""
    by_rank = ranks((member for member, _ in intents), jobs)
    found: dict[str, str] = {}
    astray = ""
    for member, each in intents:
        rank = by_rank.get(member.uid)
        if each.subgroup is not None:
            found[member.uid] = each.subgroup
        elif rank is not None and size is not None:
            found[member.uid] = str(rank // size)
        elif member.stage is Stage.GATED and not member.without_devices:
            astray = astray or member.pod.metadata.name
    if astray:
        message = (
            f"member {astray} is in no subgroup: it has no index; use an Indexed Job, a JobSet, a StatefulSet "
            f"or a LeaderWorkerSet, or write {names.SUBGROUP}: <name> on each pod"
        )
        problems.append(_invalid(message))
    return found


def _movable(intents: Intents) -> bool | None:
    """One member that says no keeps all of them."""
    said = {each.movable for _, each in intents} - {None}
    return None if not said else said == {True}


def _checkpointed(intents: Intents) -> float | None:
    """The oldest of what the released members say; None where one says nothing."""
    times = [each.checkpointed for member, each in intents if member.stage is Stage.RELEASED]
    known = [time for time in times if time is not None]
    return min(known) if known and len(known) == len(times) else None


# -- what is wrong with them ------------------------------------------------------------------------------------------


def _check_namesakes(gang: GangId, members: Iterable[Member], problems: Problems) -> None:
    """A pod without gang annotation whose own name is the gang's."""
    for member in members:
        if member.stage in LIVING and not named_gang(member.pod):
            message = (
                f"pod {member.pod.metadata.name} has the gang's name but is no member; delete it and give it another "
                f"name, or annotate it with {names.GANG}: {gang[1]}"
            )
            problems.append(_invalid(message))
            return


def _check_shared_claims(members: Sequence[Member], problems: Problems) -> None:
    """A claim that more members share than it can be reserved for: the apiserver would refuse the admission each time."""
    if len(members) <= CONSUMERS_MAX:
        return
    living = (member for member in members if member.stage in LIVING)
    users = Counter(each.claim.metadata.name for member in living for each in member.claims if each.claim is not None)
    for name, count in users.items():
        if count > CONSUMERS_MAX:
            message = (
                f"{count} members share ResourceClaim {name}, and a claim is reserved for at most {CONSUMERS_MAX} pods: use "
                "several claims, or a template, which makes one for each pod"
            )
            problems.append(_invalid(message))


# -- what other systems say -------------------------------------------------------------------------------------------


def _terms(gang: GangId, first: Intent, lookup: Lookup) -> GroupTerms | None:
    """What the PodGroup object of the gang's name states, where the members follow another system."""
    if first.provider is None or first.group is None or first.group.name != gang[1]:
        return None
    return lookup.pod_group(first.provider, *gang)


def _priority(active: Intents, terms: GroupTerms | None, lookup: Lookup) -> tuple[int | None, list[str]]:
    """What counts in place of the pods' priority: the PodGroup's, else the highest of Kueue's classes; and what cannot count."""
    if terms is not None and terms.priority is not None:
        return terms.priority, []
    asked = sorted({each.priority_class for _, each in active if each.priority_class is not None})
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
    if member.stage in LIVING:
        gates = (gate.name for gate in member.pod.spec.scheduling_gates)
        yield from owners.claimants(member.pod.metadata.labels, gates)


def _order(member: Member) -> tuple[int, str, str]:
    """By completion index where the pod has one, then by name."""
    return -1 if member.index is None else member.index, member.pod.metadata.name, member.uid


def _was_member(pod: core.Pod, known: bool) -> bool:
    """Finished pods no longer have claims that show it."""
    return pod.finished and (known or named_gang(pod) is not None)
