"""ResourceClaims, templates and DeviceClasses: denied where they are invalid, warned about where pods would wait.

A mistake is reported when the object is written, with the field and position, instead of as a pending pod. Judges only requests
that a managed driver may serve, and configurations for our own driver. Kubernetes accepts an unknown class, so that is a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from fairlead.cel.devices.requests import Request, others_fault
from fairlead.webhook.objects import sharing
from fairlead.webhook.objects.device_models import candidates, unservable_reason
from fairlead.webhook.policy import rules
from fairlead.webhook.policy.policies import apply_findings
from fairlead.webhook.policy.refusals import refuse
from fairlead.webhook.policy.subjects import Kind, Subject
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.pod_claims import Managed, claim_spec, managed_requests, request_managed
from fairlead.webhook.review.verdict import UNTOUCHED, Verdict, allow


def validate(review: Review, facts: Facts) -> Verdict:
    """The verdict on a new claim or template. Raises MalformedError, RefusedError."""
    if review.operation != "CREATE":
        return UNTOUCHED  # the spec is immutable, and a ValidatingAdmissionPolicy guards the status
    path = "spec.spec" if review.resource == "resourceclaimtemplates" else "spec"
    spec = claim_spec(review.object or {}, path)
    new = Subject(kind=Kind.NEW_CLAIM, review=review, stored=True, where=f"{path}.", claim=spec)
    refuse([new], facts)
    managed = managed_requests(spec, facts)
    configs = [(f"{path}.{where}", requests, opaque) for where, requests, opaque in sharing.own_configs(spec)]
    if not managed and not configs:
        return UNTOUCHED
    judged = replace(new, kind=Kind.CLAIM, requests=managed, configs=configs)
    refuse([judged], facts)
    warnings = [
        f"{path}.{where}.deviceClassName: DeviceClass {request.device_class_name!r} does not exist; pods wait until it does"
        for where, request in managed
        if request.device_class_name not in facts.classes
    ]
    warnings += _unservable(managed, path, facts)
    warnings += [f"{path}.{each}" for each in sharing.warnings(spec, configs)]
    others = others_fault(spec, facts.classes, facts.drivers)
    if others is not None:
        warnings.append(f"{path}.{others}; until then pods wait")
    verdict = allow("claim", warnings=warnings)
    return apply_findings(verdict, review.subject, rules.findings(facts.policies, [judged], facts))


def validate_class(review: Review, facts: Facts) -> Verdict:
    """The verdict on a DeviceClass. Raises MalformedError, RefusedError."""
    refuse([Subject(kind=Kind.CLASS, review=review)], facts)
    return allow("class")


def _unservable(managed: Iterable[tuple[str, Request]], path: str, facts: Facts) -> Iterator[str]:
    """Warnings about requests, and alternatives of requests, that no device of the cluster could serve."""
    for where, request in managed:
        device_class = facts.classes.get(request.device_class_name)
        if device_class is None or request_managed(request, facts) is not Managed.YES:
            continue
        reason = unservable_reason(request, device_class, facts.device_models, facts.drivers)
        if reason is not None:
            yield f"{path}.{where}: {reason}; pods wait until such a device comes"
        elif (
            warning := sharing.capacity_warning(request, candidates(request, device_class, facts.device_models))
        ) is not None:
            yield f"{path}.{where}.{warning}"
