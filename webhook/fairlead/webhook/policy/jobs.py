"""Policy rules about whole jobs: a gang for those that hold several devices, and evictions that do not count as failures.

An eviction to make room for another gang sets the pod's condition DisruptionTarget; a Job that ignores it in its
podFailurePolicy keeps its backoffLimit. What an evicted gang Job needs beside that is `gangs.job_evictions`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fairlead.api import names
from fairlead.webhook.gangs.job_evictions import BACKOFF_LIMIT, DISRUPTION, ignores_evictions
from fairlead.webhook.objects.fields import Json, Path, dotted, int_at, map_at, object_at, text_at
from fairlead.webhook.policy.policies import Policies, finding
from fairlead.webhook.review.patch import PatchBuilder
from fairlead.webhook.review.verdict import Finding


def missing_gang_findings(policies: Policies, *, pods: int, devices: int, where: str) -> Iterator[Finding]:
    """Findings about pods that run at once without a gang, and hold so many devices; where: the annotations of their template."""
    if pods < 2 or devices < 2:
        return
    for policy in policies:
        if policy.spec.multi_gpu_jobs == "RequireGang":
            text = (
                f"{where}[{names.GANG}]: is missing, but {pods} pods hold {devices} devices at once; "
                "name a gang, so that none of them waits while it holds devices"
            )
            yield finding(policy, "multiGpuJobs", text)


def set_failure_defaults(policies: Policies, patch: PatchBuilder, job: Path) -> None:
    """Let a gang Job ignore evictions and be back soon after one, where an Enforce policy asks for it.

    An Indexed Job gets back-off by index, with its backoffLimit as the limit of each: so it fails when it would have failed
    without. What the JobSpec at path `job` says itself stays.
    """
    wanted = any(p.spec.pod_failure_policy == "Default" and p.spec.mode == "Enforce" for p in policies)
    spec, where = object_at(patch.patched, job), dotted(job)
    if not wanted or _obstacle(spec, where) is not None:
        return
    if spec.get("podFailurePolicy") is None:
        condition: dict[str, Any] = {"type": DISRUPTION, "status": "True"}
        patch.set((*job, "podFailurePolicy"), {"rules": [{"action": "Ignore", "onPodConditions": [condition]}]})
        if spec.get("podReplacementPolicy") not in (None, "Failed"):
            # The apiserver has set its default by now, TerminatingOrFailed; beside a podFailurePolicy only Failed is valid.
            patch.set((*job, "podReplacementPolicy"), "Failed")
    if text_at(spec, "completionMode", where) == "Indexed" and spec.get("backoffLimitPerIndex") is None:
        limit = int_at(spec, "backoffLimit", where)
        if limit is None:  # else the apiserver's default would be another one beside backoffLimitPerIndex
            patch.set((*job, "backoffLimit"), BACKOFF_LIMIT)
        patch.set((*job, "backoffLimitPerIndex"), BACKOFF_LIMIT if limit is None else limit)


def failure_findings(policies: Policies, object_: Json, job: Path) -> Iterator[Finding]:
    """Findings about a gang Job whose evictions count as failures. Raises MalformedError."""
    where, spec = dotted(job), object_at(object_, job)
    for policy in policies:
        rule, mode = policy.spec.pod_failure_policy, policy.spec.mode
        if rule == "Any" or (rule == "Default" and (mode == "Enforce" or spec.get("podFailurePolicy") is not None)):
            continue
        if not ignores_evictions(spec, where):
            cure = _obstacle(spec, where) or f"add a rule with action Ignore for the condition {DISRUPTION}"
            text = f"{where}.podFailurePolicy: evictions count against backoffLimit; {cure}"
            yield finding(policy, "podFailurePolicy", text)


def _obstacle(spec: Json, where: str) -> str | None:
    """Why the Job cannot have a podFailurePolicy at all."""
    if map_at(map_at(spec, "template", where), "spec", where).get("restartPolicy") != "Never":
        return "set the template's restartPolicy to Never, without which a Job has no podFailurePolicy"
    return None
