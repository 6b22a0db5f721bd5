"""Rules about claims: of policies, on classes, flavors, counts, isolation, sharing and admin access; and what is refused anywhere.

A claim, a template, a pod's claims and a legacy request are judged by the same functions: each comes here as a claim spec.
Requests that no managed driver can serve are not judged. Which devices a request may get is read from the cluster's device
models; where that is not known, the class alone decides, strictly.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fairlead import cel
from fairlead.api import legacy, names
from fairlead.api.base import ManifestError
from fairlead.api.config import GpuConfig, decode
from fairlead.api.drivers import classes_of, legacy_driver, part_class
from fairlead.api.policy import TenancyPolicy, TenancyPolicySpec
from fairlead.cel import CompileError, compile_selector
from fairlead.cel.devices.requests import (
    Request,
    alternatives,
    device_requests,
    expressions,
    others_fault,
    selectors_fault,
)
from fairlead.kube import nulls
from fairlead.kube.resource import (
    DeviceClassSpec,
    DeviceSelector,
    ExactDeviceRequest,
    OpaqueDeviceConfiguration,
    ResourceClaimSpec,
)
from fairlead.webhook.legacy import LegacyLimit
from fairlead.webhook.objects.device_models import DeviceModel, candidates
from fairlead.webhook.objects.fields import MalformedError, map_at, strings_at
from fairlead.webhook.policy.policies import Policies, Subject, finding
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.pod_claims import Managed, legacy_claim_spec, managed_requests, request_managed
from fairlead.webhook.review.verdict import Finding


def findings(policies: Policies, it: Subject, facts: Facts) -> Iterator[Finding]:
    """Findings about a claim, or what a pod claims: a claim that does not exist yet is judged when it is created."""
    for limit in it.legacy.limits if it.translated else ():
        yield from _legacy_limit_findings(policies, limit, it.where, facts)
    for claim in it.claims:
        if claim.spec is not None:
            yield from _claim_findings(policies, claim.spec, f"{it.where}{claim.path}", facts)
    if it.claim is not None:
        yield from _claim_findings(policies, it.claim, it.where.removesuffix("."), facts)


def _legacy_limit_findings(policies: Policies, limit: LegacyLimit, prefix: str, facts: Facts) -> Iterator[Finding]:
    """Findings about a legacy limit, judged as the claim that it becomes; prefix goes before the limit's own path."""
    path = f"{prefix}{limit.path}"
    spec = legacy_claim_spec(legacy.template_name(limit.resource, limit.count), legacy_driver(facts.drivers))
    for found in _claim_findings(policies, spec, f"{path}: as a claim: spec", facts):
        if found.rule != "maxDevicesPerClaim":
            yield found
    yield from _count_findings(policies, limit.count, path)


def _claim_findings(policies: Policies, spec: ResourceClaimSpec, path: str, facts: Facts) -> Iterator[Finding]:
    """Findings about a claim's spec; path is where the spec is, or what it was translated from."""
    if not policies:
        return
    managed = managed_requests(spec, facts)
    if not managed:
        return
    with_request_rules = [policy for policy in policies if _has_request_rules(policy.spec)]
    for where, request in managed:
        for policy in with_request_rules:
            yield from _request_findings(policy, request, f"{path}.{where}", facts)
    if any(policy.spec.max_devices_per_claim is not None for policy in policies):
        yield from _count_findings(policies, _most_devices(spec, facts), f"{path}.devices.requests")
    if any(policy.spec.sharing_strategies is not None or policy.spec.isolation == "Hardware" for policy in policies):
        yield from _sharing_findings(policies, spec, path, facts)


def _count_findings(policies: Policies, count: int, path: str) -> Iterator[Finding]:
    for policy in policies:
        limit = policy.spec.max_devices_per_claim
        if limit is not None and count > limit:
            text = f"{path}: {count} devices in one claim, but at most {limit} are allowed here"
            yield finding(policy, "maxDevicesPerClaim", text)


def _has_request_rules(rules: TenancyPolicySpec) -> bool:
    """Whether `_request_findings` could find anything; most policies have no such rule."""
    return (
        rules.device_classes is not None
        or rules.flavors is not None
        or rules.admin_access == "Reject"
        or rules.isolation == "Hardware"
        or rules.whole_gpus == "Forbid"
    )


