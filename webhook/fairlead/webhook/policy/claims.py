"""The policies' rules about claims: classes, flavors, counts, isolation, sharing, admin access.

Exists so that a claim, a template, a pod's claims and a legacy request are judged by the same functions: whatever asks
for devices comes here as a claim's spec. Requests that no managed driver can serve are not judged.
What a request may be given is read from the cluster's devices (`devices.py`); where that cannot be said, the class
alone decides, strictly.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.api import legacy, names
from fairlead.api.base import ManifestError
from fairlead.api.config import decode
from fairlead.api.policy import TenancyPolicy, TenancyPolicySpec
from fairlead.cel import CompileError, compile_selector
from fairlead.cel.asks import Ask as Request
from fairlead.cel.asks import asks
from fairlead.kube.resource import ExactDeviceRequest, OpaqueDeviceConfiguration, ResourceClaimSpec
from fairlead.webhook.legacy.requests import Ask
from fairlead.webhook.objects.device_models import Model, candidates
from fairlead.webhook.policy.policies import Policies, finding
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.pod_claims import Managed, Use, ask_managed, legacy_spec
from fairlead.webhook.review.verdict import Finding


def use_findings(policies: Policies, use: Use, prefix: str, facts: Facts) -> Iterator[Finding]:
    """What a claim that a pod uses breaks; prefix goes before the use's own path. A missing one is judged when it comes."""
    if use.spec is not None:
        yield from claim_findings(policies, use.spec, f"{prefix}{use.path}", facts)


def legacy_ask_findings(policies: Policies, ask: Ask, where: str, facts: Facts) -> Iterator[Finding]:
    """What a legacy limit at `where` breaks, judged as the claim that it becomes."""
    spec = legacy_spec(legacy.template_name(ask.resource, ask.count), facts.drivers[0])
    for found in claim_findings(policies, spec, f"{where}: as a claim: spec", facts):
        if found.rule != "maxDevicesPerClaim":
            yield found
    yield from count_findings(policies, ask.count, where)


def claim_findings(policies: Policies, spec: ResourceClaimSpec, path: str, facts: Facts) -> Iterator[Finding]:
    """Everything that a claim's spec breaks; path is where the spec stands, or what stands for it."""
    if not policies:
        return
    managed = [(f"{path}.{where}", ask) for where, ask in asks(spec) if ask_managed(ask, facts) is not Managed.NO]
    if not managed:
        return
    judging = [policy for policy in policies if _judges_asks(policy.spec)]
    for where, ask in managed:
        for policy in judging:
            yield from _ask_findings(policy, ask, where, facts)
    if any(policy.spec.max_devices_per_claim is not None for policy in policies):
        yield from count_findings(policies, _most_devices(spec, facts), f"{path}.devices.requests")
    if any(policy.spec.sharing_strategies is not None or policy.spec.isolation == "Hardware" for policy in policies):
        yield from _sharing_findings(policies, spec, path, facts)


def count_findings(policies: Policies, count: int, path: str) -> Iterator[Finding]:
    for policy in policies:
        limit = policy.spec.max_devices_per_claim
        if limit is not None and count > limit:
            text = f"{path}: {count} devices in one claim, but at most {limit} are allowed here"
            yield finding(policy, "maxDevicesPerClaim", text)


def _judges_asks(rules: TenancyPolicySpec) -> bool:
    """Whether `_ask_findings` could have any; most policies say nothing of it."""
    return (
        rules.device_classes is not None
        or rules.flavors is not None
        or rules.admin_access == "Reject"
        or rules.isolation == "Hardware"
        or rules.whole_gpus == "Forbid"
    )


