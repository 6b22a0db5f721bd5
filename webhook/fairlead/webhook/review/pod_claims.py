"""Which of a pod's claims ask for devices that Fairlead manages.

Exists so that "managed" is decided once: a request is managed when its class's and its own selectors may
select a device of a managed driver. A claim, template or class that does not exist (yet) leaves it unknown;
such a pod is gated too, since a gate cannot be added later, and the controller decides when the object comes.
"""

from __future__ import annotations

import enum
from functools import lru_cache

import msgspec

from fairlead.api import legacy
from fairlead.cel.asks import Ask, asks, may_serve
from fairlead.kube.resource import ResourceClaimSpec
from fairlead.webhook.objects.fields import Json, list_at, text_at
from fairlead.webhook.review.facts import Facts


class Managed(enum.Enum):
    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a pod's spec.resourceClaims. `missing` says what does not exist, for an unknown one."""

    managed: Managed
    spec: ResourceClaimSpec | None = None
    missing: str = ""
    path: str = ""
    """Where the claim's spec stands, for messages: the entry, the object that it names, and the field there."""


def ask_managed(ask: Ask, facts: Facts) -> Managed:
    """Whether one request may be served by a managed driver."""
    device_class = facts.classes.get(ask.device_class_name)
    if not may_serve(ask, device_class, facts.drivers):
        return Managed.NO
    return Managed.UNKNOWN if device_class is None else Managed.YES


def spec_managed(spec: ResourceClaimSpec, facts: Facts) -> Managed:
    """Whether any request of a claim may be served by a managed driver."""
    found = {ask_managed(ask, facts) for _, ask in asks(spec)}
    return next((verdict for verdict in (Managed.YES, Managed.UNKNOWN) if verdict in found), Managed.NO)


def pod_uses(namespace: str, spec: Json, facts: Facts) -> list[Use]:
    """One Use per entry of spec.resourceClaims, in order. Raises MalformedError."""
    return [_use(namespace, entry, f"spec.resourceClaims[{i}]", facts) for i, entry in enumerate(_entries(spec))]


def _entries(spec: Json) -> list[Json]:
    return list_at(spec, "resourceClaims", "spec")


def _use(namespace: str, entry: Json, path: str, facts: Facts) -> Use:
    template = text_at(entry, "resourceClaimTemplateName", path)
    claim = text_at(entry, "resourceClaimName", path)
    where = f"{path}: ResourceClaim {namespace}/{claim}: spec"
    if template:
        where = f"{path}: ResourceClaimTemplate {namespace}/{template}: spec.spec"
    if template and (found := facts.templates.get((namespace, template))) is None:
        if legacy.parse_template_name(template) is not None:  # the controller makes it when it sees the pod
            return Use(managed=Managed.YES, spec=legacy_spec(template, facts.drivers[0]), path=where)
        return Use(managed=Managed.UNKNOWN, missing=f"{path}: ResourceClaimTemplate {namespace}/{template}")
    if claim and not template and (found := facts.claims.get((namespace, claim))) is None:
        return Use(managed=Managed.UNKNOWN, missing=f"{path}: ResourceClaim {namespace}/{claim}")
    if not template and not claim:
        return Use(managed=Managed.NO)
    assert found is not None
    managed = spec_managed(found, facts)
    missing = ""
    if managed is Managed.UNKNOWN:
        absent = next(a.device_class_name for _, a in asks(found) if ask_managed(a, facts) is Managed.UNKNOWN)
        missing = f"{path}: DeviceClass {absent}"
    return Use(managed=managed, spec=found, missing=missing, path=where)


@lru_cache(maxsize=1024)
def legacy_spec(template: str, driver: str) -> ResourceClaimSpec:
    """What the template of that name holds. Raises ValueError where the name stands for no legacy request."""
    return msgspec.convert(legacy.template_manifest(template, "", driver=driver)["spec"]["spec"], ResourceClaimSpec)
