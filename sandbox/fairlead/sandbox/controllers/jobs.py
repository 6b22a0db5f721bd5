"""What the Job controller decides about one Job and its pods.

Pure. Accounting rule: a finished pod is first recorded in `status.uncountedTerminatedPods`, then loses its tracking
finalizer, and only then is counted, so that no pod is ever counted twice or lost. A deleted pod counts as failed, unless
a podFailurePolicy says otherwise, or the Job controller itself deleted it because there were too many. Does not do:
ttlSecondsAfterFinished, successPolicy. Source: kubernetes pkg/controller/job/job_controller.go, 1.36.

Example: pod a of a Job with completions 2 succeeds. First step: write uncountedTerminatedPods.succeeded [a], remove a's
finalizer, create the next pod. Second step: a has no finalizer any more, so write succeeded 1 and no uncounted pod.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fairlead.kube import timestamps
from fairlead.sandbox.controllers import job_pods
from fairlead.sandbox.controllers.job_pods import BackoffRecord, Count, count_pods, is_active, replaces_only_failed
from fairlead.sandbox.objects import (
    Obj,
    is_deleting,
    is_true,
    name_of,
    phase_of,
    spec_of,
    status_of,
    uid_of,
    with_condition,
)

CONTROLLER: Final = "kubernetes.io/job-controller"
PODS_PER_SYNC_MAX: Final = 500
NO_FAILURES: Final = BackoffRecord()


@dataclass(frozen=True, kw_only=True)
class JobWork:
    """What to do, in this order: write the status, release the recorded pods, delete, create; look again later."""

    status: Obj | None = None
    releases: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()
    creates: tuple[Obj, ...] = ()
    again_after_s: float | None = None
    backoff: BackoffRecord = NO_FAILURES


def is_managed_elsewhere(job: Obj) -> bool:
    """Whether `spec.managedBy` names another controller: this one then leaves the Job and its pods alone."""
    return (spec_of(job).get("managedBy") or CONTROLLER) != CONTROLLER


def is_finished(job: Obj) -> bool:
    return is_true(job, "Complete") or is_true(job, "Failed")


def job_work(job: Obj, pods: Iterable[Obj], *, now_s: float, backoff_s: float, backoff: BackoffRecord) -> JobWork:
    """The next step for a Job. `pods` are those that it controls, in any order; time is seconds since the epoch.

    `backoff_s` is the wait after one failure (10 s upstream); `backoff` the record that the last step returned.
    """
    own = sorted(pods, key=lambda pod: (name_of(pod), uid_of(pod)))
    if is_deleting(job):
        return JobWork(releases=tuple(name_of(pod) for pod in own if job_pods.is_tracked(pod)))
    if is_finished(job):
        return JobWork(
            releases=tuple(name_of(pod) for pod in own if job_pods.is_tracked(pod)),
            deletes=tuple(name_of(pod) for pod in own if is_active(pod)),
        )
    now = timestamps.seconds(now_s)
    spec = spec_of(job)
    count = count_pods(job, own, backoff, now_s)
    verdict = _verdict(job, count, now_s=now_s)
    suspended = bool(spec.get("suspend"))
    status = _status(job, count, verdict, now=now, suspended=suspended)
    deletes: Sequence[Obj] = ()
    dropped: Sequence[Obj] = ()  # deleted without being counted as failed: their finalizer goes first
    creates: Sequence[Obj] = ()
    again: float | None = None
    if verdict is not None:
        deletes = count.active
    elif suspended:
        dropped = count.active
    else:
        dropped, creates, again = _manage(job, count, now_s=now_s, backoff_s=backoff_s)
    deadline_s = spec.get("activeDeadlineSeconds")
    if deadline_s is not None and verdict is None and not suspended:
        left_s = max(0.0, float(deadline_s) - (now_s - _started(job, now_s)))
        again = left_s if again is None else min(again, left_s)
    recorded = {*count.uncounted["succeeded"], *count.uncounted["failed"], *count.ignored, *job_pods.uids(dropped)}
    if verdict is not None:
        recorded |= job_pods.uids(count.delayed.values())
    return JobWork(
        status=status if status != status_of(job) else None,
        releases=tuple(name_of(pod) for pod in own if job_pods.is_tracked(pod) and uid_of(pod) in recorded),
        deletes=tuple(name_of(pod) for pod in (*deletes, *dropped)),
        creates=tuple(creates),
        again_after_s=again,
        backoff=count.backoff,
    )


@dataclass(frozen=True, kw_only=True)
class _Verdict:
    complete: bool
    reason: str
    message: str


def _verdict(job: Obj, count: Count, *, now_s: float) -> _Verdict | None:
    spec = spec_of(job)
    for kind, complete in (("FailureTarget", False), ("SuccessCriteriaMet", True)):
        for each in status_of(job).get("conditions") or ():
            if each.get("type") == kind and each.get("status") == "True":
                return _Verdict(complete=complete, reason=str(each.get("reason")), message=str(each.get("message")))
    if count.fatal:
        return _Verdict(complete=False, reason="PodFailurePolicy", message=count.fatal)
    if count.failed > int(spec.get("backoffLimit", 6)):
        return _Verdict(
            complete=False, reason="BackoffLimitExceeded", message="Job has reached the specified backoff limit"
        )
    if count.failed_indexes:
        most = spec.get("maxFailedIndexes")
        if most is not None and len(count.failed_indexes) > int(most):
            text = "Job has exceeded the specified maximal number of failed indexes"
            return _Verdict(complete=False, reason="MaxFailedIndexesExceeded", message=text)
        if len(count.failed_indexes) + count.succeeded >= int(spec.get("completions") or 0):
            return _Verdict(complete=False, reason="FailedIndexes", message="Job has failed indexes")
    deadline_s = spec.get("activeDeadlineSeconds")
    if deadline_s is not None and now_s - _started(job, now_s) >= float(deadline_s) and not spec.get("suspend"):
        return _Verdict(
            complete=False, reason="DeadlineExceeded", message="Job was active longer than specified deadline"
        )
    completions = spec.get("completions")
    enough = (
        count.succeeded > 0 and not count.active and not count.terminating
        if completions is None
        else count.succeeded >= int(completions)
    )
    if enough:
        return _Verdict(complete=True, reason="CompletionsReached", message="Reached expected number of succeeded pods")
    return None


def _started(job: Obj, now_s: float) -> float:
    start = status_of(job).get("startTime")
    return timestamps.parse(str(start)) if start else now_s


def _status(job: Obj, count: Count, verdict: _Verdict | None, *, now: str, suspended: bool) -> Obj:
    status = dict(status_of(job))
    for field, value in (("succeeded", count.counted[0]), ("failed", count.counted[1]), ("active", len(count.active))):
        if value or field in status:
            status[field] = value
    status["ready"] = sum(1 for pod in count.active if is_true(pod, "Ready"))
    status["terminating"] = len(count.terminating)
    status["uncountedTerminatedPods"] = {kind: uids for kind, uids in count.uncounted.items() if uids}
    if spec_of(job).get("completionMode") == "Indexed" and (count.indexes or "completedIndexes" in status):
        status["completedIndexes"] = job_pods.format_indexes(count.indexes)
    if job_pods.limited(job):
        status["failedIndexes"] = job_pods.format_indexes(count.failed_indexes)
    conditions: list[Obj] = [dict(each) for each in status.get("conditions") or ()]
    was_suspended = any(each["type"] == "Suspended" and each["status"] == "True" for each in conditions)
    if suspended and verdict is None and not was_suspended:
        conditions = _add(conditions, "Suspended", "JobSuspended", "Job suspended", now=now)
        status.pop("startTime", None)
    elif not suspended and was_suspended:
        conditions = _add(conditions, "Suspended", "JobResumed", "Job resumed", now=now, truth="False")
    if not suspended:
        status.setdefault("startTime", now)
    if verdict is not None:
        first = "SuccessCriteriaMet" if verdict.complete else "FailureTarget"
        if not any(each["type"] == first for each in conditions):
            conditions = _add(conditions, first, verdict.reason, verdict.message, now=now)
        # The final condition waits until no pod is left to count or to stop.
        if not count.active and not count.terminating and not status["uncountedTerminatedPods"]:
            last = "Complete" if verdict.complete else "Failed"
            conditions = _add(conditions, last, verdict.reason, verdict.message, now=now)
            if verdict.complete:
                status["completionTime"] = now
    if conditions:
        status["conditions"] = conditions
    return status


def _add(conditions: list[Obj], kind: str, reason: str, message: str, *, now: str, truth: str = "True") -> list[Obj]:
    new: dict[str, Any] = {"type": kind, "status": truth, "reason": reason, "message": message, "lastProbeTime": now}
    return with_condition(conditions, new, now=now)


def _manage(job: Obj, count: Count, *, now_s: float, backoff_s: float) -> tuple[list[Obj], list[Obj], float | None]:
    """Pods to delete because there are too many, or to create because there are too few; and when to look again."""
    spec = spec_of(job)
    parallelism = int(spec.get("parallelism", 1))
    completions = spec.get("completions")
    terminating = count.terminating if replaces_only_failed(job) else ()
    if completions is None:
        want = len(count.active) if count.succeeded else parallelism
    else:
        want = max(0, min(parallelism, int(completions) - count.succeeded))
    surplus = _surplus(job, count)
    staying = [pod for pod in count.active if pod not in surplus]
    surplus += _least_advanced(staying)[: max(0, len(staying) - want)]
    missing = want - len(count.active) - len(terminating)
    if surplus or missing <= 0:
        return surplus, [], None
    if not job_pods.limited(job):
        wait_s = count.backoff.remaining_s(now_s, backoff_s)
        if wait_s > 0:
            return [], [], wait_s
    missing = min(missing, PODS_PER_SYNC_MAX)
    if spec.get("completionMode") != "Indexed":
        return [], [job_pods.new_pod(job, index=None) for _ in range(missing)], None
    taken = {job_pods.index_of(pod) for pod in (*count.active, *terminating)} | count.indexes | count.failed_indexes
    free = [index for index in range(int(completions or 0)) if index not in taken][:missing]
    waits = {index: job_pods.wait_s(count.delayed.get(index), now_s, backoff_s) for index in free}
    due = [index for index in free if waits[index] <= 0]
    pods = [job_pods.with_failures(job, job_pods.new_pod(job, index=index), count.delayed.get(index)) for index in due]
    return [], pods, job_pods.soonest(waits.values())


def _least_advanced(pods: Iterable[Obj]) -> list[Obj]:
    """The youngest and least advanced first."""
    return sorted(pods, key=lambda pod: (is_true(pod, "Ready"), phase_of(pod) == "Running", name_of(pod)))


def _surplus(job: Obj, count: Count) -> list[Obj]:
    """Active pods without an index, of one that has another pod or is done, or beyond `completions` (elastic Jobs)."""
    if spec_of(job).get("completionMode") != "Indexed":
        return []
    completions = int(spec_of(job).get("completions") or 0)
    taken: set[int] = set(count.indexes)
    found: list[Obj] = []
    for pod in count.active:
        index = job_pods.index_of(pod)
        if index is None or index in taken or index >= completions:
            found.append(pod)
        else:
            taken.add(index)
    return found
