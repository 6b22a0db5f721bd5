"""The pods of a Job: how one is built, which index it has, and what its failure means.

Pure. Source: kubernetes pkg/controller/job/indexed_job_utils.go, pod_failure_policy.go, 1.36.
"""

from collections.abc import Iterable
from typing import Any, Final

from fairlead.kube import timestamps
from fairlead.sandbox.objects import (
    Obj,
    annotations_of,
    condition,
    finalizers_of,
    is_deleting,
    meta,
    name_of,
    namespace_of,
    owner_reference,
    phase_of,
    spec_of,
    status_of,
    uid_of,
)

TRACKING: Final = "batch.kubernetes.io/job-tracking"
INDEX: Final = "batch.kubernetes.io/job-completion-index"
_LABELS_BY_UID: Final = ("batch.kubernetes.io/controller-uid", "controller-uid")
_LABELS_BY_NAME: Final = ("batch.kubernetes.io/job-name", "job-name")
_INDEX_ENV: Final = {
    "name": "JOB_COMPLETION_INDEX",
    "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}},
}


def is_tracked(pod: Obj) -> bool:
    return TRACKING in finalizers_of(pod)


def index_of(pod: Obj) -> int | None:
    text = annotations_of(pod).get(INDEX, "")
    return int(text) if text.isascii() and text.isdigit() else None


def new_pod(job: Obj, *, index: int | None) -> Obj:
    template = spec_of(job).get("template") or {}
    wanted = template.get("metadata") or {}
    labels = dict(wanted.get("labels") or {})
    annotations = dict(wanted.get("annotations") or {})
    for label in _LABELS_BY_UID:
        labels.setdefault(label, uid_of(job))
    for label in _LABELS_BY_NAME:
        labels.setdefault(label, name_of(job))
    spec: Obj = dict(template.get("spec") or {})
    generate_name = f"{name_of(job)}-"
    if index is not None:
        labels[INDEX] = annotations[INDEX] = str(index)
        generate_name = f"{name_of(job)}-{index}-"
        spec["hostname"] = spec.get("hostname") or f"{name_of(job)}-{index}"[:63]
        for field in ("initContainers", "containers"):
            if spec.get(field):
                spec[field] = [_with_index(container) for container in spec[field]]
    metadata: Obj = {
        "generateName": generate_name,
        "namespace": namespace_of(job),
        "labels": labels,
        "finalizers": [TRACKING],
        "ownerReferences": [owner_reference(job, api_version="batch/v1", kind="Job")],
    }
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _with_index(container: Obj) -> Obj:
    env = list(container.get("env") or ())
    if any(each.get("name") == _INDEX_ENV["name"] for each in env):
        return container
    return {**container, "env": [*env, _INDEX_ENV]}


def finished_s(pod: Obj) -> float:
    """When a pod ended, seconds since the epoch: its last container, else not ready, else deleted; else its creation."""
    states = [(each.get("state") or {}).get("terminated") for each in status_of(pod).get("containerStatuses") or ()]
    ends = [timestamps.parse(str(ended["finishedAt"])) for ended in states if ended and ended.get("finishedAt")]
    if ends and len(ends) == len(states):
        return max(ends)
    ready = condition(pod, "Ready")
    if ready is not None and ready.get("status") == "False" and ready.get("lastTransitionTime"):
        return timestamps.parse(str(ready["lastTransitionTime"]))
    if is_deleting(pod):
        grace_s = float(meta(pod).get("deletionGracePeriodSeconds") or 0)
        return timestamps.parse(str(meta(pod)["deletionTimestamp"])) - grace_s
    created = meta(pod).get("creationTimestamp")
    return timestamps.parse(str(created)) if created else 0.0


def failure_action(job: Obj, pod: Obj) -> tuple[str, str]:
    """`Count`, `Ignore`, `FailIndex` or `FailJob` for a failed pod, with a message, as the Job's podFailurePolicy has it."""
    rules = (spec_of(job).get("podFailurePolicy") or {}).get("rules") or ()
    if phase_of(pod) != "Failed":
        return "Count", ""
    for place, rule in enumerate(rules):
        if _matches(rule, pod):
            action = str(rule.get("action", "Count"))
            return action, f"Pod {namespace_of(pod)}/{name_of(pod)} matched podFailurePolicy rule {place} ({action})"
    return "Count", ""


def _matches(rule: dict[str, Any], pod: Obj) -> bool:
    on_exit = rule.get("onExitCodes")
    if on_exit:
        for each in status_of(pod).get("containerStatuses") or ():
            ended = (each.get("state") or {}).get("terminated")
            if not ended or not ended.get("exitCode"):
                continue
            if on_exit.get("containerName") and on_exit["containerName"] != each.get("name"):
                continue
            if (ended["exitCode"] in on_exit.get("values", ())) == (on_exit.get("operator") == "In"):
                return True
    return any(
        each.get("type") == wanted.get("type") and each.get("status") == wanted.get("status", "True")
        for wanted in rule.get("onPodConditions") or ()
        for each in status_of(pod).get("conditions") or ()
    )


def parse_indexes(text: str) -> Iterable[int]:
    """The indexes of `status.completedIndexes`: `1,3-5,7`."""
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if first:
            yield from range(int(first), int(last if dash else first) + 1)


def format_indexes(indexes: Iterable[int]) -> str:
    parts: list[str] = []
    run: list[int] = []
    for index in [*sorted(indexes), None]:
        if run and index is not None and index == run[-1] + 1:
            run.append(index)
            continue
        if run:
            # Kubernetes writes a run of two as `1,2`, and longer ones as `1-3`.
            parts += [str(each) for each in run] if len(run) < 3 else [f"{run[0]}-{run[-1]}"]
        run = [index] if index is not None else []
    return ",".join(parts)
