"""A pod as a member of a gang: its claims looked up, its stage, and its problems in words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from fairlead.api import names
from fairlead.api.claim_sources import ClaimSource, ClaimSourcesError
from fairlead.controller.gangs import release
from fairlead.controller.gangs.claims import claims
from fairlead.controller.gangs.claims.allocations import allocated_node
from fairlead.controller.gangs.membership.gangs import named_gang
from fairlead.controller.gangs.membership.members import (
    ANYWHERE,
    GangProblem,
    Lookup,
    Member,
    PodClaim,
    Stage,
    reserved_for_pod,
)
from fairlead.engine.types.reasons import Code
from fairlead.kube import core, resource


def is_member(pod: core.Pod, lookup: Lookup) -> bool:
    if pod.has_gate(names.ADMISSION_GATE):
        return True
    if names.RELEASED_AT in pod.metadata.annotations and not pod.finished and _is_any_member(pod):
        return True
    return any(_holds(claim, pod, lookup.drivers) for claim in _claims(pod, lookup))


def _is_any_member(pod: core.Pod) -> bool:
    """Whether the pod is a member of the gang that it names though it should ask for no device."""
    return pod.metadata.annotations.get(names.MEMBERS) == "all" and named_gang(pod) is not None


def member_of(pod: core.Pod, lookup: Lookup) -> Member:
    stage = _stage(pod)
    if stage in {Stage.SUCCEEDED, Stage.FAILED}:
        return Member(pod=pod, stage=stage, claims=tuple(_still_held(pod, lookup)))
    found: list[PodClaim] = []
    problems: list[GangProblem] = []
    sources: dict[str, ClaimSource] = {}
    try:
        sources = claims.sources(pod)
    except ClaimSourcesError as error:
        problems.append(claims.unreadable(pod, error))
    legacy_templates: set[str] = set()
    named = claims.names_used(pod)
    not_needed = {s.name for s in pod.status.resource_claim_statuses if s.resource_claim_name is None}
    for use in pod.spec.resource_claims:
        if use.name in not_needed:
            continue
        if use.name in sources:
            looked_up = claims.named_claim(pod, use.name, sources[use.name], lookup, gated=stage is Stage.GATED)
        elif use.resource_claim_name:
            looked_up = _named(pod, use, lookup)
        else:
            looked_up = _templated(pod, use, named.get(use.name), lookup, legacy_templates)
        if isinstance(looked_up, GangProblem):
            problems.append(looked_up)
            continue
        if looked_up.claim is not None and _awaits_binding(looked_up.claim, pod, lookup.drivers):
            looked_up = replace(looked_up, unreserved=True)
        managed = claims.managed(looked_up.spec, lookup.classes, lookup.drivers, lookup.shared_drivers)
        if managed.problem and stage is Stage.GATED:
            problems.append(GangProblem(code=Code.INVALID, message=f"pod {pod.metadata.name}: {managed.problem}"))
        if managed.ours or (stage is Stage.GATED and looked_up.reserved_for(pod.metadata.uid)):
            found.append(looked_up)
    without_devices = not (found or problems or legacy_templates) and _is_any_member(pod)
    if stage is Stage.GATED:
        found += _still_reserved(pod, found, named, sources, lookup)
        problems += _other_gates(pod)
    needs = lookup.volume_needs(pod) if stage is Stage.GATED and pod.spec.volumes else ANYWHERE
    problems += [] if needs.problem is None else [needs.problem]
    return Member(
        pod=pod,
        stage=stage,
        claims=tuple(found),
        without_devices=without_devices,
        problems=tuple(problems),
        legacy_templates=tuple(sorted(legacy_templates)),
        unseen_templates=claims.unseen_templates(pod, sources, lookup) if stage is Stage.GATED else (),
        volumes=needs.where,
        leaving_claims=_leaving(pod, named.values(), lookup)
        if stage is Stage.RELEASED and not pod.spec.node_name
        else (),
    )


def _leaving(pod: core.Pod, named: Iterable[str], lookup: Lookup) -> tuple[str, ...]:
    found = ((name, lookup.claim(pod.metadata.namespace, name)) for name in set(named))
    return tuple(sorted(name for name, claim in found if claim is not None and claim.metadata.deletion_timestamp))


def _other_gates(pod: core.Pod) -> list[GangProblem]:
    others = [gate.name for gate in pod.spec.scheduling_gates if gate.name != names.ADMISSION_GATE]
    if not others:
        return []
    message = f"pod {pod.metadata.name} has other scheduling gates: {', '.join(others)}; what set them must remove them"
    if names.KUEUE_GATE in others:
        message += (
            f" ({names.KUEUE_GATE}: Kueue admits the pod first, by its own quota; without Kueue's label it would not)"
        )
    return [GangProblem(code=Code.GATHERING, message=message)]


def _still_held(pod: core.Pod, lookup: Lookup) -> Iterable[PodClaim]:
    """What a finished pod holds until the claim controller removes its reservations."""
    named = claims.names_used(pod)
    for use in pod.spec.resource_claims:
        claim = lookup.claim(pod.metadata.namespace, named.get(use.name, ""))
        if claim is not None and _holds(claim, pod, lookup.drivers):
            yield _existing(pod, use, claim)


def _still_reserved(
    pod: core.Pod,
    found: Iterable[PodClaim],
    named: Mapping[str, str],
    sources: Mapping[str, ClaimSource],
    lookup: Lookup,
) -> list[PodClaim]:
    """Claims that a gated pod cannot have, and that an admission reserved for it before: until that is undone nothing frees them.

    Example: the leader dies between the allocation and the release, and meanwhile the claim is deleted: its reservation and its
    finalizer keep it, and the pod waits for it to be gone.
    """
    known = {each.claim.metadata.uid for each in found if each.claim is not None}
    kept = []
    for use in pod.spec.resource_claims:
        source = sources.get(use.name)
        name = source.claim if source is not None else use.resource_claim_name or named.get(use.name) or ""
        claim = lookup.claim(pod.metadata.namespace, name)
        if claim is None or claim.metadata.uid in known:
            continue
        if any(reference.uid == pod.metadata.uid for reference in claim.status.reserved_for):
            kept.append(replace(_existing(pod, use, claim), source=source))
    return kept


def _existing(pod: core.Pod, use: core.PodResourceClaim, claim: resource.ResourceClaim) -> PodClaim:
    group = claims.group_of(pod)
    return PodClaim(name=use.name, key=claim.metadata.uid, spec=claim.spec, claim=claim, pod_group=group)


def _named(pod: core.Pod, use: core.PodResourceClaim, lookup: Lookup) -> PodClaim | GangProblem:
    name = use.resource_claim_name or ""
    claim = lookup.claim(pod.metadata.namespace, name)
    where = f"ResourceClaim {pod.metadata.namespace}/{name}, which pod {pod.metadata.name} uses,"
    if claim is None:
        return GangProblem(code=Code.INVALID, message=f"{where} does not exist; create it")
    if claim.metadata.deletion_timestamp:
        return GangProblem(code=Code.INVALID, message=f"{where} is being deleted; create it again once it is gone")
    return _existing(pod, use, claim)


def _templated(
    pod: core.Pod, use: core.PodResourceClaim, named: str | None, lookup: Lookup, legacy_templates: set[str]
) -> PodClaim | GangProblem:
    """Adds to `legacy_templates` the name of a missing template that the controller creates itself."""
    namespace, template_name = pod.metadata.namespace, use.resource_claim_template_name or ""
    group = claims.group_claim(pod, use, lookup)
    of_group = lookup.claim(namespace, named or (group.claim if group is not None else ""))
    if of_group is not None and claims.owned_by_group(of_group, pod):
        return _existing(pod, use, of_group)
    claim = claims.claim_in_use(pod, use.name, named, lookup.claims_of(pod))
    template = lookup.template(namespace, template_name)
    if claim is not None:
        return replace(_existing(pod, use, claim), template=template)
    if group is not None:
        message = (
            f"the claim of PodGroup {namespace}/{claims.group_of(pod)} for its entry {use.name} is not made yet; kube-controller-manager "
            f"makes it, with the feature gate DRAWorkloadResourceClaims"
        )
        return GangProblem(code=Code.GATHERING, message=message)
    if template is not None:
        return PodClaim(name=use.name, key=f"{pod.metadata.uid}/{use.name}", spec=template.spec.spec, template=template)
    where = f"ResourceClaimTemplate {namespace}/{template_name}, which pod {pod.metadata.name} uses,"
    if claims.is_legacy_template(template_name):
        legacy_templates.add(template_name)
        return GangProblem(code=Code.GATHERING, message=f"{where} is being made")
    message = f"{where} does not exist yet; create it, or what makes it, such as a ComputeDomain"
    return GangProblem(code=Code.GATHERING, message=message)


def _stage(pod: core.Pod) -> Stage:
    if pod.status.phase == "Succeeded":
        return Stage.SUCCEEDED
    if pod.status.phase == "Failed":
        return Stage.FAILED
    if pod.has_gate(names.ADMISSION_GATE):
        return Stage.DELETED if pod.metadata.deletion_timestamp else Stage.GATED
    return Stage.RELEASED


def _claims(pod: core.Pod, lookup: Lookup) -> Iterable[resource.ResourceClaim]:
    """Claims created for the pod, even if its status no longer names them, and claims that it names."""
    yield from lookup.claims_of(pod)
    for name in claims.names_used(pod).values():
        claim = lookup.claim(pod.metadata.namespace, name)
        if claim is not None:
            yield claim


def _holds(claim: resource.ResourceClaim, pod: core.Pod, drivers: tuple[str, ...]) -> bool:
    """A pod that has ended holds no longer what is reserved for its PodGroup: the others do."""
    group = "" if pod.finished else claims.group_of(pod)
    reserved = reserved_for_pod(claim, pod.metadata.uid, group)
    return (reserved and _of_drivers(claim, drivers)) or _awaits_binding(claim, pod, drivers)


def _awaits_binding(claim: resource.ResourceClaim, pod: core.Pod, drivers: tuple[str, ...]) -> bool:
    """Whether a released pod has the claim without being in its reservations, until kube-scheduler binds it.

    A bind that fails takes the reservation away, whichever client made it, and the next try makes it again; the allocation
    stays. Source: dynamicresources.go, Unreserve and PreBind.
    """
    if _stage(pod) is not Stage.RELEASED or pod.spec.node_name or reserved_for_pod(claim, pod.metadata.uid, ""):
        return False
    pinned = release.pinned_node(pod)
    return pinned is not None and pinned == allocated_node(claim) and _of_drivers(claim, drivers)


def _of_drivers(claim: resource.ResourceClaim, drivers: tuple[str, ...]) -> bool:
    allocation = claim.status.allocation
    return allocation is not None and any(result.driver in drivers for result in allocation.devices.results)