def _ask_findings(policy: TenancyPolicy, ask: Request, where: str, facts: Facts) -> Iterator[Finding]:
    spec = policy.spec
    name = ask.device_class_name
    if spec.device_classes is not None and name not in spec.device_classes:
        allowed = ", ".join(sorted(spec.device_classes)) or "none"
        yield finding(
            policy, "deviceClasses", f"{where}.deviceClassName: {name!r} is not allowed here; allowed: {allowed}"
        )
    if spec.admin_access == "Reject" and isinstance(ask, ExactDeviceRequest) and ask.admin_access:
        yield finding(policy, "adminAccess", f"{where}.adminAccess: is not allowed here; remove it")
    if spec.flavors is None and spec.isolation != "Hardware" and spec.whole_gpus != "Forbid":
        return
    found = candidates(ask, facts.classes.get(name), facts.devices)
    if spec.whole_gpus == "Forbid" and _may_be_whole(name, found, facts):
        cure = f"ask for a MIG device: deviceClassName {legacy.mig_class(facts.drivers[0])}"
        text = f"{where}.deviceClassName: {name!r} may give whole GPUs, which are not allowed here; {cure}"
        yield finding(policy, "wholeGpus", text)
    if spec.isolation == "Hardware":
        if ask.capacity is not None and ask.capacity.requests:
            text = f"{where}.capacity: asks for a part of a shared device, but only whole GPUs and MIG devices are allowed here"
            yield finding(policy, "isolation", f"{text}; remove it")
        shared = next((model for model in found or () if model.view.allow_multiple_allocations), None)
        if shared is not None:
            text = f"{where}.selectors: may give {shared.label} ({shared.example}), which several claims share"
            yield finding(policy, "isolation", f"{text}; add the selector device.allowMultipleAllocations == false")
    if spec.flavors is not None:
        yield from _flavor_findings(policy, spec.flavors, found, where, facts)


def _may_be_whole(class_name: str, found: tuple[Model, ...] | None, facts: Facts) -> bool:
    if class_name in {legacy.mig_class(driver) for driver in facts.drivers}:
        return False
    return True if not found else any(model.whole for model in found)


def _flavor_findings(
    policy: TenancyPolicy, allowed: list[str], found: tuple[Model, ...] | None, where: str, facts: Facts
) -> Iterator[Finding]:
    """Every device that the request may be given must be of an allowed flavor."""
    selectors = {name: facts.flavors[name].spec.device_selector for name in allowed if name in facts.flavors}
    if found is None:
        if facts.devices:
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


def _matches(text: str, model: Model) -> bool:
    try:
        return bool(compile_selector(text).verdict(model.view))
    except CompileError:
        return False


def _most_devices(spec: ResourceClaimSpec, facts: Facts) -> int:
    """The most devices that the claim's exact counts may add up to; of alternatives the largest counts."""
    total = 0
    for request in spec.devices.requests:
        options = [request.exactly] if request.exactly is not None else list(request.first_available)
        counts = [
            option.count
            for option in options
            if option.allocation_mode == "ExactCount" and ask_managed(option, facts) is not Managed.NO
        ]
        total += max(counts, default=0)
    return total


def devices_of(spec: ResourceClaimSpec, facts: Facts) -> int:
    """How many managed devices a claim holds at least, as far as its text says: All counts as several."""
    every = any(ask.allocation_mode == "All" and ask_managed(ask, facts) is not Managed.NO for _, ask in asks(spec))
    return max(_most_devices(spec, facts), 2 if every else 0)


def _sharing_findings(policies: Policies, spec: ResourceClaimSpec, path: str, facts: Facts) -> Iterator[Finding]:
    """What the claim's own configurations share, and what those of its classes do."""
    shared = [
        (f"{path}.devices.config[{index}].opaque.parameters.sharing.strategy", strategy)
        for index, config in enumerate(spec.devices.config)
        if (strategy := _strategy(config.opaque)) is not None
    ]
    for where, ask in asks(spec):
        found = facts.classes.get(ask.device_class_name)
        shared += [
            (f"{path}.{where}.deviceClassName: DeviceClass {ask.device_class_name}: spec.config[{index}]", strategy)
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
    """How a configuration for our driver shares; what cannot be read is refused by claims.py, with its reason."""
    if opaque is None or opaque.driver != names.DRIVER:
        return None
    try:
        decoded = decode(opaque.parameters, subject="")
    except ManifestError:
        return None
    return None if decoded.sharing is None else decoded.sharing.strategy