def _request_findings(policy: TenancyPolicy, request: Request, where: str, facts: Facts) -> Iterator[Finding]:
    spec = policy.spec
    name = request.device_class_name
    if spec.device_classes is not None and name not in spec.device_classes:
        allowed = ", ".join(sorted(spec.device_classes)) or "none"
        yield finding(
            policy, "deviceClasses", f"{where}.deviceClassName: {name!r} is not allowed here; allowed: {allowed}"
        )
    if spec.admin_access == "Reject" and isinstance(request, ExactDeviceRequest) and request.admin_access:
        yield finding(policy, "adminAccess", f"{where}.adminAccess: is not allowed here; remove it")
    if spec.flavors is None and spec.isolation != "Hardware" and spec.whole_gpus != "Forbid":
        return
    found = candidates(request, facts.classes.get(name), facts.device_models)
    if spec.whole_gpus == "Forbid" and _may_be_whole(name, found, facts):
        cure = f"ask for a MIG device: deviceClassName {part_class(legacy_driver(facts.drivers))}"
        text = f"{where}.deviceClassName: {name!r} may give whole GPUs, which are not allowed here; {cure}"
        yield finding(policy, "wholeGpus", text)
    if spec.isolation == "Hardware":
        if request.capacity is not None and request.capacity.requests:
            text = f"{where}.capacity: asks for a part of a shared device, but only whole GPUs and MIG devices are allowed here"
            yield finding(policy, "isolation", f"{text}; remove it")
        shared = next((model for model in found or () if model.view.allow_multiple_allocations), None)
        if shared is not None:
            text = f"{where}.selectors: may give {shared.label} ({shared.example}), which several claims share"
            yield finding(policy, "isolation", f"{text}; add the selector device.allowMultipleAllocations == false")
    if spec.flavors is not None:
        yield from _flavor_findings(policy, spec.flavors, found, where, facts)


def _may_be_whole(class_name: str, found: tuple[DeviceModel, ...] | None, facts: Facts) -> bool:
    if class_name in {name for driver in facts.drivers for name in classes_of(driver)[1:]}:
        return False
    return True if not found else any(model.whole_gpu for model in found)


def _flavor_findings(
    policy: TenancyPolicy, allowed: list[str], found: tuple[DeviceModel, ...] | None, where: str, facts: Facts
) -> Iterator[Finding]:
    """Every device that the request may get must be of an allowed flavor."""
    selectors = {
        name: text for name in allowed if name in facts.flavors and (text := facts.flavors[name].spec.selector)
    }
    if found is None:
        if facts.device_models:
            yield finding(
                policy, "flavors", f"{where}.selectors: cannot be told which flavors they may give{_cure(selectors)}"
            )
        return
    for model in found:
        if not any(_matches(text, model) for text in selectors.values()):
            text = (
                f"{where}.selectors: may give {model.label} ({model.example}), which is of no flavor that is allowed here "
                f"({', '.join(sorted(allowed)) or 'none'}){_cure(selectors)}"
            )
            yield finding(policy, "flavors", text)
            return


def _cure(selectors: dict[str, str]) -> str:
    return "".join(f"; add the selector of {name}: {text}" for name, text in sorted(selectors.items())[:1])


def _matches(text: str, model: DeviceModel) -> bool:
    try:
        return bool(compile_selector(text).verdict(model.view))
    except CompileError:
        return False


def _most_devices(spec: ResourceClaimSpec, facts: Facts) -> int:
    """The most devices that the claim's exact counts may add up to; of alternatives the largest one counts."""
    total = 0
    for request in spec.devices.requests:
        counts = [
            option.count
            for option in alternatives(request)
            if option.allocation_mode == "ExactCount" and request_managed(option, facts) is not Managed.NO
        ]
        total += max(counts, default=0)
    return total


def devices_of(spec: ResourceClaimSpec, facts: Facts) -> int:
    """How many managed devices a claim may hold, by its text; a request for all counts as several (2)."""
    every = any(request.allocation_mode == "All" for _, request in managed_requests(spec, facts))
    return max(_most_devices(spec, facts), 2 if every else 0)


def _sharing_findings(policies: Policies, spec: ResourceClaimSpec, path: str, facts: Facts) -> Iterator[Finding]:
    """Findings about sharing, by the claim's own configurations and by those of its classes."""
    shared = [
        (f"{path}.devices.config[{index}].opaque.parameters.sharing.strategy", strategy)
        for index, config in enumerate(spec.devices.config)
        if (strategy := _strategy(config.opaque)) is not None
    ]
    for where, request in device_requests(spec):
        found = facts.classes.get(request.device_class_name)
        shared += [
            (f"{path}.{where}.deviceClassName: DeviceClass {request.device_class_name}: spec.config[{index}]", strategy)
            for index, config in enumerate(() if found is None else found.spec.config)
            if (strategy := _strategy(config.opaque)) is not None
        ]
    for where, strategy in shared:
        for policy in policies:
            allowed = policy.spec.sharing_strategies
            if allowed is not None and strategy not in allowed:
                listed = ", ".join(sorted(allowed)) or "none"
                yield finding(
                    policy, "sharingStrategies", f"{where}: {strategy!r} is not allowed here; allowed: {listed}"
                )
            if policy.spec.isolation == "Hardware":
                text = f"{where}: {strategy!r} shares a device between processes, but only whole GPUs and MIG devices"
                yield finding(policy, "isolation", f"{text} of one's own are allowed here; remove sharing")


