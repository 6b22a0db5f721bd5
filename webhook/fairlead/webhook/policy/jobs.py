"""Policy rules about whole jobs: a gang for those that hold several devices, and evictions that do not count as failures.

An eviction to make room for another gang sets the pod's condition DisruptionTarget; a Job that ignores it in its
podFailurePolicy keeps its backoffLimit.
The Job controller counts each evicted pod as a failure, against backoffLimit (6), unless podFailurePolicy ignores that condition. And,
ignored or not, each doubles its back-off of 10 s, up to 600 s. Only with backoffLimitPerIndex does each index wait by itself: 10 s after the
first eviction. What a gang Job lacks to be back soon is one warning. Example: an Indexed Job of eight with neither fails at once; with
podFailurePolicy alone it is back after 600 s; with both after 10 s. Seen on Kubernetes 1.36.2; source: pkg/controller/job/backoff_utils.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fairlead.api import names
from fairlead.webhook.objects.fields import Json, Path, dotted, int_at, list_at, map_at, object_at, text_at
from fairlead.webhook.policy.policies import Policies, Subject, finding
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.verdict import Finding


def missing_gang_findings(policies: Policies, it: Subject, _: Facts) -> Iterator[Finding]:
    if it.pods < 2 or it.devices < 2:
        return
    for policy in policies:
        if policy.spec.multi_gpu_jobs == "RequireGang":
            text = (
                f"{it.where}metadata.annotations[{names.GANG}]: is missing, but {it.pods} pods hold {it.devices} devices at once; "
                "name a gang, so that none of them waits while it holds devices"
            )
            yield finding(policy, "multiGpuJobs", text)


def failure_findings(policies: Policies, it: Subject, _: Facts) -> Iterator[Finding]:
    """Findings about a gang Job whose evictions count as failures. Raises MalformedError."""
    if it.job is None:
        return
    where, spec = dotted(it.job), object_at(it.object, it.job)
    for policy in policies:
        rule, mode = policy.spec.pod_failure_policy, policy.spec.mode
        if rule == "Any" or (rule == "Default" and (mode == "Enforce" or spec.get("podFailurePolicy") is not None)):
            continue
        if not ignores_evictions(spec, where):
            cure = obstacle(spec, where) or f"add a rule with action Ignore for the condition {DISRUPTION}"
            text = f"{where}.podFailurePolicy: evictions count against backoffLimit; {cure}"
            yield finding(policy, "podFailurePolicy", text)


def obstacle(spec: Json, where: str) -> str | None:
    """Why the Job cannot have a podFailurePolicy at all."""
    if map_at(map_at(spec, "template", where), "spec", where).get("restartPolicy") != "Never":
        return "set the template's restartPolicy to Never, without which a Job has no podFailurePolicy"
    return None


DISRUPTION: Final = "DisruptionTarget"
BACKOFF_S: Final = 10
BACKOFF_MAX_S: Final = 600
BACKOFF_LIMIT: Final = 6
"""Of a Job that says neither backoffLimit nor backoffLimitPerIndex."""
SOON_S: Final = 15
SUGGESTED_LIMIT: Final = 3


def eviction_warning(object_: Json, jobs: list[tuple[Path, int]]) -> tuple[str, ...]:
    """One warning about the JobSpecs at these paths, of which so many pods run at once; () if all are back soon."""
    found: dict[str, list[str]] = {}
    for path, pods in jobs:
        where, spec = dotted(path), object_at(object_, path)
        fate = _fate(spec, where, pods)
        if fate:
            text = f"an evicted gang {fate}; add {', '.join(missing(spec, where))}"
            found.setdefault(text, []).append(where)
    return tuple(f"{', '.join(places)}: {text}" for text, places in found.items())


def missing(spec: Json, where: str) -> list[str]:
    """What the JobSpec needs to be back soon, in words of its fields. Raises MalformedError."""
    needs: list[str] = []
    if map_at(map_at(spec, "template", where), "spec", where).get("restartPolicy") != "Never":
        needs.append("restartPolicy: Never in the template")
    if text_at(spec, "completionMode", where) != "Indexed":
        needs.append("completionMode: Indexed")
    if int_at(spec, "backoffLimitPerIndex", where) is None:
        needs.append(f"backoffLimitPerIndex: {SUGGESTED_LIMIT}")
    if not ignores_evictions(spec, where):
        needs.append(f"a podFailurePolicy rule with action Ignore for the condition {DISRUPTION}")
    return needs


def ignores_evictions(spec: Json, where: str) -> bool:
    rules = list_at(map_at(spec, "podFailurePolicy", where), "rules", where)
    return any(
        rule.get("action") == "Ignore"
        and any(condition.get("type") == DISRUPTION for condition in list_at(rule, "onPodConditions", where))
        for rule in rules
    )


def _fate(spec: Json, where: str, pods: int) -> str:
    """What becomes of it; "" if it is back soon and may be evicted any number of times."""
    per_index = int_at(spec, "backoffLimitPerIndex", where)
    limit = int_at(spec, "backoffLimit", where)
    if limit is None:
        limit = BACKOFF_LIMIT if per_index is None else 2**31 - 1
    ignored = ignores_evictions(spec, where)
    if not ignored and pods > limit:
        return f"fails its Job at once: {pods} evicted pods count against backoffLimit {limit}"
    wait_s = min(BACKOFF_MAX_S, BACKOFF_S * 2 ** min(10, pods - 1)) if per_index is None else BACKOFF_S
    if wait_s > SOON_S:
        return f"comes back only after {wait_s} s: each of {pods} evicted pods doubles its Job's back-off"
    if not ignored:
        times = limit // pods if per_index is None else min(limit // pods, per_index)
        return f"fails its Job after {times} evictions: they count as failures"
    return ""
