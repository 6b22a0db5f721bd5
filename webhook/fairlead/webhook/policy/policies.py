"""TenancyPolicies: which of them govern a review, what they read of it (`Subject`), and how their findings combine.

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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from fairlead.api import names
from fairlead.api.flavor import Flavor
from fairlead.api.intent import Intent
from fairlead.api.policy import CelRule, LegacyRequests, TenancyPolicy
from fairlead.api.queue import Queue
from fairlead.cel import CompileError, EvaluationError, Program, compile  # noqa: A004 - CEL's own word
from fairlead.cel import types as t
from fairlead.cel.devices.requests import Request
from fairlead.cel.kubernetes import BASE
from fairlead.kube import labels
from fairlead.kube.resource import OpaqueDeviceConfiguration, ResourceClaimSpec
from fairlead.webhook.legacy import LegacyLimits
from fairlead.webhook.objects.fields import Json, Path, map_at
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.pod_claims import Managed, PodClaim
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
        return SelectingPolicy(policy, labels.from_label_selector(policy.spec.namespace_selector))


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


class Kind(Enum):
    """What is judged, as the documentation calls it."""

    NEW_POD = "new pods"
    LEGACY = "legacy limits"
    MANAGED_POD = "pods with managed devices"
    MEMBER_POD = "members of gangs without managed devices"
    POD = "other pods"
    UPDATED_POD = "changed pods"
    EPHEMERAL = "ephemeral containers"
    NEW_TEMPLATES = "new pod templates"
    CHANGED_JOB = "changed Jobs and TrainJobs"
    MANAGED_TEMPLATE = "pod templates with managed devices"
    MEMBER_TEMPLATE = "pod templates of members without managed devices"
    TEMPLATE = "every pod template"
    TRAIN_JOB = "TrainJobs"
    WORKLOAD = "jobs and other workloads"
    GANGS = "gangs of workloads"
    NEW_CLAIM = "new claims and claim templates"
    CLAIM = "claims and claim templates"
    CLASS = "DeviceClasses"
    QUEUE = "Queues"
    FLAVOR = "Flavors"
    POLICY = "TenancyPolicies"


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What the tables read of one pod, one pod template, one workload or one claim; a handler fills in what its kind has.

    `stored`: as it would be stored, after every mutating webhook. `where` goes before paths: "" or a path with a dot at its end. `pod`:
    a pod, or the template of one. `job`: the path of the JobSpec in `object`, where the template is that of a gang Job. `pods` of a
    workload run at once without a gang and hold `devices`. `managed`: whether it surely waits at the gate. `contradictions` were found
    while annotations were copied to a template or gangs were counted, `unread` while what a pod says of its gang was read.
    """

    kind: Kind
    review: Review
    stored: bool = False
    where: str = ""
    pod: Json = {}
    legacy: LegacyLimits = LegacyLimits()
    translated: bool = False
    claims: Sequence[PodClaim] = ()
    managed: bool = False
    intent: Intent | None = None
    contradictions: Sequence[str] = ()
    unread: Sequence[str] = ()
    size: int | None = None
    pod_group: str | None = None
    object: Json = {}
    job: Path | None = None
    pods: int = 0
    devices: int = 0
    claim: ResourceClaimSpec | None = None
    requests: Sequence[tuple[str, Request]] = ()
    configs: Sequence[tuple[str, tuple[str, ...], OpaqueDeviceConfiguration]] = ()
    own: Queue | Flavor | TenancyPolicy | None = None

    @property
    def spec(self) -> Json:
        return map_at(self.pod, "spec", self.where.removesuffix("."))

    @property
    def metadata(self) -> Json:
        return map_at(self.pod, "metadata", self.where.removesuffix("."))


def surely_managed(claims: Sequence[PodClaim]) -> bool:
    """A claim that does not exist yet may be another driver's."""
    return any(claim.managed is Managed.YES for claim in claims)
