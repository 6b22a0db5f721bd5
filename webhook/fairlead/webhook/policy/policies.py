"""TenancyPolicies: which of them govern a review, and how their findings combine.

Several policies on one namespace add up predictably. Each is judged by itself, in its own mode, and what one allows takes
nothing back that another forbids, so the strictest wins:

- an object is denied when one Enforce policy has a finding; the message lists the findings of all of them;
- of limits the smallest counts, of lists only what is in all of them, for each is a finding of its own policy;
- defaults (tolerations, affinity, pod failure policy) of all Enforce policies are set; Warn and Audit policies change nothing,
  and report what is missing instead;
- legacy requests: Reject goes before Ignore, Ignore before Translate; only Enforce policies can ask for Ignore.

The rules themselves are in the other modules of this package.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from fairlead.api import names
from fairlead.api.policy import LegacyRequests, TenancyPolicy
from fairlead.kube import labels
from fairlead.kube.objects import LabelSelector
from fairlead.webhook.review.verdict import Finding, Verdict, deny

Policies = tuple[TenancyPolicy, ...]
FINDINGS_MAX = 20
"""Of one rule and policy in one pod, or pod template: after them one says that there are more."""
AUDIT_MAX = 32
"""Findings that one answer writes to the audit log; the rest is counted."""


@dataclass(frozen=True)
class SelectingPolicy:
    """A policy with its namespace selector, compiled once."""

    policy: TenancyPolicy
    selector: labels.Selector

    @staticmethod
    def of(policy: TenancyPolicy) -> SelectingPolicy:
        """Raises SelectorError."""
        raw = policy.spec.namespace_selector.model_dump(by_alias=True, mode="json")
        return SelectingPolicy(policy, labels.from_label_selector(msgspec.convert(raw, LabelSelector)))


def of_namespace(known: Mapping[str, SelectingPolicy], namespace: str, namespace_labels: Mapping[str, str]) -> Policies:
    """The policies that select a namespace and do not exempt it, by name."""
    return tuple(
        found.policy
        for _, found in sorted(known.items())
        if found.selector.matches(namespace_labels) and namespace not in found.policy.spec.exemptions.namespaces
    )


def of_user(policies: Policies, username: str, groups: frozenset[str]) -> Policies:
    """The policies that do not exempt the user."""
    if not any(policy.spec.exemptions.users or policy.spec.exemptions.groups for policy in policies):
        return policies
    return tuple(
        policy
        for policy in policies
        if username not in policy.spec.exemptions.users and groups.isdisjoint(policy.spec.exemptions.groups)
    )


def finding(policy: TenancyPolicy, rule: str, text: str) -> Finding:
    return Finding(policy=policy.name, rule=rule, mode=policy.spec.mode, text=text)


def first(texts: Iterable[str]) -> Iterator[str]:
    """The first FINDINGS_MAX; where there are more, that there are."""
    for index, text in enumerate(texts):
        if index == FINDINGS_MAX:
            yield f"{text}; and perhaps more, which are not looked for"
            return
        yield text


def legacy_requests(policies: Policies) -> LegacyRequests:
    """What happens to legacy requests: Ignore if an Enforce policy leaves them to a device plugin, else Translate.

    Reject is a finding (`legacy_findings`), so that its mode counts.
    """
    ignored = any(p.spec.legacy_requests == "Ignore" and p.spec.mode == "Enforce" for p in policies)
    return "Ignore" if ignored else "Translate"


def rejects_legacy(policies: Policies) -> bool:
    return any(policy.spec.legacy_requests == "Reject" for policy in policies)


def legacy_findings(policies: Policies, paths: Iterable[str]) -> Iterator[Finding]:
    """paths: where legacy limits are written."""
    refused = "legacy requests are refused here; ask by a ResourceClaimTemplate"
    texts = tuple(first(f"{path}: {refused}" for path in paths))
    for policy in policies if texts else ():
        if policy.spec.legacy_requests == "Reject":
            for text in texts:
                yield finding(policy, "legacyRequests", text)


def gang_findings(
    policies: Policies, size: int | None, path: str, *, pod_group: str | None = None
) -> Iterator[Finding]:
    """path: the annotations that hold the size; pod_group: the PodGroup that holds it instead, which no policy can read."""
    for policy in policies:
        limit = policy.spec.max_gang_size
        if limit is not None and pod_group is not None:
            text = f"{path}[{names.GANG_SIZE}]: is missing: the size is in PodGroup {pod_group}; write it here, too, at most {limit}"
            yield finding(policy, "maxGangSize", text)
        elif limit is not None and size is not None and size > limit:
            text = f"{path}[{names.GANG_SIZE}]: {size} members, but at most {limit} are allowed here"
            yield finding(policy, "maxGangSize", text)


def apply_findings(verdict: Verdict, subject: str, findings: Iterable[Finding]) -> Verdict:
    """The verdict with the findings in it: a denial, a warning or an audit annotation, by the mode of each one's policy."""
    found = tuple(dict.fromkeys(findings))
    if not found:
        return verdict
    audit = dict(verdict.audit)
    for index, each in enumerate(found[:AUDIT_MAX]):
        audit[f"policy-{index}"] = f"{each.mode} {each.message}"[:1024]
    if len(found) > AUDIT_MAX:
        audit["policy-more"] = str(len(found) - AUDIT_MAX)
    enforced = [f"{subject}: {each.message}" for each in found if each.mode == "Enforce"]
    warned = [each.message for each in found if each.mode == "Warn"]
    if verdict.allowed and enforced:
        verdict = deny("policy", *enforced, warnings=verdict.warnings)
    return replace(verdict, audit=audit, findings=found).with_warnings(warned)
