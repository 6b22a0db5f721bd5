"""The rules of TenancyPolicies in one table: what each is for, what it reads, which function finds it broken, and what that says.

A handler describes what it reviews as a `Subject`; `findings` runs the rules that are for it, in the order of the table. By the mode of a
policy a finding is a denial, a warning or a note in the audit log (`policies.apply_findings`). Nothing here changes an object: what
policies add is in `defaults`. docs/admission.md shows this table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

from fairlead.api.intent import Intent
from fairlead.kube.resource import ResourceClaimSpec
from fairlead.webhook.legacy.requests import LegacyLimits
from fairlead.webhook.objects.fields import Json, Path, map_at
from fairlead.webhook.policy import bounds, cel_rules, claims, device_bypass, jobs, pods, policies
from fairlead.webhook.policy.policies import Policies
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.pod_claims import PodClaim
from fairlead.webhook.review.verdict import Finding


class Kind(Enum):
    """What is judged, as the documentation calls it."""

    MANAGED_POD = "pods with managed devices"
    POD = "other pods"
    UPDATED_POD = "changed pods"
    EPHEMERAL = "ephemeral containers"
    MANAGED_TEMPLATE = "pod templates with managed devices"
    TEMPLATE = "every pod template"
    WORKLOAD = "jobs and other workloads"
    CLAIM = "claims and claim templates"


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules read of one pod, one pod template, one workload or one claim; a handler fills in what its kind has.

    `where` goes before paths: "" or a path with a dot at its end. `pod`: a pod, or the template of one. `job`: the path of the JobSpec in
    `object`, where the template is that of a gang Job. `pods` of a workload run at once without a gang and hold `devices`. `review`:
    where the CEL rules of policies are due.
    """

    kind: Kind
    where: str = ""
    pod: Json = {}
    legacy: LegacyLimits = LegacyLimits()
    translated: bool = False
    claims: Sequence[PodClaim] = ()
    intent: Intent | None = None
    size: int | None = None
    pod_group: str | None = None
    object: Json = {}
    job: Path | None = None
    pods: int = 0
    devices: int = 0
    claim: ResourceClaimSpec | None = None
    review: Review | None = None

    @property
    def spec(self) -> Json:
        return map_at(self.pod, "spec", self.where.removesuffix("."))

    @property
    def metadata(self) -> Json:
        return map_at(self.pod, "metadata", self.where.removesuffix("."))


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


def _legacy(governing: Policies, it: Subject, facts: Facts) -> Iterator[Finding]:
    yield from policies.legacy_findings(governing, [f"{it.where}{path}" for path in it.legacy.paths])


def _gang_size(governing: Policies, it: Subject, facts: Facts) -> Iterator[Finding]:
    return policies.gang_findings(governing, it.size, f"{it.where}metadata.annotations", pod_group=it.pod_group)


def _claims(governing: Policies, it: Subject, facts: Facts) -> Iterator[Finding]:
    for limit in it.legacy.limits if it.translated else ():
        yield from claims.legacy_limit_findings(governing, limit, it.where, facts)
    for claim in it.claims:
        yield from claims.pod_claim_findings(governing, claim, it.where, facts)
    if it.claim is not None:
        yield from claims.claim_findings(governing, it.claim, it.where.removesuffix("."), facts)


def _pod(governing: Policies, it: Subject, facts: Facts) -> Iterator[Finding]:
    return pods.pod_findings(governing, it.spec, f"{it.where}spec", template=it.kind is Kind.MANAGED_TEMPLATE)


def _keep_idle(governing: Policies, it: Subject, facts: Facts) -> Iterator[Finding]:
    return pods.keep_idle_findings(governing, it.metadata, f"{it.where}metadata")


def _bounds(governing: Policies, it: Subject, facts: Facts) -> Iterator[Finding]:
    return bounds.bound_findings(governing, it.intent, it.spec, it.where) if it.intent is not None else iter(())


def _failures(governing: Policies, it: Subject, facts: Facts) -> Iterator[Finding]:
    return jobs.failure_findings(governing, it.object, it.job) if it.job is not None else iter(())


def _missing_gang(governing: Policies, it: Subject, facts: Facts) -> Iterator[Finding]:
    return jobs.missing_gang_findings(
        governing, pods=it.pods, devices=it.devices, where=f"{it.where}metadata.annotations"
    )


def _bypass(governing: Policies, it: Subject, facts: Facts) -> Iterator[Finding]:
    added, where = it.kind is Kind.EPHEMERAL, it.where.removesuffix(".")
    return device_bypass.bypass_findings(governing, it.pod, where, drivers=facts.drivers, added=added)


def _cel(governing: Policies, it: Subject, facts: Facts) -> Iterable[Finding]:
    return () if it.review is None else cel_rules.rule_findings(governing, it.review, facts)


_PODS = frozenset({Kind.MANAGED_POD, Kind.MANAGED_TEMPLATE})
_HIGHEST = ("<field>: <value> is more than <bound> (TenancyPolicy <name>); write at most that, or remove it",)
RULES: tuple[Rule, ...] = (
    Rule(
        says={"legacyRequests": ("<limit>: legacy requests are refused here; ask by a ResourceClaimTemplate",)},
        of=_PODS | {Kind.POD},
        reads="limits of the device plugin's resources",
        find=_legacy,
    ),
    Rule(
        says={
            "maxGangSize": (
                "<size>: <n> members, but at most <limit> are allowed here",
                "<size>: is missing: the size is in PodGroup <name>; write it here, too, at most <limit>",
            )
        },
        of=_PODS,
        reads="the gang's size",
        find=_gang_size,
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
        find=_claims,
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
        find=_pod,
    ),
    Rule(
        says={
            "keepIdle": (
                "<annotation>: is not allowed here; remove it; a Queue of such pods may say idle: {then: nothing}",
            )
        },
        of=_PODS | {Kind.UPDATED_POD},
        reads="the annotation fairlead.dev/keep-idle",
        find=_keep_idle,
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
        of=_PODS,
        reads="fairlead.dev/min-runtime, fairlead.dev/checkpoint-grace, terminationGracePeriodSeconds, priority",
        find=_bounds,
    ),
    Rule(
        says={"podFailurePolicy": ("<job>.podFailurePolicy: evictions count against backoffLimit; <cure>",)},
        of=frozenset({Kind.MANAGED_TEMPLATE}),
        reads="the podFailurePolicy of gang Jobs",
        find=_failures,
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
        of=frozenset({Kind.MANAGED_POD, Kind.POD, Kind.EPHEMERAL, Kind.TEMPLATE}),
        reads="what a pod uses of its node; the NVIDIA runtime's variable, mounts and class; limits that a device plugin serves",
        find=_bypass,
    ),
    Rule(
        says={
            "multiGpuJobs": (
                "<annotation>: is missing, but <n> pods hold <m> devices at once; name a gang, so that none of them waits …",
            )
        },
        of=frozenset({Kind.WORKLOAD}),
        reads="pods that run at once without a gang, and the devices that they hold",
        find=_missing_gang,
    ),
    Rule(
        says={"rules": ("<rule>: <its message>",)},
        of=frozenset({Kind.MANAGED_POD, Kind.WORKLOAD, Kind.CLAIM}),
        reads="object, oldObject, request and namespaceObject, in CEL",
        find=_cel,
    ),
)
_RULES_OF = {kind: tuple(rule for rule in RULES if kind in rule.of) for kind in Kind}
