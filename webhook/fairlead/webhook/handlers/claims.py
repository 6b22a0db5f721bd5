"""ResourceClaims, templates and DeviceClasses: denied where they are invalid, warned about where pods would wait.

A mistake is reported when the object is written, with the field and position, instead of as a pending pod. Judges only requests
that a managed driver may serve, and configurations for our own driver. Kubernetes accepts an unknown class, so that is a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from fairlead import cel
from fairlead.api import legacy, names
from fairlead.api.base import ManifestError
from fairlead.api.config import GpuConfig, decode
from fairlead.cel.devices.requests import Request, expressions, others_fault, selectors_fault
from fairlead.kube import nulls
from fairlead.kube.resource import (
    DeviceClassSpec,
    DeviceSelector,
    OpaqueDeviceConfiguration,
    ResourceClaimSpec,
)
from fairlead.webhook.objects import sharing
from fairlead.webhook.objects.claim_specs import claim_spec
from fairlead.webhook.objects.device_models import candidates, unservable_reason
from fairlead.webhook.objects.fields import MalformedError, map_at
from fairlead.webhook.policy import rules
from fairlead.webhook.policy.policies import apply_findings
from fairlead.webhook.policy.rules import Kind, Subject
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.pod_claims import Managed, managed_requests, request_managed
from fairlead.webhook.review.verdict import UNTOUCHED, Verdict, allow, deny


def validate(review: Review, facts: Facts) -> Verdict:
    """The verdict on a new claim or template. Raises MalformedError."""
    if review.operation != "CREATE":
        return UNTOUCHED  # the spec is immutable, and a ValidatingAdmissionPolicy guards the status
    path = "spec.spec" if review.resource == "resourceclaimtemplates" else "spec"
    spec = claim_spec(review.object or {}, path)
    too_large = selectors_fault(spec, facts.classes, facts.drivers)
    if too_large is not None:
        return deny("claim", *review.about([f"{path}.devices.requests: {too_large}"]), code=422)
    managed = managed_requests(spec, facts)
    configs = [(f"{path}.{where}", requests, opaque) for where, requests, opaque in sharing.own_configs(spec)]
    if not managed and not configs:
        return UNTOUCHED
    faults: list[str] = []
    for where, request in managed:
        faults += _selector_faults(request.selectors, f"{path}.{where}.selectors")
        faults += _count_faults(request, f"{path}.{where}")
    for where, requests, opaque in configs:
        faults += _config_faults(opaque, where, _classes(spec, requests))
    faults += sharing.faults(spec, configs)
    faults += _reserved_name_faults(review, spec, facts)
    if faults:
        return deny("claim", *review.about(faults), code=422)
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
    judged = Subject(kind=Kind.CLAIM, where=f"{path}.", claim=spec, review=review)
    verdict = allow("claim", warnings=warnings)
    return apply_findings(verdict, review.subject, rules.findings(facts.policies, [judged], facts))


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


def validate_class(review: Review, facts: Facts) -> Verdict:
    """The verdict on a DeviceClass: its selectors and our driver's configurations. Raises MalformedError."""
    try:
        spec = nulls.convert(map_at(review.object or {}, "spec"), DeviceClassSpec)
    except msgspec.ValidationError as error:
        raise MalformedError(f"spec: {error}") from None
    faults: list[str] = []
    for index, config in enumerate(spec.config):
        if config.opaque is not None and config.opaque.driver == names.DRIVER:
            faults += _config_faults(config.opaque, f"spec.config[{index}].opaque.parameters", ())
    too_large = cel.load_fault(expressions(spec.selectors))
    if too_large is not None:
        faults.append(f"spec.selectors: {too_large}")
    elif any(name in selector.cel.expression for selector in spec.selectors if selector.cel for name in facts.drivers):
        faults += _selector_faults(spec.selectors, "spec.selectors")
    if faults:
        return deny("class", *review.about(faults), code=422)
    return allow("class")


def _selector_faults(selectors: tuple[DeviceSelector, ...], path: str) -> Iterator[str]:
    for index, selector in enumerate(selectors):
        if selector.cel is None:
            continue
        where = f"{path}[{index}].cel.expression"
        try:
            cel.admit_selector(selector.cel.expression)
        except cel.CompileError as error:
            yield f"{where}: {error}"


def _count_faults(request: Request, path: str) -> Iterator[str]:
    if request.allocation_mode == "ExactCount" and request.count > legacy.COUNT_MAX:
        yield (
            f"{path}.count: {request.count} devices are more than one claim may hold ({legacy.COUNT_MAX}); "
            "use more pods with fewer devices each, as a gang"
        )


def _config_faults(opaque: OpaqueDeviceConfiguration, path: str, classes: tuple[str, ...]) -> Iterator[str]:
    try:
        config = decode(opaque.parameters, subject=path)
    except ManifestError as error:
        yield from (f"{path}: {fault}" for fault in error.faults)
        return
    is_gpu = isinstance(config, GpuConfig)
    wrong = names.MIG_CLASS if is_gpu else names.GPU_CLASS
    if classes and all(name == wrong for name in classes):
        kind, other = type(config).__name__, "MigDeviceConfig" if is_gpu else "GpuConfig"
        yield f"{path}.kind: {kind} does not apply to devices of class {wrong}; write {other}"


def _classes(spec: ResourceClaimSpec, requests: tuple[str, ...]) -> tuple[str, ...]:
    """The classes of the requests that a configuration names. One that names none applies only to the devices that it fits."""
    found: list[str] = []
    for name in requests:
        main, _, sub = name.partition("/")
        for request in spec.devices.requests:
            if request.name == main:
                found += [request.exactly.device_class_name] if request.exactly is not None else []
                found += [option.device_class_name for option in request.first_available if sub in {"", option.name}]
    return tuple(found)


def _reserved_name_faults(review: Review, spec: ResourceClaimSpec, facts: Facts) -> Iterator[str]:
    """A template whose name stands for a legacy request must ask for just that, or legacy pods get other devices."""
    if review.resource != "resourceclaimtemplates" or review.username in facts.controllers:
        return
    if legacy.parse_template_name(review.name) is None:
        return
    wanted = [
        claim_spec(legacy.template_manifest(review.name, review.namespace, driver=driver), "spec.spec")
        for driver in facts.drivers
    ]
    if spec not in wanted:
        yield (
            f"metadata.name: {review.name!r} is the name of the template for {names.LEGACY_GPU}-style requests, "
            "which Fairlead makes itself; choose another name"
        )
