"""Which of a pod's claims ask for managed devices, those of a driver that Fairlead allocates for.

A request is managed when its class's and its own selectors may select a device of a managed driver. While the claim, template
or class does not exist yet, that is UNKNOWN; such a pod is gated too, since a gate cannot be added later, and the controller
decides when the object exists.
"""

from __future__ import annotations

import enum

import msgspec

from fairlead.api import legacy
from fairlead.cel.requests import Request, device_requests, may_serve
from fairlead.kube.resource import ResourceClaimSpec
from fairlead.webhook.objects.claim_specs import legacy_claim_spec
from fairlead.webhook.objects.fields import Json, list_at, text_at
from fairlead.webhook.review.facts import Facts


class Managed(enum.Enum):
    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class PodClaim(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a pod's spec.resourceClaims. `missing` says what does not exist, for an unknown one."""

    managed: Managed
    spec: ResourceClaimSpec | None = None
    missing: str = ""
    path: str = ""
    """Where the claim's spec stands, for messages: the entry, the object that it names, and the field there."""


def request_managed(request: Request, facts: Facts) -> Managed:
    """Whether one request may be served by a managed driver."""
    device_class = facts.classes.get(request.device_class_name)
    if not may_serve(request, device_class, facts.drivers):
        return Managed.NO
    return Managed.UNKNOWN if device_class is None else Managed.YES


def managed_requests(spec: ResourceClaimSpec, facts: Facts) -> list[tuple[str, Request]]:
    """The requests of a claim that a managed driver may serve, each with its path below the claim's spec."""
    return [
        (path, request) for path, request in device_requests(spec) if request_managed(request, facts) is not Managed.NO
    ]


def _claim_managed(spec: ResourceClaimSpec, facts: Facts) -> Managed:
    """Whether any request of a claim may be served by a managed driver."""
    found = {request_managed(request, facts) for _, request in device_requests(spec)}
    return next((verdict for verdict in (Managed.YES, Managed.UNKNOWN) if verdict in found), Managed.NO)


def pod_claims(namespace: str, spec: Json, facts: Facts) -> list[PodClaim]:
    """One PodClaim per entry of spec.resourceClaims, in order. Raises MalformedError."""
    entries = list_at(spec, "resourceClaims", "spec")
    return [_pod_claim(namespace, entry, f"spec.resourceClaims[{i}]", facts) for i, entry in enumerate(entries)]


def _pod_claim(namespace: str, entry: Json, path: str, facts: Facts) -> PodClaim:
    template = text_at(entry, "resourceClaimTemplateName", path)
    claim = text_at(entry, "resourceClaimName", path)
    kind, name, field = (
        ("ResourceClaimTemplate", template, "spec.spec") if template else ("ResourceClaim", claim, "spec")
    )
    if not name:
        return PodClaim(managed=Managed.NO)
    subject = f"{path}: {kind} {namespace}/{name}"
    found = (facts.templates if template else facts.claims).get((namespace, name))
    if found is None and template and legacy.parse_template_name(template) is not None:
        # The controller creates this template when it finds the pod.
        spec = legacy_claim_spec(template, facts.drivers[0])
        return PodClaim(managed=Managed.YES, spec=spec, path=f"{subject}: {field}")
    if found is None:
        return PodClaim(managed=Managed.UNKNOWN, missing=subject)
    managed = _claim_managed(found, facts)
    missing = ""
    if managed is Managed.UNKNOWN:
        absent = next(
            r.device_class_name for _, r in device_requests(found) if request_managed(r, facts) is Managed.UNKNOWN
        )
        missing = f"{path}: DeviceClass {absent}"
    return PodClaim(managed=managed, spec=found, missing=missing, path=f"{subject}: {field}")
