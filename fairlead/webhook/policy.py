"""TenancyPolicies: the rules of a namespace, applied to pods, Jobs and claims.

Exists so that each rule is one function from an object to findings, whoever asks. Several policies on one
namespace all apply, each in its own mode, so the strictest wins. Only the rules that the model has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from fairlead.api import names
from fairlead.api.base import ManifestError
from fairlead.api.config import decode
from fairlead.api.policy import LegacyRequests, Mode, TenancyPolicy
from fairlead.cel.asks import asks
from fairlead.kube.resource import ExactDeviceRequest, ResourceClaimSpec
from fairlead.webhook.facts import Facts
from fairlead.webhook.uses import Managed, ask_managed
from fairlead.webhook.verdict import Verdict, deny


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One broken rule of one policy."""

    policy: str
    rule: str
    mode: Mode
    text: str

    @property
    def message(self) -> str:
        return f"TenancyPolicy {self.policy} ({self.rule}): {self.text}"


def legacy_requests(policies: Iterable[TenancyPolicy]) -> LegacyRequests:
    """What happens to legacy requests: Ignore if any policy leaves them to a device plugin, else Translate.

    Reject is a finding (`legacy_findings`), so that its mode counts.
    """
    return "Ignore" if any(policy.spec.legacy_requests == "Ignore" for policy in policies) else "Translate"


def legacy_findings(policies: Iterable[TenancyPolicy], paths: Iterable[str]) -> Iterator[Finding]:
    paths = tuple(paths)
    for policy in policies:
        if policy.spec.legacy_requests == "Reject":
            for path in paths:
                text = f"{path}: legacy requests are refused here; ask by a ResourceClaimTemplate"
                yield _finding(policy, "legacyRequests", text)


def gang_findings(policies: Iterable[TenancyPolicy], size: int | None, path: str) -> Iterator[Finding]:
    for policy in policies:
        limit = policy.spec.max_gang_size
        if limit is not None and size is not None and size > limit:
            text = f"{path}[{names.GANG_SIZE}]: {size} members, but at most {limit} are allowed here"
            yield _finding(policy, "maxGangSize", text)


def count_findings(policies: Iterable[TenancyPolicy], count: int, path: str) -> Iterator[Finding]:
    for policy in policies:
        limit = policy.spec.max_devices_per_claim
        if limit is not None and count > limit:
            text = f"{path}: {count} devices in one claim, but at most {limit} are allowed here"
            yield _finding(policy, "maxDevicesPerClaim", text)


def claim_findings(
    policies: Iterable[TenancyPolicy], spec: ResourceClaimSpec, path: str, facts: Facts
) -> Iterator[Finding]:
    """Everything that a claim's spec breaks; requests that no managed driver can serve are not judged."""
    policies = tuple(policies)
    if not policies:
        return
    managed = [(f"{path}.{where}", ask) for where, ask in asks(spec) if ask_managed(ask, facts) is not Managed.NO]
    for where, ask in managed:
        for policy in policies:
            allowed = policy.spec.device_classes
            if allowed is not None and ask.device_class_name not in allowed:
                text = (
                    f"{where}.deviceClassName: {ask.device_class_name!r} is not allowed here; "
                    f"allowed: {', '.join(sorted(allowed)) or 'none'}"
                )
                yield _finding(policy, "deviceClasses", text)
            if policy.spec.admin_access == "Reject" and isinstance(ask, ExactDeviceRequest) and ask.admin_access:
                text = f"{where}.adminAccess: is not allowed here; remove it"
                yield _finding(policy, "adminAccess", text)
    yield from count_findings(policies, _most_devices(spec, facts), f"{path}.devices.requests")
    yield from _sharing_findings(policies, spec, path)


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


def _sharing_findings(policies: tuple[TenancyPolicy, ...], spec: ResourceClaimSpec, path: str) -> Iterator[Finding]:
    for index, config in enumerate(spec.devices.config):
        if config.opaque is None or config.opaque.driver != names.DRIVER:
            continue
        try:
            decoded = decode(config.opaque.parameters, subject="")
        except ManifestError:
            continue  # refused by claims.py, with its reason
        strategy = None if decoded.sharing is None else decoded.sharing.strategy
        for policy in policies:
            allowed = policy.spec.sharing_strategies
            if strategy is not None and allowed is not None and strategy not in allowed:
                text = (
                    f"{path}.devices.config[{index}].opaque.parameters.sharing.strategy: {strategy!r} is not allowed here; "
                    f"allowed: {', '.join(sorted(allowed)) or 'none'}"
                )
                yield _finding(policy, "sharingStrategies", text)


def apply(verdict: Verdict, subject: str, findings: Iterable[Finding]) -> Verdict:
    """The verdict with the findings in it: refused, warned or noted for the audit log, by each one's mode."""
    found = tuple(dict.fromkeys(findings))
    if not found:
        return verdict
    audit = dict(verdict.audit)
    for index, finding in enumerate(found):
        audit[f"policy-{index}"] = f"{finding.mode} {finding.message}"[:1024]
    enforced = [f"{subject}: {finding.message}" for finding in found if finding.mode == "Enforce"]
    warned = [finding.message for finding in found if finding.mode == "Warn"]
    if verdict.allowed and enforced:
        return replace(deny("policy", *enforced, warnings=verdict.warnings), audit=audit).with_warnings(warned)
    return replace(verdict, audit=audit).with_warnings(warned)


def _finding(policy: TenancyPolicy, rule: str, text: str) -> Finding:
    return Finding(policy=policy.name, rule=rule, mode=policy.spec.mode, text=text)
