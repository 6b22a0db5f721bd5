"""What the Job controller decides about one Job and its pods.

Pure. Accounting rule: a finished pod is first recorded in `status.uncountedTerminatedPods`, then loses its tracking
finalizer, and only then is counted, so that no pod is ever counted twice or lost. A deleted pod counts as failed, unless
a podFailurePolicy says otherwise. Does not do: ttlSecondsAfterFinished, successPolicy, backoffLimitPerIndex, elastic
Indexed Jobs. Source: kubernetes pkg/controller/job/job_controller.go, 1.36.

Example: pod a of a Job with completions 2 succeeds. First step: write uncountedTerminatedPods.succeeded [a], remove a's
finalizer, create the next pod. Second step: a has no finalizer any more, so write succeeded 1 and no uncounted pod.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fairlead.kube import timestamps
from fairlead.sandbox.controllers import job_pods
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

BACKOFF_MAX_S: Final = 360.0


@dataclass(frozen=True, kw_only=True)
class JobWork:
    """What to do, in this order: write the status, release the recorded pods, delete, create; look again later."""

    status: Obj | None = None
    releases: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()
    creates: tuple[Obj, ...] = ()
    again_after_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class _Count:
    """The pods of a Job by state."""

    active: tuple[Obj, ...]
    terminating: tuple[Obj, ...]
    succeeded: int
    failed: int
    indexes: frozenset[int]
    uncounted: dict[str, list[str]]
    counted: tuple[int, int]  # succeeded, failed: those already in the status' numbers
    fatal: str  # a podFailurePolicy's FailJob: its message
    last_failure_s: float
    ignored: frozenset[str]  # failed pods that a podFailurePolicy does not count: their UIDs


def is_finished(job: Obj) -> bool:
    return is_true(job, "Complete") or is_true(job, "Failed")


def job_work(job: Obj, pods: Iterable[Obj], *, now_s: float, backoff_s: float) -> JobWork:
    """The next step for a Job. `pods` are those that it controls, in any order; time is seconds since the epoch."""
    own = sorted(pods, key=lambda pod: (name_of(pod), uid_of(pod)))
    if is_deleting(job):
        return JobWork(releases=tuple(name_of(pod) for pod in own if job_pods.is_tracked(pod)))
    if is_finished(job):
        return JobWork(
            releases=tuple(name_of(pod) for pod in own if job_pods.is_tracked(pod)),
            deletes=tuple(name_of(pod) for pod in own if _is_active(pod)),
        )
    now = timestamps.seconds(now_s)
    spec = spec_of(job)
    count = _count(job, own)
    verdict = _verdict(job, count, now_s=now_s)
    suspended = bool(spec.get("suspend"))
    status = _status(job, count, verdict, now=now, suspended=suspended)
    deletes: Sequence[Obj] = ()
    creates: Sequence[Obj] = ()
    again: float | None = None
    if verdict is not None or suspended:
        deletes = count.active
    else:
        deletes, creates = _manage(job, count)
        wait_s = _backoff(count, backoff_s) - (now_s - count.last_failure_s)
        if creates and count.last_failure_s and wait_s > 0:
            creates, again = (), wait_s
    deadline_s = spec.get("activeDeadlineSeconds")
    if deadline_s is not None and verdict is None and not suspended and again is None:
        again = max(0.0, float(deadline_s) - (now_s - _started(job, now_s)))
    recorded = {*count.uncounted["succeeded"], *count.uncounted["failed"], *count.ignored}
    return JobWork(
        status=status if status != status_of(job) else None,
        releases=tuple(
            name_of(pod)
            for pod in own
            if job_pods.is_tracked(pod) and (uid_of(pod) in recorded or (suspended and is_deleting(pod)))
        ),
        deletes=tuple(name_of(pod) for pod in deletes),
        creates=tuple(creates),
        again_after_s=again,
    )


def _is_active(pod: Obj) -> bool:
    return phase_of(pod) not in {"Succeeded", "Failed"} and not is_deleting(pod)


def _replaces_only_failed(job: Obj) -> bool:
    spec = spec_of(job)
    return spec.get("podReplacementPolicy") == "Failed" or "podFailurePolicy" in spec


def _has_failed(job: Obj, pod: Obj) -> bool:
    phase = phase_of(pod)
    if phase == "Failed":
        return True
    if not is_deleting(pod) or phase == "Succeeded":
        return False
    return phase == "Pending" if _replaces_only_failed(job) else True


def _count(job: Obj, pods: Sequence[Obj]) -> _Count:
    status = status_of(job)
    before: Mapping[str, list[str]] = status.get("uncountedTerminatedPods") or {}
    tracked = {uid_of(pod) for pod in pods if job_pods.is_tracked(pod)}
    uncounted: dict[str, list[str]] = {}
    counted = [int(status.get("succeeded") or 0), int(status.get("failed") or 0)]
    for place, kind in enumerate(("succeeded", "failed")):
        uids = before.get(kind) or []
        uncounted[kind] = [uid for uid in uids if uid in tracked]
        counted[place] += len(uids) - len(uncounted[kind])
    indexes = set(job_pods.parse_indexes(str(status.get("completedIndexes") or "")))
    known = {uid for uids in before.values() for uid in uids}
    fatal = ""
    last_failure_s = 0.0
    ignored: set[str] = set()
    for pod in pods:
        failed = _has_failed(job, pod)
        if failed:
            last_failure_s = max(last_failure_s, job_pods.finished_s(pod))
        if not job_pods.is_tracked(pod) or uid_of(pod) in known:
            continue
        if phase_of(pod) == "Succeeded":
            uncounted["succeeded"].append(uid_of(pod))
            if (index := job_pods.index_of(pod)) is not None:
                indexes.add(index)
        elif failed and not (spec_of(job).get("suspend") and is_deleting(pod)):
            action, why = job_pods.failure_action(job, pod)
            if action == "FailJob":
                fatal = fatal or why
            if action == "Ignore":
                ignored.add(uid_of(pod))
                continue
            uncounted["failed"].append(uid_of(pod))
    if spec_of(job).get("completionMode") == "Indexed":
        counted[0] = len(indexes)
        succeeded = len(indexes)
    else:
        succeeded = counted[0] + len(uncounted["succeeded"])
    return _Count(
        active=tuple(pod for pod in pods if _is_active(pod)),
        terminating=tuple(pod for pod in pods if is_deleting(pod) and phase_of(pod) not in {"Succeeded", "Failed"}),
        succeeded=succeeded,
        failed=counted[1] + len(uncounted["failed"]),
        indexes=frozenset(indexes),
        uncounted=uncounted,
        counted=(counted[0], counted[1]),
        fatal=fatal,
        last_failure_s=last_failure_s,
        ignored=frozenset(ignored),
    )


@dataclass(frozen=True, kw_only=True)
class _Verdict:
    complete: bool
    reason: str
    message: str


def _verdict(job: Obj, count: _Count, *, now_s: float) -> _Verdict | None:
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


def _status(job: Obj, count: _Count, verdict: _Verdict | None, *, now: str, suspended: bool) -> Obj:
    status = dict(status_of(job))
    for field, value in (("succeeded", count.counted[0]), ("failed", count.counted[1]), ("active", len(count.active))):
        if value or field in status:
            status[field] = value
    status["ready"] = sum(1 for pod in count.active if is_true(pod, "Ready"))
    status["terminating"] = len(count.terminating)
    status["uncountedTerminatedPods"] = {kind: uids for kind, uids in count.uncounted.items() if uids}
    if spec_of(job).get("completionMode") == "Indexed" and (count.indexes or "completedIndexes" in status):
        status["completedIndexes"] = job_pods.format_indexes(count.indexes)
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


def _backoff(count: _Count, backoff_s: float) -> float:
    return min(BACKOFF_MAX_S, backoff_s * 2.0 ** min(20, max(0, count.failed - 1)))


def _manage(job: Obj, count: _Count) -> tuple[list[Obj], list[Obj]]:
    """Pods to delete because there are too many, or pods to create because there are too few."""
    spec = spec_of(job)
    parallelism = int(spec.get("parallelism", 1))
    completions = spec.get("completions")
    occupied = len(count.active) + (len(count.terminating) if _replaces_only_failed(job) else 0)
    if completions is None:
        want = len(count.active) if count.succeeded else parallelism
    else:
        want = min(parallelism, int(completions) - count.succeeded)
    if len(count.active) > want:
        # The youngest and least advanced go first.
        order = sorted(count.active, key=lambda pod: (is_true(pod, "Ready"), phase_of(pod) == "Running", name_of(pod)))
        return order[: len(count.active) - want], []
    missing = max(0, want - occupied)
    if spec.get("completionMode") != "Indexed":
        return [], [job_pods.new_pod(job, index=None) for _ in range(missing)]
    taken: set[int] = set(count.indexes)
    duplicates: list[Obj] = []
    held = [*count.active, *(count.terminating if _replaces_only_failed(job) else ())]
    for pod in held:
        index = job_pods.index_of(pod)
        if index is None or (index in taken and pod in count.active):
            duplicates.append(pod)
        else:
            taken.add(index)
    free = [index for index in range(int(completions or 0)) if index not in taken]
    return duplicates, [job_pods.new_pod(job, index=index) for index in free[:missing]]
