"""The pods of a Job by state, and what has to be added to the numbers in its status.

Pure. Source: kubernetes pkg/controller/job/job_controller.go (`isPodFailed`, `getNewFinishedPods`), 1.36.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairlead.sandbox.controllers import job_indexes, job_pods
from fairlead.sandbox.controllers.job_backoff import BackoffRecord
from fairlead.sandbox.objects import Obj, is_deleting, phase_of, spec_of, status_of, uid_of


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
    tracked = {uid_of(pod) for pod in pods if job_pods.is_tracked(pod)}
    uncounted: dict[str, list[str]] = {}
    counted = [int(status.get("succeeded") or 0), int(status.get("failed") or 0)]
    for place, kind in enumerate(("succeeded", "failed")):
        uids = before.get(kind) or []
        uncounted[kind] = [uid for uid in uids if uid in tracked]
        counted[place] += len(uids) - len(uncounted[kind])
    known = {uid for uids in before.values() for uid in uids}
    fresh = [pod for pod in pods if job_pods.is_tracked(pod) and uid_of(pod) not in known]
    succeeded = [pod for pod in fresh if phase_of(pod) == "Succeeded"]
    failed = [pod for pod in fresh if has_failed(job, pod)]
    actions = {uid_of(pod): job_pods.failure_action(job, pod) for pod in failed}
    active = tuple(pod for pod in pods if is_active(pod))
    indexes, failed_indexes, delayed = _indexes(job, active, succeeded, failed)
    kept = job_indexes.uids(delayed.values())
    uncounted["succeeded"] += [uid_of(pod) for pod in succeeded]
    for pod in failed:
        if actions[uid_of(pod)][0] != "Ignore" and uid_of(pod) not in kept:
            uncounted["failed"].append(uid_of(pod))
    not_ignored_kept = sum(actions[uid][0] != "Ignore" for uid in kept)
    if _indexed(job):
        counted[0] = len(indexes)
    ended = [(succeeded, uncounted["succeeded"]), (failed, uncounted["failed"])]
    ends = [_ends(pods, chosen, uids) for chosen, uids in ended]
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
    done = set(job_pods.parse_indexes(str(status.get("completedIndexes") or "")))
    done |= {index for pod in succeeded if (index := job_pods.index_of(pod)) is not None}
    done = {index for index in done if index < completions}
    if not job_indexes.limited(job):
        return done, set(), {}
    lost = set(job_pods.parse_indexes(str(status.get("failedIndexes") or "")))
    lost = {index for index in lost | job_indexes.failed_indexes(job, failed) if index < completions} - done
    running = {index for pod in active if (index := job_pods.index_of(pod)) is not None}
    return done, lost, job_indexes.delayed(job, failed, done | lost | running)


def _ends(pods: Sequence[Obj], fresh: Sequence[Obj], uncounted: Sequence[str]) -> dict[str, float]:
    """When these pods ended, by UID; those that wait to be counted stay in, so that they are not noted twice."""
    wanted = {*job_indexes.uids(fresh), *uncounted}
    return {uid_of(pod): job_pods.finished_s(pod) for pod in pods if uid_of(pod) in wanted}
