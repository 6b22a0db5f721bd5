"""A gang's members: pods with the claims that are ours to allocate, and how far each has come.

Exists apart from `gangs`, which says what they are together. Pure: a function of a pod and of what it refers to. What is wrong
with a pod is a `Problem`, in words.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from fairlead.api import names
from fairlead.controller.gangs import claims
from fairlead.engine.types.reasons import Code
from fairlead.kube import core, resource


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
class PodClaim:
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
    entries: tuple[PodClaim, ...] = ()
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
class GroupTerms:
    """What a PodGroup object of another system says of the gang of its name."""

    size: int
    queue: str | None = None
    topology: str | None = None  # as our annotation would say it


class Objects(Protocol):
    """What has to be looked up to understand a pod."""

    @property
    def drivers(self) -> tuple[str, ...]: ...
    @property
    def classes(self) -> Mapping[str, resource.DeviceClass]: ...
    def claim(self, namespace: str, name: str) -> resource.ResourceClaim | None: ...
    def claims_of(self, pod_uid: str) -> Iterable[resource.ResourceClaim]: ...
    def template(self, namespace: str, name: str) -> resource.ResourceClaimTemplate | None: ...
    def pod_group(self, api: str, namespace: str, name: str) -> GroupTerms | None: ...


def is_member(pod: core.Pod, objects: Objects) -> bool:
    if pod.has_gate(names.ADMISSION_GATE):
        return True
    return any(_holds(claim, pod, objects.drivers) for claim in _claims(pod, objects))


def member_of(pod: core.Pod, objects: Objects) -> Member:
    stage = _stage(pod)
    if stage in {Stage.SUCCEEDED, Stage.FAILED}:
        return Member(pod=pod, stage=stage, entries=tuple(_still_held(pod, objects)))
    entries: list[PodClaim] = []
    problems: list[Problem] = []
    legacy: list[str] = []
    named = claims.names_used(pod)
    not_needed = {s.name for s in pod.status.resource_claim_statuses if s.resource_claim_name is None}
    for use in pod.spec.resource_claims:
        if use.name in not_needed:
            continue
        if use.resource_claim_name:
            found: PodClaim | Problem | None = _named(pod, use, objects)
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


def _still_held(pod: core.Pod, objects: Objects) -> Iterable[PodClaim]:
    """What a finished pod holds until the claim controller has seen its end."""
    named = claims.names_used(pod)
    for use in pod.spec.resource_claims:
        claim = objects.claim(pod.metadata.namespace, named.get(use.name, ""))
        if claim is not None and _holds(claim, pod, objects.drivers):
            yield PodClaim(name=use.name, key=claim.metadata.uid, spec=claim.spec, claim=claim)


def _named(pod: core.Pod, use: core.PodResourceClaim, objects: Objects) -> PodClaim | Problem:
    name = use.resource_claim_name or ""
    claim = objects.claim(pod.metadata.namespace, name)
    where = f"ResourceClaim {pod.metadata.namespace}/{name}, which pod {pod.metadata.name} uses,"
    if claim is None:
        return Problem(code=Code.INVALID, message=f"{where} does not exist; create it")
    if claim.metadata.deletion_timestamp:
        return Problem(code=Code.INVALID, message=f"{where} is being deleted; create it anew once it is gone")
    return PodClaim(name=use.name, key=claim.metadata.uid, spec=claim.spec, claim=claim)


def _templated(
    pod: core.Pod, use: core.PodResourceClaim, named: str | None, objects: Objects, legacy: list[str]
) -> PodClaim | Problem:
    namespace, template_name = pod.metadata.namespace, use.resource_claim_template_name or ""
    claim = claims.settled(pod, use.name, named, objects.claims_of(pod.metadata.uid))
    if claim is not None:
        return PodClaim(
            name=use.name,
            key=claim.metadata.uid,
            spec=claim.spec,
            claim=claim,
            template=objects.template(namespace, template_name),
        )
    template = objects.template(namespace, template_name)
    if template is not None:
        return PodClaim(name=use.name, key=f"{pod.metadata.uid}/{use.name}", spec=template.spec.spec, template=template)
    where = f"ResourceClaimTemplate {namespace}/{template_name}, which pod {pod.metadata.name} uses,"
    if claims.is_legacy_template(template_name):
        legacy.append(template_name)
        return Problem(code=Code.GATHERING, message=f"{where} is being made")
    return Problem(code=Code.INVALID, message=f"{where} does not exist; create it")


def _stage(pod: core.Pod) -> Stage:
    if pod.status.phase == "Succeeded":
        return Stage.SUCCEEDED
    if pod.status.phase == "Failed":
        return Stage.FAILED
    if pod.has_gate(names.ADMISSION_GATE):
        return Stage.LEAVING if pod.metadata.deletion_timestamp else Stage.GATED
    return Stage.RELEASED


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
