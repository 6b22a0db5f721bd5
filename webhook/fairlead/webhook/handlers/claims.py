"""ResourceClaims, templates and DeviceClasses: refused when they are nonsense, warned about when they would wait.

Exists so that a mistake is shown where it is made, with the character it is at, instead of as a pod that is
pending. Judges only requests that a managed driver may serve and configurations for our own driver; the rest
is other drivers' business. Kubernetes accepts an unknown class, so that is a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from fairlead import cel
from fairlead.api import legacy, names
from fairlead.api.base import ManifestError
from fairlead.api.config import DeviceConfig, GpuConfig, decode
from fairlead.cel.asks import Ask, asks
from fairlead.kube.resource import (
    DeviceClassSpec,
    DeviceSelector,
    OpaqueDeviceConfiguration,
    ResourceClaimSpec,
)
from fairlead.webhook.objects.device_models import nearest
from fairlead.webhook.objects.fields import Json, MalformedError, map_at
from fairlead.webhook.policy import policies as policy
from fairlead.webhook.policy.cel_rules import rule_findings
from fairlead.webhook.policy.claims import claim_findings
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.pod_claims import Managed, ask_managed
from fairlead.webhook.review.verdict import UNTOUCHED, Verdict, allow, deny


def validate(review: Review, facts: Facts) -> Verdict:
    """The verdict on a new claim or template. Raises MalformedError."""
    if review.operation != "CREATE":
        return UNTOUCHED  # the spec is immutable, and the status is fenced by policy
    path = "spec.spec" if review.resource == "resourceclaimtemplates" else "spec"
    spec = claim_spec(review.object or {}, path)
    managed = [(where, ask) for where, ask in asks(spec) if ask_managed(ask, facts) is not Managed.NO]
    configs = list(_our_configs(spec))
    if not managed and not configs:
        return UNTOUCHED
    faults: list[str] = []
    for where, ask in managed:
        faults += _selector_faults(ask.selectors, f"{path}.{where}.selectors")
        faults += _count_faults(ask, f"{path}.{where}")
    for index, requests, opaque in configs:
        faults += _config_faults(opaque, f"{path}.devices.config[{index}].opaque.parameters", _classes(spec, requests))
    faults += _own_name_faults(review, spec, facts)
    if faults:
        return deny("claim", *(f"{review.subject}: {fault}" for fault in faults), code=422)
    warnings = [
        f"{path}.{where}.deviceClassName: DeviceClass {ask.device_class_name!r} does not exist; pods wait until it does"
        for where, ask in managed
        if ask.device_class_name not in facts.classes
    ]
    warnings += _unservable(managed, path, facts)
    verdict = allow("claim", warnings=warnings)
    findings = [
        *claim_findings(facts.policies, spec, path, facts),
        *rule_findings(facts.policies, review, facts),
    ]
    return policy.apply(verdict, review.subject, findings)


def _unservable(managed: Iterable[tuple[str, Ask]], path: str, facts: Facts) -> Iterator[str]:
    """Requests that no device of the cluster could ever serve; of alternatives, each."""
    for where, ask in managed:
        device_class = facts.classes.get(ask.device_class_name)
        if device_class is None or ask_managed(ask, facts) is not Managed.YES:
            continue
        reason = nearest(ask, device_class, facts.devices, facts.drivers)
        if reason is not None:
            yield f"{path}.{where}: {reason}; pods wait until such a device comes"


def validate_class(review: Review, facts: Facts) -> Verdict:
    """The verdict on a DeviceClass: its selectors and our driver's configurations. Raises MalformedError."""
    if review.operation not in {"CREATE", "UPDATE"}:
        return UNTOUCHED
    try:
        spec = msgspec.convert(map_at(review.object or {}, "spec"), DeviceClassSpec)
    except msgspec.ValidationError as error:
        raise MalformedError(f"spec: {error}") from None
    faults: list[str] = []
    for index, config in enumerate(spec.config):
        if config.opaque is not None and config.opaque.driver == names.DRIVER:
            faults += _config_faults(config.opaque, f"spec.config[{index}].opaque.parameters", ())
    if any(name in selector.cel.expression for selector in spec.selectors if selector.cel for name in facts.drivers):
        faults += _selector_faults(spec.selectors, "spec.selectors")
    if faults:
        return deny("class", *(f"{review.subject}: {fault}" for fault in faults), code=422)
    return allow("class")


def claim_spec(object_: Json, path: str) -> ResourceClaimSpec:
    """The claim's spec at path. Raises MalformedError."""
    spec = object_
    for step in path.split("."):
        spec = map_at(spec, step)
    try:
        return msgspec.convert(spec, ResourceClaimSpec)
    except msgspec.ValidationError as error:
        raise MalformedError(f"{path}: {error}") from None


def _selector_faults(selectors: tuple[DeviceSelector, ...], path: str) -> Iterator[str]:
    for index, selector in enumerate(selectors):
        if selector.cel is None:
            continue
        where = f"{path}[{index}].cel.expression"
        try:
            cel.admit_selector(selector.cel.expression)
        except cel.CompileError as error:
            yield f"{where}: {error}"


def _count_faults(ask: Ask, path: str) -> Iterator[str]:
    if ask.allocation_mode == "ExactCount" and ask.count > legacy.COUNT_MAX:
        yield (
            f"{path}.count: {ask.count} devices are more than one claim may hold ({legacy.COUNT_MAX}); "
            "use more pods with fewer devices each, as a gang"
        )


def _our_configs(spec: ResourceClaimSpec) -> Iterator[tuple[int, tuple[str, ...], OpaqueDeviceConfiguration]]:
    for index, config in enumerate(spec.devices.config):
        if config.opaque is not None and config.opaque.driver == names.DRIVER:
            yield index, config.requests, config.opaque


def _config_faults(opaque: OpaqueDeviceConfiguration, path: str, classes: tuple[str, ...]) -> Iterator[str]:
    try:
        config = decode(opaque.parameters, subject=path)
    except ManifestError as error:
        yield from (f"{path}: {fault}" for fault in error.faults)
        return
    wrong = _wrong_class(config)
    if classes and all(name == wrong for name in classes):
        kind, other = type(config).__name__, "MigDeviceConfig" if isinstance(config, GpuConfig) else "GpuConfig"
        yield f"{path}.kind: {kind} does not apply to devices of class {wrong}; write {other}"


def _wrong_class(config: DeviceConfig) -> str:
    return names.MIG_CLASS if isinstance(config, GpuConfig) else names.GPU_CLASS


def _classes(spec: ResourceClaimSpec, requests: tuple[str, ...]) -> tuple[str, ...]:
    """The classes of the requests that a configuration names; none where it names none (it then skips what it does not fit)."""
    found: list[str] = []
    for name in requests:
        main, _, sub = name.partition("/")
        for request in spec.devices.requests:
            if request.name == main:
                found += [request.exactly.device_class_name] if request.exactly is not None else []
                found += [option.device_class_name for option in request.first_available if sub in {"", option.name}]
    return tuple(found)


def _own_name_faults(review: Review, spec: ResourceClaimSpec, facts: Facts) -> Iterator[str]:
    """A template with a name that stands for a legacy request must be that request, or pods get something else."""
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
