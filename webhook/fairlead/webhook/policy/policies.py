"""TenancyPolicies: which of them govern a review, and how their findings combine.

Several policies on one namespace add up predictably. Each is judged by itself, in its own mode, and what one allows takes
nothing back that another forbids, so the strictest wins:

- an object is denied when one Enforce policy has a finding; the message lists the findings of all of them;
- of limits the smallest counts, of lists only what is in all of them, for each is a finding of its own policy;
- defaults (tolerations, affinity, pod failure policy) of all Enforce policies are set; Warn and Audit policies change nothing,
  and report what is missing instead;
- legacy requests: Reject goes before Ignore, Ignore before Translate; only Enforce policies can ask for Ignore.

A policy's own rules are CEL in the language of a ValidatingAdmissionPolicy with `object`, `oldObject`, `request` and `namespaceObject`; there
is no `authorizer` and no `params`. Each expression has a cost budget, so that no rule can hold up a review. A rule that fails, or exceeds its
budget, counts as broken, with the reason: an object that cannot be judged must not pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from fairlead.api import names
from fairlead.api.policy import CelRule, LegacyRequests, TenancyPolicy
from fairlead.cel import CompileError, EvaluationError, Program, compile  # noqa: A004 - CEL's own word
from fairlead.cel import types as t
from fairlead.cel.kubernetes import BASE
from fairlead.kube import labels
from fairlead.kube.objects import LabelSelector
from fairlead.webhook.policy.subjects import Subject
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts
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


def legacy_findings(policies: Policies, it: Subject, _: Facts) -> Iterator[Finding]:
    refused = "legacy requests are refused here; ask by a ResourceClaimTemplate"
    texts = tuple(first(f"{it.where}{path}: {refused}" for path in it.legacy.paths))
    for policy in policies if texts else ():
        if policy.spec.legacy_requests == "Reject":
            for text in texts:
                yield finding(policy, "legacyRequests", text)


def gang_findings(policies: Policies, it: Subject, _: Facts) -> Iterator[Finding]:
    """A size that a PodGroup holds no policy can read."""
    path = f"{it.where}metadata.annotations[{names.GANG_SIZE}]"
    for policy in policies:
        limit = policy.spec.max_gang_size
        if limit is not None and it.pod_group is not None:
            text = f"{path}: is missing: the size is in PodGroup {it.pod_group}; write it here, too, at most {limit}"
            yield finding(policy, "maxGangSize", text)
        elif limit is not None and it.size is not None and it.size > limit:
            yield finding(policy, "maxGangSize", f"{path}: {it.size} members, but at most {limit} are allowed here")


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


BUDGET: Final = 100_000
"""What all rules may cost in one review, in the apiserver's units, each an equal part of it: a hundredth of what it allows one policy. A unit takes up
to 1 µs, so rules hold up the webhook for less than 50 ms, however large the object is."""
BUDGET_MIN: Final = 1_000
"""Of one rule; a loop over the containers of a usual pod costs less than 100."""
VARIABLES: Final = ("object", "oldObject", "request", "namespaceObject")
ENVIRONMENT: Final = BASE.extend(variables=dict.fromkeys(VARIABLES, t.DYN))
MESSAGE_MAX: Final = 1024


@lru_cache(maxsize=256)
def compiled(text: str, result: t.Type) -> Program:
    """Raises CompileError."""
    return compile(text, ENVIRONMENT, result=result)


def rule_faults(rule: CelRule, path: str) -> Iterator[str]:
    """Why the rule cannot be admitted, at the policy's own review."""
    for name, text, result in (
        ("expression", rule.expression, t.BOOL),
        ("messageExpression", rule.message_expression, t.STRING),
    ):
        if text is None:
            continue
        try:
            compiled(text, result)
        except CompileError as error:
            yield f"{path}.{name}: {error}"


def rule_findings(policies: Policies, it: Subject, facts: Facts) -> Iterator[Finding]:
    """The CEL rules that an object breaks, or that fail; they see it as it would be stored."""
    if not it.stored:
        return
    review = it.review
    concerned = [(policy, rule) for policy in policies for rule in policy.spec.rules if review.kind in rule.kinds]
    if not concerned:
        return
    bindings = _bindings(review, facts)
    budget = max(BUDGET_MIN, BUDGET // len(concerned))
    for policy, rule in concerned:
        text = _broken(rule, bindings, budget)
        if text is not None:
            yield finding(policy, "rules", f"{rule.name}: {text}")


def _broken(rule: CelRule, bindings: Mapping[str, Any], budget: int) -> str | None:
    try:
        if compiled(rule.expression, t.BOOL).evaluate(bindings, budget) is True:
            return None
    except (CompileError, EvaluationError) as error:
        return f"cannot be judged: {_line(error)}; ask whoever wrote the policy"
    if rule.message_expression is not None:
        try:
            text = compiled(rule.message_expression, t.STRING).evaluate(bindings, min(budget, BUDGET_MIN))
        except (CompileError, EvaluationError):
            text = ""
        if isinstance(text, str) and text.strip():
            return " ".join(text.split())[:MESSAGE_MAX]
    return rule.message or f"failed expression: {' '.join(rule.expression.split())}"


def _bindings(review: Review, facts: Facts) -> dict[str, Any]:
    request = {
        "uid": review.uid,
        "kind": {"kind": review.kind, "group": review.group},
        "resource": {"group": review.group, "resource": review.resource},
        "operation": review.operation,
        "namespace": review.namespace,
        "name": review.name,
        "userInfo": {"username": review.username, "groups": sorted(review.groups)},
        "dryRun": review.dry_run,
    }
    namespace = {"metadata": {"name": review.namespace, "labels": dict(facts.namespace_labels)}}
    return {"object": review.object, "oldObject": review.old, "request": request, "namespaceObject": namespace}


def _line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