def _strategy(opaque: OpaqueDeviceConfiguration | None) -> str | None:
    """The sharing strategy of a configuration for our driver; one that cannot be decoded is refused (`config_faults`)."""
    if opaque is None or opaque.driver != names.DRIVER:
        return None
    try:
        decoded = decode(opaque.parameters, subject="")
    except ManifestError:
        return None
    return None if decoded.sharing is None else decoded.sharing.strategy


# What is refused in any namespace.


def size_faults(it: Subject, facts: Facts) -> Iterator[str]:
    """Selectors that are too large to be compiled."""
    assert it.claim is not None
    too_large = selectors_fault(it.claim, facts.classes, facts.drivers)
    if too_large is not None:
        yield f"{it.where}devices.requests: {too_large}"


def request_faults(it: Subject, _: Facts) -> Iterator[str]:
    for where, request in it.requests:
        path = f"{it.where}{where}"
        yield from _selector_faults(request.selectors, f"{path}.selectors")
        if request.allocation_mode == "ExactCount" and request.count > legacy.COUNT_MAX:
            yield (
                f"{path}.count: {request.count} devices are more than one claim may hold ({legacy.COUNT_MAX}); "
                "use more pods with fewer devices each, as a gang"
            )


def config_faults(it: Subject, _: Facts) -> Iterator[str]:
    assert it.claim is not None
    for where, requests, opaque in it.configs:
        yield from _config_faults(opaque, where, _classes(it.claim, requests))


def driver_faults(it: Subject, facts: Facts) -> Iterator[str]:
    """Devices of a driver that kube-scheduler allocates for, beside those that Fairlead does: each would see the other's allocation too late.

    A claim that was made for a pod is as its template was allowed: where a driver is managed no longer, the gang's message says so.
    """
    metadata = map_at(it.review.object or {}, "metadata")
    if it.claim is None or names.POD_CLAIM_NAME in strings_at(metadata, "annotations", "metadata"):
        return
    if (fault := others_fault(it.claim, facts.classes, facts.drivers, facts.shared_drivers)) is not None:
        yield f"{it.where}{fault}"


def reserved_name_faults(it: Subject, facts: Facts) -> Iterator[str]:
    """A template whose name stands for a legacy request must ask for just that, or legacy pods get other devices."""
    review = it.review
    if review.resource != "resourceclaimtemplates" or review.username in facts.controllers:
        return
    if legacy.parse_template_name(review.name) is None:
        return
    if all(it.claim != legacy_claim_spec(review.name, driver) for driver in facts.drivers):
        yield (
            f"metadata.name: {review.name!r} is the name of the template for {names.LEGACY_GPU}-style requests, "
            "which Fairlead makes itself; choose another name"
        )


def class_faults(it: Subject, facts: Facts) -> Iterator[str]:
    """A DeviceClass' selectors and our driver's configurations. Raises MalformedError."""
    try:
        spec = nulls.convert(map_at(it.review.object or {}, "spec"), DeviceClassSpec)
    except msgspec.ValidationError as error:
        raise MalformedError(f"spec: {error}") from None
    for index, config in enumerate(spec.config):
        if config.opaque is not None and config.opaque.driver == names.DRIVER:
            yield from _config_faults(config.opaque, f"spec.config[{index}].opaque.parameters", ())
    too_large = cel.load_fault(expressions(spec.selectors))
    if too_large is not None:
        yield f"spec.selectors: {too_large}"
    elif any(name in selector.cel.expression for selector in spec.selectors if selector.cel for name in facts.drivers):
        yield from _selector_faults(spec.selectors, "spec.selectors")


def _selector_faults(selectors: tuple[DeviceSelector, ...], path: str) -> Iterator[str]:
    for index, selector in enumerate(selectors):
        if selector.cel is None:
            continue
        where = f"{path}[{index}].cel.expression"
        try:
            cel.admit_selector(selector.cel.expression, gated=True)  # the apiserver knows which gates it has
        except cel.CompileError as error:
            yield f"{where}: {error}"


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
