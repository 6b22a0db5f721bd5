"""Gangs as the cluster shows them: which pods belong together, what they ask, and how far each has come.

Exists so that planning, recovery and status read one picture, made from pods and claims alone. Pure: a function of the
objects given. Decides nothing; what is wrong with a gang is a `Problem`, in words.
A member is a pod that has our gate, or that holds a claim of ours since it was released. A pod without a gang annotation
is a gang of one, named after itself.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from fairlead.api import foreign, names
from fairlead.api.intent import Intent, IntentError, read_intent
from fairlead.controller import claims
from fairlead.controller.reasons import Code
from fairlead.kube import core, resource, timestamps

GangId = tuple[str, str]  # namespace, name
V = TypeVar("V", int, str)


class Stage(enum.Enum):
    GATED = "gated"
    RELEASED = "released"  # our gate is gone, it has not finished
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LEAVING = "leaving"  # deleted while it had the gate: it will never run


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why a gang cannot even be considered."""

    code: Code
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One of a pod's spec.resourceClaims that is ours to allocate. `claim` is the one that counts, where it exists."""

    name: str
    key: str  # the claim's UID; "<pod uid>/<entry>" while there is none
    spec: resource.ResourceClaimSpec
    template: resource.ResourceClaimTemplate | None = None
    claim: resource.ResourceClaim | None = None

    def reserved_for(self, pod_uid: str) -> bool:
        return self.claim is not None and any(r.uid == pod_uid for r in self.claim.status.reserved_for)

    @property
    def allocated(self) -> bool:
        return self.claim is not None and self.claim.status.allocation is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    pod: core.Pod
    stage: Stage
    entries: tuple[Entry, ...] = ()
    problems: tuple[Problem, ...] = ()
    legacy: tuple[str, ...] = ()  # names of legacy templates that have to be made first

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def bound(self) -> bool:
        return bool(self.pod.spec.node_name)

    @property
    def leaving(self) -> bool:
        """Whether it is on its way out: deleted or evicted."""
        return self.pod.metadata.deletion_timestamp is not None

    @property
    def touched(self) -> bool:
        """Whether one of its claims is reserved for it: by us, in an admission that began."""
        return any(entry.reserved_for(self.uid) for entry in self.entries)

    @property
    def whole(self) -> bool:
        """Whether all its claims are allocated and reserved for it."""
        return bool(self.entries) and all(entry.allocated and entry.reserved_for(self.uid) for entry in self.entries)

    @property
    def stranger(self) -> bool:
        """Whether the pod was gated while it was not known that it asks for nothing of ours."""
        return self.stage is Stage.GATED and not (self.entries or self.problems or self.legacy)

    @property
    def owner(self) -> str:
        controller = self.pod.metadata.controller
        return controller.uid if controller else ""


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
        as part of the same owner's work.
        """
        living = [member for member in self.released if not member.leaving]
        owners = {member.owner for member in (*living, *self.gated)}
        done = [m for m in self.at(Stage.SUCCEEDED) if m.owner and m.owner in owners]
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


class Objects(Protocol):
    """What has to be looked up to understand a pod."""

    @property
    def drivers(self) -> tuple[str, ...]: ...
    @property
    def classes(self) -> Mapping[str, resource.DeviceClass]: ...
    def claim(self, namespace: str, name: str) -> resource.ResourceClaim | None: ...
    def claims_of(self, pod_uid: str) -> Iterable[resource.ResourceClaim]: ...
    def template(self, namespace: str, name: str) -> resource.ResourceClaimTemplate | None: ...
    def group_size(self, api: str, namespace: str, name: str) -> int | None: ...


def created_s(pod: core.Pod) -> float:
    stamp = pod.metadata.creation_timestamp
    return timestamps.parse(stamp) if stamp else 0.0


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


def is_member(pod: core.Pod, objects: Objects) -> bool:
    if pod.has_gate(names.ADMISSION_GATE):
        return True
    return any(_holds(claim, pod, objects.drivers) for claim in _claims(pod, objects))


def view(gang: GangId, pods: Iterable[core.Pod], objects: Objects, *, known: bool = False) -> Gang | None:
    """The gang made of those of `pods` that are its members; None when there is none.

    `known` says that the gang has been reported before; then a finished pod counts, though its claims are gone.
    """
    chosen = [pod for pod in pods if is_member(pod, objects) or _was_member(pod, known)]
    if not chosen:
        return None
    everyone = tuple(sorted((_member(pod, objects) for pod in chosen), key=_order))
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
    if size is None and not solo and not disagreement:
        size, missing = _size_elsewhere(gang, first, objects)
        problems += [missing] if missing else []
    return Gang(
        id=gang,
        size=size or 1,
        members=members,
        queue=queue,
        topology=topology,
        min_runtime_s=first.min_runtime_s,
        checkpoint_grace_s=first.checkpoint_grace_s,
        borrowed_queue=first.borrowed_queue,
        problems=tuple(problems),
        solo=solo,
        strangers=strangers,
    )


def _size_elsewhere(gang: GangId, intent: Intent, objects: Objects) -> tuple[int | None, Problem | None]:
    """What a PodGroup object says, where the members follow another system."""
    if intent.system is not None and intent.size_elsewhere:
        api = foreign.PROVIDERS[intent.system]
        size = objects.group_size(api, *gang)
        if size is not None:
            return size, None
        message = (
            f"PodGroup {gang[0]}/{gang[1]} of {api} does not exist, or this cluster does not serve it; "
            f"create it, or annotate each member with {names.GANG_SIZE}: <number>"
        )
        return None, Problem(code=Code.GATHERING, message=message)
    message = f"no member says how many there are; annotate each with {names.GANG_SIZE}: <number>"
    return None, Problem(code=Code.INVALID, message=message)


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


def _stage(pod: core.Pod) -> Stage:
    if pod.status.phase == "Succeeded":
        return Stage.SUCCEEDED
    if pod.status.phase == "Failed":
        return Stage.FAILED
    if pod.has_gate(names.ADMISSION_GATE):
        return Stage.LEAVING if pod.metadata.deletion_timestamp else Stage.GATED
    return Stage.RELEASED


def _was_member(pod: core.Pod, known: bool) -> bool:
    """Finished pods have lost their claims."""
    return pod.finished and (known or named_gang(pod) is not None)


def _claims(pod: core.Pod, objects: Objects) -> Iterable[resource.ResourceClaim]:
    """Those that it names, and those made for it, which it may have been made to name no more."""
    yield from objects.claims_of(pod.metadata.uid)
    for name in claims.names_used(pod).values():
        claim = objects.claim(pod.metadata.namespace, name)
        if claim is not None:
            yield claim


def _holds(claim: resource.ResourceClaim, pod: core.Pod, drivers: tuple[str, ...]) -> bool:
    allocation = claim.status.allocation
    return (
        allocation is not None
        and any(consumer.uid == pod.metadata.uid for consumer in claim.status.reserved_for)
        and any(result.driver in drivers for result in allocation.devices.results)
    )


def _member(pod: core.Pod, objects: Objects) -> Member:
    stage = _stage(pod)
    if stage in {Stage.SUCCEEDED, Stage.FAILED}:
        return Member(pod=pod, stage=stage, entries=tuple(_still_held(pod, objects)))
    entries: list[Entry] = []
    problems: list[Problem] = []
    legacy: list[str] = []
    named = claims.names_used(pod)
    not_needed = {s.name for s in pod.status.resource_claim_statuses if s.resource_claim_name is None}
    for use in pod.spec.resource_claims:
        if use.name in not_needed:
            continue
        if use.resource_claim_name:
            found: Entry | Problem | None = _named(pod, use, objects)
        else:
            found = _templated(pod, use, named.get(use.name), objects, legacy)
        if isinstance(found, Problem):
            problems.append(found)
        elif found is not None:
            verdict = claims.managed(found.spec, objects.classes, objects.drivers)
            if verdict.problem and stage is Stage.GATED:
                problems.append(Problem(code=Code.INVALID, message=f"pod {pod.metadata.name}: {verdict.problem}"))
            if verdict.ours or (stage is Stage.GATED and found.reserved_for(pod.metadata.uid)):
                entries.append(found)
    if stage is Stage.GATED:
        others = [gate.name for gate in pod.spec.scheduling_gates if gate.name != names.ADMISSION_GATE]
        if others:
            message = f"pod {pod.metadata.name} has other scheduling gates: {', '.join(others)}; whoever set them removes them"
            if names.KUEUE_GATE in others:
                message += f" ({names.KUEUE_GATE}: Kueue admits the pod first, by its own quota; without Kueue's label it would not)"
            problems.append(Problem(code=Code.GATHERING, message=message))
    return Member(
        pod=pod, stage=stage, entries=tuple(entries), problems=tuple(problems), legacy=tuple(sorted(set(legacy)))
    )


def _still_held(pod: core.Pod, objects: Objects) -> Iterable[Entry]:
    """What a finished pod holds until the claim controller has seen its end."""
    named = claims.names_used(pod)
    for use in pod.spec.resource_claims:
        claim = objects.claim(pod.metadata.namespace, named.get(use.name, ""))
        if claim is not None and _holds(claim, pod, objects.drivers):
            yield Entry(name=use.name, key=claim.metadata.uid, spec=claim.spec, claim=claim)


def _named(pod: core.Pod, use: core.PodResourceClaim, objects: Objects) -> Entry | Problem:
    name = use.resource_claim_name or ""
    claim = objects.claim(pod.metadata.namespace, name)
    where = f"ResourceClaim {pod.metadata.namespace}/{name}, which pod {pod.metadata.name} uses,"
    if claim is None:
        return Problem(code=Code.INVALID, message=f"{where} does not exist; create it")
    if claim.metadata.deletion_timestamp:
        return Problem(code=Code.INVALID, message=f"{where} is being deleted; create it anew once it is gone")
    return Entry(name=use.name, key=claim.metadata.uid, spec=claim.spec, claim=claim)


def _templated(
    pod: core.Pod, use: core.PodResourceClaim, named: str | None, objects: Objects, legacy: list[str]
) -> Entry | Problem:
    namespace, template_name = pod.metadata.namespace, use.resource_claim_template_name or ""
    claim = claims.settled(pod, use.name, named, objects.claims_of(pod.metadata.uid))
    if claim is not None:
        return Entry(
            name=use.name,
            key=claim.metadata.uid,
            spec=claim.spec,
            claim=claim,
            template=objects.template(namespace, template_name),
        )
    template = objects.template(namespace, template_name)
    if template is not None:
        return Entry(name=use.name, key=f"{pod.metadata.uid}/{use.name}", spec=template.spec.spec, template=template)
    where = f"ResourceClaimTemplate {namespace}/{template_name}, which pod {pod.metadata.name} uses,"
    if claims.is_legacy_template(template_name):
        legacy.append(template_name)
        return Problem(code=Code.GATHERING, message=f"{where} is being made")
    return Problem(code=Code.INVALID, message=f"{where} does not exist; create it")
