"""Gangs as the cluster shows them: which pods belong together, what they ask, and how far each has come.

Exists so that planning, recovery and status read one picture, made from pods and claims alone. Pure: a function of the
objects given. Decides nothing; what is wrong with a gang is a `Problem`, in words.
A member (`members`) is a pod that has our gate, or that holds a claim of ours since it was released. A pod without a gang annotation
is a gang of one, named after itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from fairlead.api import foreign, names
from fairlead.api.intent import Intent, IntentError, read_intent
from fairlead.controller.gangs.members import GroupTerms, Member, Objects, Problem, Stage, is_member, member_of
from fairlead.engine.types.reasons import Code
from fairlead.kube import core, timestamps

GangId = tuple[str, str]  # namespace, name
V = TypeVar("V", int, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """All that is known of one gang. `members` are sorted; those that finished or leave are among them."""

    id: GangId
    size: int
    members: tuple[Member, ...]
    queue: str | None = None
    topology: str | None = None
    min_runtime_s: float | None = None
    checkpoint_grace_s: float | None = None
    problems: tuple[Problem, ...] = ()
    solo: bool = False  # a pod without gang annotation
    borrowed_queue: bool = False  # `queue` is named in another system's words
    strangers: tuple[Member, ...] = ()  # gated, but asking for nothing of ours: no members, to be let go

    @property
    def namespace(self) -> str:
        return self.id[0]

    @property
    def name(self) -> str:
        return self.id[1]

    def at(self, *stages: Stage) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.stage in stages)

    @property
    def gated(self) -> tuple[Member, ...]:
        return self.at(Stage.GATED)

    @property
    def released(self) -> tuple[Member, ...]:
        return self.at(Stage.RELEASED)

    @property
    def placed(self) -> int:
        """Members that were released before and count towards the size: living ones that stay, and those that succeeded
        as part of the same work: of the same owner, or, without owners, when those that are left existed already.
        """
        living = [member for member in self.released if not member.leaving]
        staying = (*living, *self.gated)
        owners = {member.owner for member in staying}
        began = max((created_s(member.pod) for member in staying), default=float("inf"))
        done = [
            member
            for member in self.at(Stage.SUCCEEDED)
            if member.owner in owners and (member.owner or ended_s(member.pod) >= began)
        ]
        return len(living) + len(done)

    @property
    def present(self) -> int:
        return self.placed + len(self.gated)

    @property
    def created(self) -> float:
        """Unix seconds of the oldest member."""
        return min((created_s(member.pod) for member in self.members), default=0.0)

    @property
    def priority(self) -> int:
        return max((member.pod.spec.priority or 0 for member in self.members), default=0)


def created_s(pod: core.Pod) -> float:
    stamp = pod.metadata.creation_timestamp
    return timestamps.parse(stamp) if stamp else 0.0


def ended_s(pod: core.Pod) -> float:
    """Unix seconds of the last container's end; 0 where none is told."""
    ends = [
        timestamps.parse(status.state.terminated.finished_at)
        for status in pod.status.container_statuses
        if status.state.terminated is not None and status.state.terminated.finished_at
    ]
    return max(ends, default=0.0)


def gang_id(pod: core.Pod) -> GangId:
    """Which gang a pod belongs to: by annotation, else it is one by itself."""
    return pod.metadata.namespace, named_gang(pod) or pod.metadata.name


def named_gang(pod: core.Pod) -> str | None:
    """The gang that the pod names, in our words or another system's; None when it names none."""
    group = pod.spec.scheduling_group
    return foreign.gang_name(pod.metadata.annotations, pod.metadata.labels, group.pod_group_name if group else None)


def intent(pod: core.Pod) -> Intent:
    """Raises IntentError."""
    group = pod.spec.scheduling_group
    return read_intent(pod.metadata.annotations, pod.metadata.labels, group.pod_group_name if group else None)


