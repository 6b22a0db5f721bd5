"""The pods of a Job: how one is built, what its failure means, how they are counted, and how long the next one waits.

Without `backoffLimitPerIndex` one record counts for the whole Job: every failed pod doubles the wait, also one that a
podFailurePolicy ignores, and also several that failed at once. A success resets it. So a gang of eight that is evicted has
failed eight times: 10 s doubled seven times is more than the maximum, 600 s. With `backoffLimitPerIndex` each index waits
by itself for its own failures, which its pods carry as annotations: a failed pod keeps its tracking finalizer, and so is not yet
counted, until its index has another pod, has succeeded, or has failed for good.
Pure. Times are unix seconds. Source: kubernetes pkg/controller/job (job_controller.go: isPodFailed, getNewFinishedPods;
indexed_job_utils.go, pod_failure_policy.go, backoff_utils.go), 1.36.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
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


MAX_FACTOR: Final = 60.0
"""The longest wait, in base waits: 600 s with the real base of 10 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackoffRecord:
    """The failures of one Job. In memory only, as upstream: a Job controller that restarts counts from zero."""

    failures: int = 0  # after the last success
    last_failure_s: float = 0.0
    counted: frozenset[str] = frozenset()  # UIDs of the pods that are in it already

    def noted(self, succeeded: dict[str, float], failed: dict[str, float]) -> BackoffRecord:
        """With pods that ended since: their ends by UID. `counted` keeps only pods that still exist, as these do."""
        new_successes = [end for uid, end in succeeded.items() if uid not in self.counted]
        new_failures = [end for uid, end in failed.items() if uid not in self.counted]
        counted = frozenset((*succeeded, *failed))
        if not new_successes:
            last = max((self.last_failure_s, *new_failures))
            return BackoffRecord(failures=self.failures + len(new_failures), last_failure_s=last, counted=counted)
        after = [end for end in new_failures if end > max(new_successes)]
        return BackoffRecord(failures=len(after), last_failure_s=max(after, default=0.0), counted=counted)

    def remaining_s(self, now_s: float, base_s: float) -> float:
        return remaining_s(self.failures, self.last_failure_s, now_s, base_s)


def remaining_s(failures: int, last_failure_s: float, now_s: float, base_s: float) -> float:
    """Seconds until the next pod may be created."""
    if not failures:
        return 0.0
    wait_s = base_s * min(MAX_FACTOR, 2.0 ** min(20, failures - 1))
    return max(0.0, wait_s - (now_s - last_failure_s))


def soonest(waits: Iterable[float]) -> float | None:
    """The shortest wait that is not over; None when none is left."""
    return min((wait for wait in waits if wait > 0), default=None)


FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURES: Final = "batch.kubernetes.io/job-index-ignored-failure-count"


def limited(job: Obj) -> bool:
    return spec_of(job).get("backoffLimitPerIndex") is not None


def failed_indexes(job: Obj, failed: Iterable[Obj]) -> set[int]:
    """The indexes of failed pods that may not be tried again."""
    found: set[int] = set()
    for pod in failed:
        index = index_of(pod)
        if index is not None and _is_last_failure(job, pod):
            found.add(index)
    return found


def _is_last_failure(job: Obj, pod: Obj) -> bool:
    action, _ = failure_action(job, pod)
    if action == "FailIndex":
        return True
    return action != "Ignore" and _number(pod, FAILURES) >= int(spec_of(job)["backoffLimitPerIndex"])


def delayed(job: Obj, failed: Iterable[Obj], settled: Collection[int]) -> dict[int, Obj]:
    """By index the failed pod that is kept until the index has its next pod. `settled`: active, succeeded or failed."""
    kept: dict[int, Obj] = {}
    for pod in failed:
        index = index_of(pod)
        if index is None or index in settled or not is_tracked(pod):
            continue
        before = kept.get(index)
        if before is None or _all_failures(before) <= _all_failures(pod):
            kept[index] = pod
    return kept


def wait_s(last: Obj | None, now_s: float, base_s: float) -> float:
    """Until the index of this failed pod gets another."""
    if last is None:
        return 0.0
    return remaining_s(_all_failures(last) + 1, finished_s(last), now_s, base_s)


def with_failures(job: Obj, pod: Obj, last: Obj | None) -> Obj:
    """The new pod of an index, with the index's failures so far."""
    if not limited(job):
        return pod
    failures, ignored = (_number(last, FAILURES), _number(last, IGNORED_FAILURES)) if last else (0, 0)
    if last is not None:
        was_ignored = failure_action(job, last)[0] == "Ignore"
        failures, ignored = failures + (not was_ignored), ignored + was_ignored
    annotations = {**annotations_of(pod), FAILURES: str(failures)}
    if ignored:
        annotations[IGNORED_FAILURES] = str(ignored)
    return {**pod, "metadata": {**pod["metadata"], "annotations": annotations}}


def uids(pods: Iterable[Obj]) -> set[str]:
    return {uid_of(pod) for pod in pods}


def _all_failures(pod: Obj) -> int:
    return _number(pod, FAILURES) + _number(pod, IGNORED_FAILURES)


def _number(pod: Obj, annotation: str) -> int:
    text = annotations_of(pod).get(annotation, "")
    return int(text) if text.isascii() and text.isdigit() else 0


