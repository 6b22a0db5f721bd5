"""What controllers say of a gang's members: how many pods its Jobs run from now on, and which rank each member has.

A Job runs `parallelism` pods at once until fewer completions than that are left. So of the gang of a Job with parallelism 3
and completions 8 three pods are to run at once, at last two; and of an Indexed Job of eight, of which three
indexes have completed when it is evicted, the other five. What a Job will not run any more never holds up its gang.
The status of a Job lags behind its pods by a second or more, so both are read.

A rank comes from the indexes that controllers write on pods, as annotations or labels: a LeaderWorkerSet's group and worker
index, a JobSet's job and completion index, the completion index of an Indexed Job, the index of a Kubeflow replica within its
type (a master before the workers), the index of a StatefulSet's pod, the index in a Kueue pod group. Neighbouring ranks exchange
most. Pods of several Jobs (or groups, or types) have one after the other: the ranks of each begin at a multiple of the most that
one of them has. Read from all members, finished ones included, so that a rank does not change while others come and go. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fairlead.api import names
from fairlead.controller.gangs.membership.members import Member, Stage, index_of
from fairlead.kube import batch, core

INDEXES_MAX: Final = 1_000_000
"""Indexes of a Job that are counted: Kubernetes has 100,000 where pods run at once, and a range in a status is short however long it is."""
_INDEX: Final = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPods:
    """The pods of one Job: at once at its start, and from now on. `ended` says why it makes no more; "" while it does.

    `lost`: indexes that have failed for good; no other pod is made for them.
    """

    uid: str
    name: str
    at_start: int
    at_once: int
    ended: str = ""
    failed: bool = False
    lost: int = 0


def job_pods(job: batch.Job, members: Iterable[Member]) -> JobPods:
    """`members` are the gang's; the pods of other owners among them do not count."""
    own = [member for member in members if member.owner == job.metadata.uid]
    spec = job.spec
    parallelism = 1 if spec.parallelism is None else spec.parallelism
    at_start = parallelism if spec.completions is None else min(parallelism, spec.completions)
    name = f"{job.metadata.namespace}/{job.metadata.name}"
    failure = job.condition("Failed") or job.condition("FailureTarget")
    ended = ""
    if failure is not None:
        ended = f"Job {name} failed: {failure.reason}"
    elif job.condition("Complete") is not None:
        ended = f"Job {name} is complete"
    done, lost = _indexes_over(job, own) if spec.completion_mode == "Indexed" else (set(), set())
    at_once = 0 if ended else _at_once(job, own, parallelism, done | lost)
    return JobPods(
        uid=job.metadata.uid,
        name=name,
        at_start=at_start,
        at_once=at_once,
        ended=ended,
        failed=failure is not None,
        lost=len(lost),
    )


def _indexes_over(job: batch.Job, own: list[Member]) -> tuple[set[int], set[int]]:
    """The indexes of an Indexed Job that have completed, and those that have failed for good."""
    spec, status = job.spec, job.status
    if spec.completions is None:
        return set(), set()
    done = set(_indexes(status.completed_indexes, spec.completions))
    succeeded = (member.index for member in own if member.stage is Stage.SUCCEEDED)
    done |= {index for index in succeeded if index is not None and index < spec.completions}
    return done, set(_indexes(status.failed_indexes or "", spec.completions)) - done


def _at_once(job: batch.Job, own: list[Member], parallelism: int, over: set[int]) -> int:
    """`over`: indexes of which no more pods are made."""
    succeeded = [member for member in own if member.stage is Stage.SUCCEEDED]
    spec, status = job.spec, job.status
    if spec.completions is None:  # after one success no more pods are made
        living = sum(member.stage in {Stage.GATED, Stage.RELEASED} and not member.terminating for member in own)
        return min(parallelism, living) if succeeded or status.succeeded else parallelism
    if spec.completion_mode == "Indexed":
        left = spec.completions - len(over)
    else:
        uncounted = len(status.uncounted_terminated_pods.succeeded) if status.uncounted_terminated_pods else 0
        left = spec.completions - max((status.succeeded or 0) + uncounted, len(succeeded))
    return max(0, min(parallelism, left))


def members_done(size: int, jobs: Iterable[JobPods]) -> int:
    """How many members of a gang of this size its Jobs do not run any more. Surplus over the size goes first.

    Those of a Job that failed are not done: without them the others do not run either.
    """
    known = [job for job in jobs if not job.failed]
    at_start = sum(job.at_start for job in known)
    gone = sum(max(0, job.at_start - job.at_once) for job in known)
    return min(size, max(0, gone - max(0, at_start - size)))


def _indexes(text: str, completions: int) -> Iterable[int]:
    """`1,3-5,7`, as the Job's status has it: those below `completions`. What cannot be read counts as none."""
    ends = min(completions, INDEXES_MAX)
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if _INDEX.fullmatch(first) and (not dash or _INDEX.fullmatch(last)):
            yield from range(int(first), min(ends, int(last if dash else first) + 1))


FIRST_TYPES = ("master", "chief", "launcher")
"""Kubeflow's replica types that frameworks give the rank 0."""

Block = tuple[int, str]
"""The Job or group of a pod: its number, else the name of its owner."""


def ranks(members: Iterable[Member], jobs: Sequence[JobPods] = ()) -> Mapping[str, int]:
    """By pod UID, of those members that have an index."""
    found: dict[str, tuple[Block, int]] = {}
    widest = max((job.at_start for job in jobs), default=0)
    for member in members:
        placed = _index(member.pod)
        if placed is not None:
            found[member.uid] = placed
            widest = max(widest, placed[1] + 1, _number(member.pod, names.LWS_SIZE) or 0)
    blocks = {block for block, _ in found.values()}
    least = min((number for number, _ in blocks), default=0)
    by_name = {name: place for place, name in enumerate(sorted(name for _, name in blocks if name))}
    return {
        uid: (by_name[name] if name else number - least) * widest + index
        for uid, ((number, name), index) in found.items()
    }


def _index(pod: core.Pod) -> tuple[Block, int] | None:
    worker = _number(pod, names.LWS_WORKER_INDEX)
    if worker is not None:
        return (_number(pod, names.LWS_GROUP_INDEX) or 0, ""), worker
    index, job = _number(pod, names.COMPLETION_INDEX), _number(pod, names.JOBSET_JOB_INDEX)
    if index is not None and job is not None:
        return (job, ""), index
    owner = pod.metadata.controller.name if pod.metadata.controller is not None else "-"
    replica = _number(pod, names.KUBEFLOW_INDEX)
    if index is None and replica is not None:
        kind = pod.metadata.labels.get(names.KUBEFLOW_TYPE, "").lower()
        return (0, f"{owner}/{int(kind not in FIRST_TYPES)}{kind}"), replica
    if index is None:
        index = _number(pod, names.STATEFULSET_INDEX)
    if index is None:
        label = pod.metadata.annotations.get(names.KUEUE_POD_INDEX_LABEL, names.KUEUE_POD_INDEX)
        grouped = _number(pod, label)
        return None if grouped is None else ((0, ""), grouped)
    return (0, owner), index


def _number(pod: core.Pod, key: str) -> int | None:
    metadata = pod.metadata
    return index_of(metadata.annotations.get(key, metadata.labels.get(key, "")))