def view(gang: GangId, pods: Iterable[core.Pod], objects: Objects, *, known: bool = False) -> Gang | None:
    """The gang made of those of `pods` that are its members; None when there is none.

    `known` says that the gang has been reported before; then a finished pod counts, though its claims are gone.
    """
    chosen = [pod for pod in pods if is_member(pod, objects) or _was_member(pod, known)]
    if not chosen:
        return None
    everyone = tuple(sorted((member_of(pod, objects) for pod in chosen), key=_order))
    members = tuple(member for member in everyone if not member.stranger)
    strangers = tuple(member for member in everyone if member.stranger)
    if all(member.stage is Stage.LEAVING for member in everyone):
        return None
    if not members:
        return Gang(id=gang, size=1, members=(), strangers=strangers)
    problems: list[Problem] = []
    intents: list[tuple[Member, Intent]] = []
    for member in members:
        try:
            intents.append((member, intent(member.pod)))
        except IntentError as error:
            problems.append(Problem(code=Code.INVALID, message=f"member {member.pod.metadata.name}: {error}"))
    solo = not any(named_gang(member.pod) for member in members)
    namesakes = [
        member.pod.metadata.name
        for member in members
        if member.stage in {Stage.GATED, Stage.RELEASED} and not named_gang(member.pod)
    ]
    if namesakes and not solo:
        problems.append(
            Problem(
                code=Code.INVALID,
                message=f"pod {namesakes[0]} has the gang's name but is no member; delete it and give it another name, "
                f"or annotate it with {names.GANG}: {gang[1]}",
            )
        )
    active = [pair for pair in intents if pair[0].stage in {Stage.GATED, Stage.RELEASED}] or intents
    size, disagreement = _agreed("gang-size", active, lambda intent: intent.size)
    queue, queue_disagreement = _agreed("queue", active, lambda intent: intent.queue)
    topology, topology_disagreement = _agreed("topology", active, lambda intent: intent.topology)
    problems += [found for found in (disagreement, queue_disagreement, topology_disagreement) if found]
    first = active[0][1] if active else Intent()
    terms = _terms(gang, first, objects)
    if size is None and not solo and not disagreement:
        size, missing = _size_elsewhere(gang, first, terms)
        problems += [missing] if missing else []
    borrowed_queue = all(intent.foreign_queue for _, intent in active if intent.queue is not None)
    if terms is not None:
        queue, topology = queue or terms.queue, topology or terms.topology
    return Gang(
        id=gang,
        size=size or 1,
        members=members,
        queue=queue,
        topology=topology,
        min_runtime_s=first.min_runtime_s,
        checkpoint_grace_s=first.checkpoint_grace_s,
        borrowed_queue=queue is not None and borrowed_queue,
        problems=tuple(problems),
        solo=solo,
        strangers=strangers,
    )


def _terms(gang: GangId, intent: Intent, objects: Objects) -> GroupTerms | None:
    """What the PodGroup object of the gang's name says, where the members follow another system."""
    if intent.provider is None or intent.group is None or intent.group.name != gang[1]:
        return None
    return objects.pod_group(intent.provider, *gang)


def _size_elsewhere(gang: GangId, intent: Intent, terms: GroupTerms | None) -> tuple[int | None, Problem | None]:
    """How many there are where no member says it."""
    if not intent.size_elsewhere:
        cure = f"annotate each with {names.GANG_SIZE}: <number>"
        if intent.system == "Kueue":
            cure = f"annotate each with {names.KUEUE_SIZE}: <number>"
        return None, Problem(code=Code.INVALID, message=f"no member says how many there are; {cure}")
    if terms is not None:
        return terms.size, None
    message = (
        f"PodGroup {gang[0]}/{gang[1]} of {intent.provider} does not exist, or this cluster does not serve it; "
        f"create it, or annotate each member with {names.GANG_SIZE}: <number>"
    )
    return None, Problem(code=Code.GATHERING, message=message)


def _agreed(
    what: str, intents: Iterable[tuple[Member, Intent]], pick: Callable[[Intent], V | None]
) -> tuple[V | None, Problem | None]:
    """The one value that members give, or how they disagree."""
    given: dict[V, str] = {}
    for member, intent in intents:
        value = pick(intent)
        if value is not None:
            given.setdefault(value, member.pod.metadata.name)
    if len(given) <= 1:
        return next(iter(given), None), None
    said = ", ".join(f"{name} says {value}" for value, name in list(given.items())[:4])
    message = f"members disagree on the {what}: {said}; give all members one value and create them anew"
    return None, Problem(code=Code.INVALID, message=message)


def _order(member: Member) -> tuple[int, str, str]:
    """By completion index where the pod has one, then by name."""
    index = member.pod.metadata.annotations.get("batch.kubernetes.io/job-completion-index", "")
    return int(index) if index.isdigit() else -1, member.pod.metadata.name, member.uid


def _was_member(pod: core.Pod, known: bool) -> bool:
    """Finished pods have lost their claims."""
    return pod.finished and (known or named_gang(pod) is not None)
