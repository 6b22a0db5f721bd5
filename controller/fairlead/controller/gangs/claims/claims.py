"""The ResourceClaims of a pod: which are managed here, which one is in use where two exist, and what a new one contains.

Claims that the webhook named are made by Fairlead alone. The webhook recorded their source (`fairlead.api.claim_sources`) when the
pod was created. Since then the template may have been deleted or replaced, and another may have made a claim of that name; each is a
problem of the pod with its cure, never a claim of something else. The cure is the pod's deletion: its owner makes another.

For an entry that still names a template the claim controller's claim is awaited, and Fairlead makes one only when it does not come;
so two may exist. In use is the claim that the pod's status names; where it names none, an existing one, the claim controller's before
Fairlead's, so that both sides name the same. An allocated claim is always in use. The others are duplicates and are deleted. Pure.
Source: kube-controller-manager resourceclaim controller, `handleClaim`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from fairlead.api import legacy, names
from fairlead.api.claim_sources import ClaimSource, ClaimSourcesError, read
from fairlead.api.drivers import legacy_driver
from fairlead.cel.devices.managed import reads_driver
from fairlead.cel.devices.requests import device_requests, expressions, may_serve, others_fault, selectors_fault
from fairlead.controller.gangs.claims import claims
from fairlead.controller.gangs.membership.members import GangProblem, GroupClaim, Lookup, PodClaim
from fairlead.engine.types.reasons import Code
from fairlead.kube import core, resource

SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
BASE_MAX = 57  # a claim's name is at most 63 here: base, hyphen, five random characters


@dataclass(frozen=True, slots=True)
class Managed:
    """Whether a claim is to be allocated here. `problem`: a missing DeviceClass leaves this open, or devices of others stand in it, too."""

    ours: bool
    problem: str = ""


def managed(
    spec: resource.ResourceClaimSpec,
    classes: Mapping[str, resource.DeviceClass],
    drivers: tuple[str, ...],
    shared: tuple[str, ...] = (),
) -> Managed:
    """Managed when a managed driver may serve one of the requests, by the selectors of class and request."""
    asks = [ask for _, ask in device_requests(spec)]
    compiles = any(reads_driver(text) for ask in asks for text in expressions(ask.selectors))
    if compiles and selectors_fault(spec, classes, drivers) is not None:
        return Managed(ours=True)  # in doubt; the decision refuses it, with the reason, and compiles nothing
    missing = ""
    for ask in asks:
        device_class = classes.get(ask.device_class_name)
        if not may_serve(ask, device_class, drivers):
            continue
        if device_class is not None:
            return Managed(ours=True, problem=others_fault(spec, classes, drivers, shared) or "")
        missing = missing or f"DeviceClass {ask.device_class_name} does not exist; create it or ask for another"
    return Managed(ours=False, problem=missing)


def is_legacy_template(name: str) -> bool:
    return legacy.parse_template_name(name) is not None


def names_used(pod: core.Pod) -> dict[str, str]:
    """Claim name by entry of spec.resourceClaims, for the entries whose claim spec or status names."""
    made = {s.name: s.resource_claim_name for s in pod.status.resource_claim_statuses if s.resource_claim_name}
    used: dict[str, str] = {}
    for use in pod.spec.resource_claims:
        name = use.resource_claim_name or made.get(use.name)
        if name:
            used[use.name] = name
    return used


def owned_by(claim: resource.ResourceClaim, pod: core.Pod, entry: str) -> bool:
    """Whether the claim was created for this entry of this pod."""
    controller = claim.metadata.controller
    return (
        controller is not None
        and controller.uid == pod.metadata.uid
        and claim.metadata.namespace == pod.metadata.namespace
        and claim.metadata.annotations.get(names.POD_CLAIM_NAME) == entry
    )


def group_of(pod: core.Pod) -> str:
    """The name of the native PodGroup that the pod belongs to; "" where it belongs to none."""
    group = pod.spec.scheduling_group
    return (group.pod_group_name or "") if group else ""


def group_claim(pod: core.Pod, use: core.PodResourceClaim, lookup: Lookup) -> GroupClaim | None:
    """The claim of the pod's PodGroup that this template entry means; None where the group has none of that name and template."""
    group = group_of(pod)
    terms = lookup.pod_group("scheduling.k8s.io", pod.metadata.namespace, group) if group else None
    return None if terms is None else terms.claim_of(use.name, use.resource_claim_template_name or "")


