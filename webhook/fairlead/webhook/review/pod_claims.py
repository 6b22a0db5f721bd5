"""Which of a pod's claims ask for managed devices, those of a driver that Fairlead allocates for.

A request is managed when its class's and its own selectors may select a device of a managed driver. While the claim, template
or class does not exist yet, that is UNKNOWN; such a pod is gated too, since a gate cannot be added later, and the controller
decides when the object exists. A claim that the webhook named is judged by what it comes from, as the pod's annotation records.
"""

from __future__ import annotations

import enum
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec.structs import replace

from fairlead.api import legacy
from fairlead.api.claim_sources import ClaimSource, Sources
from fairlead.api.drivers import legacy_driver
from fairlead.cel.devices.requests import Request, device_requests, may_serve, selectors_fault
from fairlead.kube import nulls
from fairlead.kube.resource import ResourceClaimSpec
from fairlead.webhook.objects.fields import Json, MalformedError, list_at, map_at, text_at
from fairlead.webhook.review.facts import Facts

_NO_SOURCES: Final[Sources] = MappingProxyType({})


class Managed(enum.Enum):
    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class PodClaim(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a pod's spec.resourceClaims.

    `missing` says what does not exist: for an unknown one, and for a named one whose template is not the recorded one any more.
    """

    managed: Managed
    spec: ResourceClaimSpec | None = None
    missing: str = ""
    path: str = ""
    """Where the claim's spec stands, for messages: the entry, the object that it names, and the field there."""
    template: str = ""
    uid: str = ""
    """What the claim is, or would be, made from: a template's name and UID, or a legacy request, which has no UID."""

    @property
    def wait(self) -> str:
        """`missing`, with what follows from it for a pod; "" where nothing is missing."""
        if not self.missing or self.managed is Managed.UNKNOWN:
            return self.missing and f"{self.missing}; the pod waits until it does"
        return f"{self.missing}; delete the pod, so that its owner recreates it"


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


def pod_claims(namespace: str, spec: Json, facts: Facts, sources: Sources = _NO_SOURCES) -> list[PodClaim]:
    """One PodClaim per entry of spec.resourceClaims, in order; `sources` as the pod's annotation records them.

    Raises MalformedError.
    """
    entries = list_at(spec, "resourceClaims", "spec")
    return [
        _pod_claim(namespace, entry, f"spec.resourceClaims[{i}]", facts, sources) for i, entry in enumerate(entries)
    ]


def _pod_claim(namespace: str, entry: Json, path: str, facts: Facts, sources: Sources) -> PodClaim:
    template = text_at(entry, "resourceClaimTemplateName", path)
    claim = text_at(entry, "resourceClaimName", path)
    source = sources.get(text_at(entry, "name", path)) if sources else None
    if source is not None and source.claim == claim and not template:
        return _by_source(namespace, source, path, facts)
    if template:
        return _by_template(namespace, template, path, facts)
    if not claim:
        return PodClaim(managed=Managed.NO)
    subject = f"{path}: ResourceClaim {namespace}/{claim}"
    spec = facts.claims.get((namespace, claim))
    if spec is None:
        return PodClaim(managed=Managed.UNKNOWN, missing=f"{subject} does not exist")
    return _by_spec(spec, path, f"{subject}: spec", facts)


def _by_template(namespace: str, name: str, path: str, facts: Facts) -> PodClaim:
    subject = _template_subject(namespace, name, path)
    found = facts.templates.get((namespace, name))
    if legacy.parse_template_name(name) is not None:
        spec = legacy_claim_spec(name, legacy_driver(facts.drivers))
        if found is None or found.spec == spec:
            # The controller makes this template when it finds the pod; its name says all, whatever its UID.
            return PodClaim(managed=Managed.YES, spec=spec, path=f"{subject}: spec.spec", template=name)
    if found is None:
        return PodClaim(managed=Managed.UNKNOWN, missing=f"{subject} does not exist")
    judged = _by_spec(found.spec, path, f"{subject}: spec.spec", facts)
    return replace(judged, template=name, uid=found.uid)


def _by_source(namespace: str, source: ClaimSource, path: str, facts: Facts) -> PodClaim:
    """The claim that the webhook named for the pod: managed, whether or not the controller has made it yet."""
    subject = _template_subject(namespace, source.template, path)
    if source.is_legacy:
        spec = legacy_claim_spec(source.template, legacy_driver(facts.drivers))
        return PodClaim(managed=Managed.YES, spec=spec, path=f"{subject}: spec.spec", template=source.template)
    found = facts.templates.get((namespace, source.template))
    known = PodClaim(managed=Managed.YES, template=source.template, uid=source.uid)
    if found is None or found.uid != source.uid:
        now = "it is gone" if found is None else f"the one of that name now is {found.uid}"
        return replace(known, missing=f"{subject} with UID {source.uid} does not exist any more: {now}")
    return replace(known, spec=found.spec, path=f"{subject}: spec.spec")


def _by_spec(spec: ResourceClaimSpec, path: str, where: str, facts: Facts) -> PodClaim:
    too_large = selectors_fault(spec, facts.classes, facts.drivers)
    if too_large is not None:
        raise MalformedError(f"{where}.devices.requests: {too_large}")
    managed = _claim_managed(spec, facts)
    missing = ""
    if managed is Managed.UNKNOWN:
        absent = next(
            r.device_class_name for _, r in device_requests(spec) if request_managed(r, facts) is Managed.UNKNOWN
        )
        missing = f"{path}: DeviceClass {absent} does not exist"
    return PodClaim(managed=managed, spec=spec, missing=missing, path=where)


def _template_subject(namespace: str, name: str, path: str) -> str:
    return f"{path}: ResourceClaimTemplate {namespace}/{name}"


def claim_spec(object_: Json, path: str) -> ResourceClaimSpec:
    """The claim spec at path: `spec` of a ResourceClaim, `spec.spec` of a template. Raises MalformedError."""
    spec = object_
    for step in path.split("."):
        spec = map_at(spec, step)
    try:
        return nulls.convert(spec, ResourceClaimSpec)
    except msgspec.ValidationError as error:
        raise MalformedError(f"{path}: {error}") from None


@lru_cache(maxsize=1024)
def legacy_claim_spec(template: str, driver: str) -> ResourceClaimSpec:
    """The spec that the template of that name has. Raises ValueError where the name stands for no legacy request."""
    return msgspec.convert(legacy.template_manifest(template, "", driver=driver)["spec"]["spec"], ResourceClaimSpec)
