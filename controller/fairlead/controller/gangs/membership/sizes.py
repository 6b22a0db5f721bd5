"""How many members a gang needs, and what else its members agree on.

A size that a user wrote stays. One that the webhook counted (`api.derived`) follows what it was counted of: a Job says how many pods it
runs at once, other workloads have the size in their templates, which the webhook counts again at each change. While the gang runs, the
size grows only with the members that run: a larger gang is placed when there is room, and nothing is evicted because it is not.

Members that are of one workload and disagree are of two generations of its template: the newest counts. Pure.

Example: a Job of 12 waits and is made a Job of 6. Its template, and the six pods that are left, say 12; the gang's size is 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from fairlead.api.derived import JOB, Source, source_text, workload_of
from fairlead.api.gang import GANG_SIZE_MAX
from fairlead.api.intent import Intent
from fairlead.controller.gangs.membership.gangs import GangId, created_s
from fairlead.controller.gangs.membership.jobs import JobPods
from fairlead.controller.gangs.membership.members import GangProblem, Lookup, Member
from fairlead.engine.types.reasons import Code

V = TypeVar("V", int, str)
Intents = Sequence[tuple[Member, Intent]]


def size_of(
    gang: GangId, intents: Intents, jobs: Iterable[JobPods], lookup: Lookup
) -> tuple[int | None, GangProblem | None]:
    """The size, or the problem that members disagree; neither where no member states it."""
    stated, problem = agreed("gang-size", intents, lambda intent: intent.size)
    sources = {intent.size_from for _, intent in intents if intent.size is not None}
    source = sources.pop() if len(sources) == 1 else None
    if stated is None or source is None:
        return stated, problem
    now = _counted(gang, source, jobs, lookup)
    if now is None or not 1 <= now <= GANG_SIZE_MAX:
        now = stated
    running = sum(member.runs for member, _ in intents)
    if running and now > running:
        least = min(intent.size for member, intent in intents if member.runs and intent.size is not None)
        now = min(now, max(least, running))
    return now, None


def _counted(gang: GangId, source: Source, jobs: Iterable[JobPods], lookup: Lookup) -> int | None:
    """What the workload says now; None where it is not known."""
    kind, name = source
    if kind == JOB:
        named = [job.at_start for job in jobs if name and job.name == f"{gang[0]}/{name}"]
        return named[0] if named and named[0] > 0 else None
    return lookup.workload_size(gang, source_text(kind, name))


def agreed(what: str, intents: Intents, pick: Callable[[Intent], V | None]) -> tuple[V | None, GangProblem | None]:
    """The one value that members state, or of two generations the newest's; or the problem that they state several."""
    stating = [(member, value) for member, each in intents if (value := pick(each)) is not None]
    given: dict[V, str] = {}
    for member, value in stating:
        given.setdefault(value, member.pod.metadata.name)
    if len(given) <= 1:
        return next(iter(given), None), None
    workloads = {_workload(member) for member, _ in stating}
    if len(workloads) == 1 and None not in workloads:
        newest = max(stating, key=lambda each: (created_s(each[0].pod), each[0].pod.metadata.name))
        return newest[1], None
    said = ", ".join(f"{name} says {value}" for value, name in list(given.items())[:4])
    message = f"members disagree on the {what}: {said}; give all members one value and recreate them"
    return None, GangProblem(code=Code.INVALID, message=message)


def of_one_source(intents: Intents) -> tuple[Intents, str]:
    """The members that are of the gang where workloads that are each a whole gang have one name, and what to say of the others.

    Each counted its own pods: together they would be torn. The gang is the one that runs, else the oldest; the others wait for its end.
    """
    by_source: dict[Source, list[Member]] = {}
    for member, intent in intents:
        if intent.size_from is not None and not member.pod.finished:
            by_source.setdefault(intent.size_from, []).append(member)
    if len(by_source) < 2:
        return intents, ""
    first = min(by_source, key=lambda source: _precedence(by_source[source]))
    others = sorted(source for source in by_source if source != first)
    kept = [pair for pair in intents if pair[1].size_from in {None, first}]
    names = ", ".join(source_text(*source) for source in others[:4])
    return kept, (
        f"pods of {names} have this gang's name and are no members, since {source_text(*first)} is a gang of its own size: give them "
        "another gang name, or write one gang-size, of all together, on each"
    )


def _precedence(members: Sequence[Member]) -> tuple[bool, float, str]:
    return (
        not any(member.runs for member in members),
        min(created_s(member.pod) for member in members),
        min(member.uid for member in members),
    )


def _workload(member: Member) -> str | None:
    metadata = member.pod.metadata
    owner = metadata.controller
    return workload_of(metadata.annotations, metadata.labels, None if owner is None else (owner.kind, owner.name))