def owned_by_group(claim: resource.ResourceClaim, pod: core.Pod) -> bool:
    """Whether the claim was created for the pod's PodGroup: the claim controller makes one for all its pods."""
    owner, group = claim.metadata.controller, group_of(pod)
    return (
        owner is not None
        and bool(group)
        and (owner.kind, owner.name) == ("PodGroup", group)
        and owner.api_version.partition("/")[0] == "scheduling.k8s.io"
    )


def claim_in_use(
    pod: core.Pod, entry: str, named: str | None, owned: Iterable[resource.ResourceClaim]
) -> resource.ResourceClaim | None:
    """The one of the pod's `owned` claims that is in use for a template entry; None when one has to be created.

    `named` is what the pod's status names. Order: allocated, named, the claim controller's, then by name.
    """
    candidates = sorted(
        (claim for claim in owned if owned_by(claim, pod, entry) and not claim.metadata.deletion_timestamp),
        key=lambda claim: (
            claim.status.allocation is None,
            claim.metadata.name != named,
            created_here(claim),
            claim.metadata.name,
        ),
    )
    if not candidates:
        return None
    best = candidates[0]
    other = next((claim for claim in candidates if not created_here(claim)), None)
    if best.metadata.name == named and created_here(best) and best.status.allocation is None and other is not None:
        return other  # the claim controller is about to name its own; agree before anything is written
    return best


def duplicates(
    pod: core.Pod, entry: str, named: str | None, owned: Iterable[resource.ResourceClaim]
) -> list[resource.ResourceClaim]:
    """Unallocated claims of this entry that are not in use, once the pod's status names the one that is."""
    owned = list(owned)
    used = claim_in_use(pod, entry, named, owned)
    if used is None or used.metadata.name != named:
        return []
    return [
        claim
        for claim in owned
        if owned_by(claim, pod, entry)
        and claim.metadata.uid != used.metadata.uid
        and claim.status.allocation is None
        and not claim.metadata.deletion_timestamp
    ]


def created_here(claim: resource.ResourceClaim) -> bool:
    """Whether Fairlead created the claim, rather than the claim controller."""
    return claim.metadata.labels.get(names.MANAGED_BY) == names.MANAGED_BY_VALUE


def claim_name(pod: str, entry: str, pick: Callable[[str], str]) -> str:
    """`<pod>-<entry>-<rand5>`, shortened as the claim controller does; `pick` chooses a character."""
    base = f"{pod}-{entry}"
    if len(base) > BASE_MAX:
        keep = BASE_MAX - 1
        total = len(pod) + len(entry)
        base = f"{pod[: len(pod) * keep // total]}-{entry[: len(entry) * keep // total]}"
    return f"{base}-{''.join(pick(SUFFIX_ALPHABET) for _ in range(5))}"


def manifest(
    pod: core.Pod, entry: str, template: resource.ResourceClaimTemplate, *, name: str, raw_spec: Mapping[str, Any]
) -> dict[str, Any]:
    """A template's claim for one pod, finalizer included. `raw_spec` is the template's, every field kept.

    Of a legacy limit it says so whatever the template's metadata say: a user may have created the template first.
    """
    metadata = template.spec.metadata
    name_of_limit = template.metadata.name
    limit = {names.LEGACY_REQUEST: name_of_limit} if is_legacy_template(name_of_limit) else {}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": name,
            "namespace": pod.metadata.namespace,
            "labels": {**metadata.labels, names.MANAGED_BY: names.MANAGED_BY_VALUE},
            "annotations": {**metadata.annotations, **limit, names.POD_CLAIM_NAME: entry},
            "finalizers": [names.CLAIM_FINALIZER],
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": pod.metadata.name,
                    "uid": pod.metadata.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": dict(raw_spec),
    }


