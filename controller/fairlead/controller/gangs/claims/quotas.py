"""What claims count for in ResourceQuotas, and what the quotas of a namespace limit.

Kubernetes charges a claim when it is created: one `count/resourceclaims.resource.k8s.io`, and for each of its requests so many
`<class>.deviceclass.resource.k8s.io/devices`: the count of an exact request, 32 for All, for firstAvailable the most that one
alternative of the class asks for; adminAccess makes no difference. Since 1.36 each class counts under
`requests.deviceclass.resource.kubernetes.io/<class>`, too, and one with an extendedResourceName under `requests.<that name>`.
Source: pkg/quota/v1/evaluator/core/resource_claims.go, `Usage` and `addExtendedResourceQuota` (1.36.2; tried there).

One thing the apiserver does not count: that a claim stands for a legacy limit. The webhook takes `nvidia.com/gpu: 2` out of the
pod, so the pod no longer counts for a quota on `requests.nvidia.com/gpu`. Such claims, recognized by the annotation that
`legacy.template_manifest` puts on them, are therefore charged here, when they are allocated. Where their class has that
extendedResourceName, the apiserver does it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fairlead.api import legacy, names
from fairlead.controller.gangs.membership.members import Member, PodClaim
from fairlead.engine.types.settings import NamespaceQuota
from fairlead.kube import resource
from fairlead.kube.quantity import Quantity, QuantityError
from fairlead.kube.resources import Raw

CLAIM_COUNT = "count/resourceclaims.resource.k8s.io"
PER_CLASS = ".deviceclass.resource.k8s.io/devices"
IMPLICIT = "requests.deviceclass.resource.kubernetes.io/"
REQUESTS = "requests."
ALL_DEVICES = 32  # resource.k8s.io/v1: AllocationResultsMaxSize

Charge = dict[str, int]
Classes = Mapping[str, resource.DeviceClass]


@dataclass(frozen=True, slots=True)
class ClaimCharge:
    """`created`: what the apiserver charges for the claim. `allocated`: what is charged here once it has devices."""

    created: Mapping[str, int]
    allocated: Mapping[str, int]


def claim_charge(spec: resource.ResourceClaimSpec, annotations: Mapping[str, str], classes: Classes) -> ClaimCharge:
    devices: Charge = {}
    for request in spec.devices.requests:
        most: Charge = {}
        for asked in request.first_available or ((request.exactly,) if request.exactly else ()):
            name = asked.device_class_name
            most[name] = max(most.get(name, 0), _devices(asked.allocation_mode, asked.count))
        add(devices, most)
    created: Charge = {CLAIM_COUNT: 1}
    for name, count in devices.items():
        created[f"{name}{PER_CLASS}"] = count
        created[f"{IMPLICIT}{name}"] = count
        known = classes.get(name)
        if known is not None and known.spec.extended_resource_name:
            created[f"{REQUESTS}{known.spec.extended_resource_name}"] = count
    limit = legacy.parse_template_name(annotations.get(names.LEGACY_REQUEST, ""))
    allocated: Charge = {}
    if limit is not None and f"{REQUESTS}{limit.resource}" not in created:
        allocated[f"{REQUESTS}{limit.resource}"] = limit.count
    return ClaimCharge(created, allocated)


def admission_charge(
    members: Iterable[Member], limited: frozenset[str], classes: Classes
) -> tuple[tuple[str, int], ...]:
    """What an admission of these members adds to the quotas that limit their namespace, by resource."""
    total: Charge = {}
    seen: set[str] = set()
    for member in members if limited else ():
        for pod_claim in member.claims:
            if pod_claim.key in seen:
                continue
            seen.add(pod_claim.key)
            charge = claim_charge(pod_claim.spec, _annotations(pod_claim), classes)
            if pod_claim.claim is None:
                add(total, charge.created)
            if not pod_claim.allocated:
                add(total, charge.allocated)
    return tuple(sorted((name, count) for name, count in total.items() if name in limited))


def limits(quota: Raw) -> tuple[NamespaceQuota, ...]:
    """What a ResourceQuota says about claims, `used` as its status says.

    The apiserver goes by `status.hard`, which follows `spec.hard` a moment later: the lower one counts. A quota with scopes
    limits pods only.
    """
    spec, status, meta = quota.get("spec") or {}, quota.get("status") or {}, quota["metadata"]
    if spec.get("scopes") or spec.get("scopeSelector"):
        return ()
    hard, used = status.get("hard") or {}, status.get("used") or {}
    found = []
    for name, value in sorted((spec.get("hard") or {}).items()):
        if not _limits_claims(name):
            continue
        try:
            limit = min(int(Quantity.of(each)) for each in (value, hard.get(name, value)))
            in_use = int(Quantity.of(used.get(name, 0)))
        except QuantityError:  # the apiserver admits none
            continue
        found.append(
            NamespaceQuota(namespace=meta["namespace"], name=meta["name"], resource=name, limit=limit, used=in_use)
        )
    return tuple(found)


def add(total: Charge, more: Mapping[str, int], times: int = 1) -> None:
    for name, count in more.items():
        total[name] = total.get(name, 0) + count * times


def _limits_claims(name: str) -> bool:
    if name == CLAIM_COUNT or name.endswith(PER_CLASS):
        return True
    return name.startswith(REQUESTS) and "/" in name


def _devices(mode: str | None, count: int | None) -> int:
    if (mode or "ExactCount") == "ExactCount":
        return count or 1
    return ALL_DEVICES if mode == "All" else 0


def _annotations(pod_claim: PodClaim) -> Mapping[str, str]:
    if pod_claim.claim is not None:
        return pod_claim.claim.metadata.annotations
    return pod_claim.template.spec.metadata.annotations if pod_claim.template is not None else {}