@dataclass(frozen=True, kw_only=True)
class Count:
    active: tuple[Obj, ...]
    terminating: tuple[Obj, ...]
    succeeded: int
    failed: int
    indexes: frozenset[int]  # succeeded
    failed_indexes: frozenset[int]
    uncounted: dict[str, list[str]]
    counted: tuple[int, int]  # succeeded, failed: those already in the status' numbers
    fatal: str  # a podFailurePolicy's FailJob: its message
    backoff: BackoffRecord
    ignored: frozenset[str]  # failed pods that a podFailurePolicy does not count: their UIDs
    delayed: dict[int, Obj]  # by index the failed pod that is kept until its successor exists


def is_active(pod: Obj) -> bool:
    return phase_of(pod) not in {"Succeeded", "Failed"} and not is_deleting(pod)


def replaces_only_failed(job: Obj) -> bool:
    spec = spec_of(job)
    return spec.get("podReplacementPolicy") == "Failed" or spec.get("podFailurePolicy") is not None


def has_failed(job: Obj, pod: Obj) -> bool:
    phase = phase_of(pod)
    if phase == "Failed":
        return True
    if not is_deleting(pod) or phase == "Succeeded":
        return False
    return phase == "Pending" if replaces_only_failed(job) else True


def count_pods(job: Obj, pods: Sequence[Obj], backoff: BackoffRecord, now_s: float) -> Count:
    """`backoff` is the record so far; the result has the new one."""
    status = status_of(job)
    before: Mapping[str, list[str]] = status.get("uncountedTerminatedPods") or {}
    tracked = {uid_of(pod) for pod in pods if is_tracked(pod)}
    uncounted: dict[str, list[str]] = {}
    counted = [int(status.get("succeeded") or 0), int(status.get("failed") or 0)]
    for place, kind in enumerate(("succeeded", "failed")):
        earlier = before.get(kind) or []
        uncounted[kind] = [uid for uid in earlier if uid in tracked]
        counted[place] += len(earlier) - len(uncounted[kind])
    known = {uid for earlier in before.values() for uid in earlier}
    fresh = [pod for pod in pods if is_tracked(pod) and uid_of(pod) not in known]
    succeeded = [pod for pod in fresh if phase_of(pod) == "Succeeded"]
    failed = [pod for pod in fresh if has_failed(job, pod)]
    actions = {uid_of(pod): failure_action(job, pod) for pod in failed}
    active = tuple(pod for pod in pods if is_active(pod))
    indexes, failed_indexes, delayed = _indexes(job, active, succeeded, failed)
    kept = uids(delayed.values())
    uncounted["succeeded"] += [uid_of(pod) for pod in succeeded]
    for pod in failed:
        if actions[uid_of(pod)][0] != "Ignore" and uid_of(pod) not in kept:
            uncounted["failed"].append(uid_of(pod))
    not_ignored_kept = sum(actions[uid][0] != "Ignore" for uid in kept)
    if _indexed(job):
        counted[0] = len(indexes)
    ended = [(succeeded, uncounted["succeeded"]), (failed, uncounted["failed"])]
    ends = [_ends(pods, chosen, counts) for chosen, counts in ended]
    return Count(
        active=active,
        terminating=tuple(pod for pod in pods if is_deleting(pod) and phase_of(pod) not in {"Succeeded", "Failed"}),
        succeeded=len(indexes) if _indexed(job) else counted[0] + len(uncounted["succeeded"]),
        failed=counted[1] + len(uncounted["failed"]) + not_ignored_kept,
        indexes=frozenset(indexes),
        failed_indexes=frozenset(failed_indexes),
        uncounted=uncounted,
        counted=(counted[0], counted[1]),
        fatal=next((why for action, why in actions.values() if action == "FailJob"), ""),
        backoff=backoff.noted(*ends),
        ignored=frozenset(uid for uid, (action, _) in actions.items() if action == "Ignore" and uid not in kept),
        delayed=delayed,
    )


def _indexed(job: Obj) -> bool:
    return spec_of(job).get("completionMode") == "Indexed"


def _indexes(
    job: Obj, active: Sequence[Obj], succeeded: Sequence[Obj], failed: Sequence[Obj]
) -> tuple[set[int], set[int], dict[int, Obj]]:
    """Succeeded and failed indexes below `completions` (an elastic Job may have had more), and failed pods to be kept."""
    if not _indexed(job):
        return set(), set(), {}
    status, completions = status_of(job), int(spec_of(job).get("completions") or 0)
    done = set(parse_indexes(str(status.get("completedIndexes") or "")))
    done |= {index for pod in succeeded if (index := index_of(pod)) is not None}
    done = {index for index in done if index < completions}
    if not limited(job):
        return done, set(), {}
    lost = set(parse_indexes(str(status.get("failedIndexes") or "")))
    lost = {index for index in lost | failed_indexes(job, failed) if index < completions} - done
    running = {index for pod in active if (index := index_of(pod)) is not None}
    return done, lost, delayed(job, failed, done | lost | running)


def _ends(pods: Sequence[Obj], fresh: Sequence[Obj], uncounted: Sequence[str]) -> dict[str, float]:
    """When these pods ended, by UID; those that wait to be counted stay in, so that they are not noted twice."""
    wanted = {*uids(fresh), *uncounted}
    return {uid_of(pod): finished_s(pod) for pod in pods if uid_of(pod) in wanted}