def sources(pod: core.Pod) -> dict[str, ClaimSource]:
    """By entry, for the entries whose claim of that name the pod's spec uses. Raises ClaimSourcesError."""
    if names.CLAIM_SOURCES not in pod.metadata.annotations:
        return {}
    recorded = read(pod.metadata.annotations)
    used = {use.name: use.resource_claim_name for use in pod.spec.resource_claims}
    return {entry: source for entry, source in recorded.items() if used.get(entry) == source.claim}


def named_claim(
    pod: core.Pod, entry: str, source: ClaimSource, lookup: Lookup, *, gated: bool
) -> PodClaim | GangProblem:
    """The pod's claim, made or still to be made. `gated`: whether its devices may still be chosen."""
    template = source_template(pod.metadata.namespace, source, lookup)
    claim = lookup.claim(pod.metadata.namespace, source.claim)
    if claim is None:
        if template is None:
            return _problem(pod, entry, _template_gone(pod, source, lookup))
        return PodClaim(
            name=entry,
            key=f"{pod.metadata.uid}/{entry}",
            spec=template.spec.spec,
            template=template,
            source=source,
        )
    if gated and (problem := _unfit(pod, entry, claim, template)) is not None:
        return problem
    return PodClaim(name=entry, key=claim.metadata.uid, spec=claim.spec, template=template, claim=claim, source=source)


def source_template(namespace: str, source: ClaimSource, lookup: Lookup) -> resource.ResourceClaimTemplate | None:
    """The template that was judged, or one made of the legacy request; None where the template is gone or another."""
    if source.is_legacy:
        return legacy_template(source.template, namespace, legacy_driver(lookup.drivers))
    found = lookup.template(namespace, source.template)
    return found if found is not None and found.metadata.uid == source.uid else None


def unseen_templates(pod: core.Pod, recorded: Mapping[str, ClaimSource], lookup: Lookup) -> tuple[str, ...]:
    """Names of the templates that are needed and not known, or known as another."""
    namespace = pod.metadata.namespace
    return tuple(
        sorted(
            {
                source.template
                for source in recorded.values()
                if lookup.claim(namespace, source.claim) is None and source_template(namespace, source, lookup) is None
            }
        )
    )


@functools.lru_cache(maxsize=1024)
def legacy_template(name: str, namespace: str, driver: str) -> resource.ResourceClaimTemplate:
    """What a legacy request stands for; no such object exists in the cluster."""
    return msgspec.convert(legacy.template_manifest(name, namespace, driver=driver), resource.ResourceClaimTemplate)


def unreadable(pod: core.Pod, error: ClaimSourcesError) -> GangProblem:
    return GangProblem(code=Code.INVALID, message=f"pod {pod.metadata.name}: {error}; delete the pod")


def _unfit(
    pod: core.Pod, entry: str, claim: resource.ResourceClaim, template: resource.ResourceClaimTemplate | None
) -> GangProblem | None:
    key = claim.metadata.key
    if not claims.owned_by(claim, pod, entry):
        return _problem(pod, entry, f"ResourceClaim {key} exists, and was not made for this pod")
    if template is not None and claim.spec != template.spec.spec:
        return _problem(pod, entry, f"ResourceClaim {key} asks for something else than {template.metadata.name}")
    if claim.metadata.deletion_timestamp:
        text = f"ResourceClaim {key} of pod {pod.metadata.name} is being deleted; it is made again when it is gone"
        return GangProblem(code=Code.GATHERING, message=text)
    return None


def _template_gone(pod: core.Pod, source: ClaimSource, lookup: Lookup) -> str:
    where = f"ResourceClaimTemplate {pod.metadata.namespace}/{source.template}"
    if lookup.template(pod.metadata.namespace, source.template) is None:
        return f"{where} was deleted after the pod was created"
    return f"{where} was deleted and created again after the pod was created"


def _problem(pod: core.Pod, entry: str, why: str) -> GangProblem:
    cure = "delete the pod, so that its owner makes another"
    return GangProblem(
        code=Code.INVALID, message=f"pod {pod.metadata.name}, spec.resourceClaims[{entry}]: {why}; {cure}"
    )
