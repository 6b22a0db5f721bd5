"""The rules of TenancyPolicies in one table: what each is for, what it reads, which function finds it broken, and what that says.

A handler describes what it reviews as a `Subject`; `findings` runs the rules that are for it, in the order of the table. By the mode of a
policy a finding is a denial, a warning or a note in the audit log (`policies.apply_findings`). Nothing here changes an object: what
policies add is in `defaults`. docs/admission.md shows this table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from fairlead.webhook.policy import claims, device_bypass, jobs, pods, policies
from fairlead.webhook.policy.policies import Kind, Policies, Subject
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.verdict import Finding

Find = Callable[[Policies, Subject, Facts], Iterable[Finding]]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Fields of a policy that one function judges, each with its messages, where <…> and … stand for what varies."""

    says: Mapping[str, tuple[str, ...]]
    of: frozenset[Kind]
    reads: str
    find: Find


def findings(governing: Policies, subjects: Iterable[Subject], facts: Facts) -> list[Finding]:
    """What the policies find in each subject, in the order of the table. Raises MalformedError."""
    if not governing:
        return []
    return [
        found
        for subject in subjects
        for rule in _RULES_OF[subject.kind]
        for found in rule.find(governing, subject, facts)
    ]


_PODS = frozenset({Kind.MANAGED_POD, Kind.MANAGED_TEMPLATE})
_MEMBERS = _PODS | {Kind.MEMBER_POD, Kind.MEMBER_TEMPLATE}
_HIGHEST = ("<field>: <value> is more than <bound> (TenancyPolicy <name>); write at most that, or remove it",)
RULES: tuple[Rule, ...] = (
    Rule(
        says={"legacyRequests": ("<limit>: legacy requests are refused here; ask by a ResourceClaimTemplate",)},
        of=_PODS | {Kind.MEMBER_POD, Kind.POD},
        reads="limits of the device plugin's resources",
        find=policies.legacy_findings,
    ),
    Rule(
        says={
            "maxGangSize": (
                "<size>: <n> members, but at most <limit> are allowed here",
                "<size>: is missing: the size is in PodGroup <name>; write it here, too, at most <limit>",
            )
        },
        of=_MEMBERS,
        reads="the gang's size",
        find=policies.gang_findings,
    ),
    Rule(
        says={
            "deviceClasses": ("<request>.deviceClassName: <class> is not allowed here; allowed: <classes>",),
            "adminAccess": ("<request>.adminAccess: is not allowed here; remove it",),
            "wholeGpus": (
                "<request>.deviceClassName: <class> may give whole GPUs, which are not allowed here; ask for a MIG device: …",
            ),
            "isolation": (
                "<request>.capacity: asks for a part of a shared device, but only whole GPUs and MIG devices are allowed here; remove it",
                "<request>.selectors: may give <model>, which several claims share; add the selector …",
                "<configuration>: <strategy> shares a device between processes, but only whole GPUs and MIG devices …; remove sharing",
            ),
            "flavors": (
                "<request>.selectors: may give <model>, which is of no flavor that is allowed here (<flavors>)…",
                "<request>.selectors: cannot be told which flavors they may give…",
            ),
            "maxDevicesPerClaim": ("<claim>: <n> devices in one claim, but at most <limit> are allowed here",),
            "sharingStrategies": ("<configuration>: <strategy> is not allowed here; allowed: <strategies>",),
        },
        of=_PODS | {Kind.CLAIM},
        reads="requests and configurations of claims, of templates that pods name, and of what legacy limits become; device models",
        find=claims.findings,
    ),
    Rule(
        says={
            "resourceRequests": (
                "<container>.limits[<resource>]: is missing; write a limit, and the same as request or none",
                "<container>.requests[<resource>]: <request> must equal the limit <limit>; write the same, or none",
            ),
            "tolerations": ("<pod>.tolerations: the toleration <toleration> is missing; add it",),
            "nodeAffinity": ("<pod>.affinity.nodeAffinity: <requirement> is missing; require it, or set nodeSelector",),
        },
        of=_PODS,
        reads="requests and limits of containers, tolerations, node selector and affinity",
        find=pods.pod_findings,
    ),
    Rule(
        says={
            "keepIdle": (
                "<annotation>: is not allowed here; remove it; a Queue of such pods may say idle: {then: nothing}",
            )
        },
        of=_MEMBERS | {Kind.UPDATED_POD},
        reads="the annotation fairlead.dev/keep-idle",
        find=pods.keep_idle_findings,
    ),
    Rule(
        says={
            "maxMinRuntime": _HIGHEST,
            "maxCheckpointGrace": _HIGHEST,
            "maxTerminationGrace": _HIGHEST,
            "maxPriority": (
                "<pod>.priority: <n> is more than <limit> (TenancyPolicy <name>); name another priorityClassName, or none",
            ),
        },
        of=_MEMBERS,
        reads="fairlead.dev/min-runtime, fairlead.dev/checkpoint-grace, terminationGracePeriodSeconds, priority",
        find=pods.bound_findings,
    ),
    Rule(
        says={"podFailurePolicy": ("<job>.podFailurePolicy: evictions count against backoffLimit; <cure>",)},
        of=frozenset({Kind.MANAGED_TEMPLATE}),
        reads="the podFailurePolicy of gang Jobs",
        find=jobs.failure_findings,
    ),
    Rule(
        says={
            "deviceBypass": (
                "<field>: <what it does>; remove it…",
                "<volume>: <what it does>; remove the volume",
                "<volume>: <what it does>; use …",
                "<mount>.readOnly: is not true, and the host path of volume <name> may only be read; write readOnly: true, or …",
            ),
            "hostAccess": ("…; an administrator can allow it by spec.hostAccess.<field> of the policy",),
        },
        of=frozenset({Kind.MANAGED_POD, Kind.MEMBER_POD, Kind.POD, Kind.EPHEMERAL, Kind.TEMPLATE}),
        reads="what a pod uses of its node; the NVIDIA runtime's variable, mounts and class; limits that a device plugin serves",
        find=device_bypass.bypass_findings,
    ),
    Rule(
        says={
            "multiGpuJobs": (
                "<annotation>: is missing, but <n> pods hold <m> devices at once; name a gang, so that none of them waits …",
            )
        },
        of=frozenset({Kind.WORKLOAD}),
        reads="pods that run at once without a gang, and the devices that they hold",
        find=jobs.missing_gang_findings,
    ),
    Rule(
        says={"rules": ("<rule>: <its message>",)},
        of=frozenset({Kind.MANAGED_POD, Kind.WORKLOAD, Kind.CLAIM}),
        reads="object, oldObject, request and namespaceObject, in CEL",
        find=policies.rule_findings,
    ),
)
_RULES_OF = {kind: tuple(rule for rule in RULES if kind in rule.of) for kind in Kind}
