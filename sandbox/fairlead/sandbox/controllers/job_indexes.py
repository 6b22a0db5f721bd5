"""The indexes of an Indexed Job with `backoffLimitPerIndex`: which have failed, and which wait for their own back-off.

A failed pod keeps its tracking finalizer, and so is not yet counted, until its index has another pod, has succeeded, or has
failed for good: its annotations carry the index's number of failures on to the next pod.
Pure. Source: kubernetes pkg/controller/job/indexed_job_utils.go, 1.36.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from fairlead.sandbox.controllers import job_backoff, job_pods
from fairlead.sandbox.objects import Obj, annotations_of, spec_of, uid_of

FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURES: Final = "batch.kubernetes.io/job-index-ignored-failure-count"


def limited(job: Obj) -> bool:
    return spec_of(job).get("backoffLimitPerIndex") is not None


def failed_indexes(job: Obj, failed: Iterable[Obj]) -> set[int]:
    """The indexes of failed pods that may not be tried again."""
    found: set[int] = set()
    for pod in failed:
        index = job_pods.index_of(pod)
        if index is not None and _is_last_failure(job, pod):
            found.add(index)
    return found


def _is_last_failure(job: Obj, pod: Obj) -> bool:
    action, _ = job_pods.failure_action(job, pod)
    if action == "FailIndex":
        return True
    return action != "Ignore" and _number(pod, FAILURES) >= int(spec_of(job)["backoffLimitPerIndex"])


def delayed(job: Obj, failed: Iterable[Obj], settled: Collection[int]) -> dict[int, Obj]:
    """By index the failed pod that is kept until the index has its next pod. `settled`: active, succeeded or failed."""
    kept: dict[int, Obj] = {}
    for pod in failed:
        index = job_pods.index_of(pod)
        if index is None or index in settled or not job_pods.is_tracked(pod):
            continue
        before = kept.get(index)
        if before is None or _all_failures(before) <= _all_failures(pod):
            kept[index] = pod
    return kept


def wait_s(last: Obj | None, now_s: float, base_s: float) -> float:
    """Until the index of this failed pod gets another."""
    if last is None:
        return 0.0
    return job_backoff.remaining_s(_all_failures(last) + 1, job_pods.finished_s(last), now_s, base_s)


def with_failures(job: Obj, pod: Obj, last: Obj | None) -> Obj:
    """The new pod of an index, with the index's failures so far."""
    if not limited(job):
        return pod
    failures, ignored = (_number(last, FAILURES), _number(last, IGNORED_FAILURES)) if last else (0, 0)
    if last is not None:
        was_ignored = job_pods.failure_action(job, last)[0] == "Ignore"
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
