"""A pod's claims: which of them are ours, which one counts where two were made, and how a new one looks.

Exists because both the claim controller and we make template claims. The rule: the claim that the pod's status names
counts; where it names none, one that exists already (theirs before ours, so that both sides name the same); the others
are strays and are deleted. Pure.
Source: kube-controller-manager resourceclaim controller, `handleClaim`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.api import legacy, names
from fairlead.cel.requests import device_requests, may_serve
from fairlead.kube import core, resource
from fairlead.kube.objects import to_dict

SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
BASE_MAX = 57  # a claim's name is at most 63 here: base, hyphen, five random characters


@dataclass(frozen=True, slots=True)
class Managed:
    """Whether a claim is ours to allocate. `problem` names what does not exist, where that leaves it open."""

    ours: bool
    problem: str = ""


def managed(
    spec: resource.ResourceClaimSpec, classes: Mapping[str, resource.DeviceClass], drivers: tuple[str, ...]
) -> Managed:
    """Ours when one of its requests may be served by a managed driver, as class and request select."""
    missing = ""
    for _, ask in device_requests(spec):
        device_class = classes.get(ask.device_class_name)
        if not may_serve(ask, device_class, drivers):
            continue
        if device_class is not None:
            return Managed(ours=True)
        missing = missing or f"DeviceClass {ask.device_class_name} does not exist; create it or ask for another"
    return Managed(ours=False, problem=missing)


def is_legacy_template(name: str) -> bool:
    return legacy.parse_template_name(name) is not None


def names_used(pod: core.Pod) -> dict[str, str]:
    """Entry of spec.resourceClaims → claim name, as far as it is settled."""
    made = {s.name: s.resource_claim_name for s in pod.status.resource_claim_statuses if s.resource_claim_name}
    used: dict[str, str] = {}
    for use in pod.spec.resource_claims:
        name = use.resource_claim_name or made.get(use.name)
        if name:
            used[use.name] = name
    return used


def owned_by(claim: resource.ResourceClaim, pod: core.Pod, entry: str) -> bool:
    controller = claim.metadata.controller
    return (
        controller is not None
        and controller.uid == pod.metadata.uid
        and claim.metadata.annotations.get(names.POD_CLAIM_NAME) == entry
    )


def settled(
    pod: core.Pod, entry: str, named: str | None, owned: Iterable[resource.ResourceClaim]
) -> resource.ResourceClaim | None:
    """The claim that counts for one template entry, or None when one has to be made. See the head note."""
    candidates = sorted(
        (claim for claim in owned if owned_by(claim, pod, entry) and not claim.metadata.deletion_timestamp),
        key=lambda claim: (
            claim.status.allocation is None,
            claim.metadata.name != named,
            is_ours(claim),
            claim.metadata.name,
        ),
    )
    if not candidates:
        return None
    best = candidates[0]
    theirs = next((claim for claim in candidates if not is_ours(claim)), None)
    if best.metadata.name == named and is_ours(best) and best.status.allocation is None and theirs is not None:
        return theirs  # the claim controller is about to name its own; agree before anything is written
    return best


def strays(
    pod: core.Pod, entry: str, named: str | None, owned: Iterable[resource.ResourceClaim]
) -> list[resource.ResourceClaim]:
    """Claims made for this entry that do not count, once the pod's status names the one that does."""
    owned = list(owned)
    counting = settled(pod, entry, named, owned)
    if counting is None or counting.metadata.name != named:
        return []
    return [
        claim
        for claim in owned
        if owned_by(claim, pod, entry)
        and claim.metadata.uid != counting.metadata.uid
        and claim.status.allocation is None
        and not claim.metadata.deletion_timestamp
    ]


def is_ours(claim: resource.ResourceClaim) -> bool:
    """Whether we made it."""
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
    """A template's claim for one pod, with the finalizer already in. `raw_spec` is the template's, every field kept."""
    metadata = template.spec.metadata
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": name,
            "namespace": pod.metadata.namespace,
            "labels": {**metadata.labels, names.MANAGED_BY: names.MANAGED_BY_VALUE},
            "annotations": {**metadata.annotations, names.POD_CLAIM_NAME: entry},
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


def typed_spec(template: resource.ResourceClaimTemplate) -> dict[str, Any]:
    """The template's spec as JSON from the typed struct: for tests; programs send the raw one."""
    return to_dict(template.spec.spec)
