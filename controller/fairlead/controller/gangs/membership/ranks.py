"""Ranks of a gang's members, and the subgroups that they make.

A rank comes from the indexes that controllers write on pods, as annotations or labels: a LeaderWorkerSet's group and worker
index, a JobSet's job and completion index, the completion index of an Indexed Job, the index of a Kubeflow replica within its
type (a master before the workers), the index of a StatefulSet's pod, the index in a Kueue pod group. Neighbouring
ranks are what frameworks make of these, and exchange most. Pods of several Jobs (or groups, or types) have one after the other: the
ranks of each begin at a multiple of the most that one of them has.
Read from all members, finished ones included, so that a rank does not change while others come and go. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fairlead.api import names
from fairlead.controller.gangs.membership.jobs import JobPods
from fairlead.controller.gangs.membership.members import Member, index_of
from fairlead.kube import core

FIRST_TYPES = ("master", "chief", "launcher")
"""Kubeflow's replica types that frameworks give the rank 0."""

Block = tuple[int, str]
"""Of which Job or group a pod is: its number, else the name of its owner."""


def ranks(members: Iterable[Member], jobs: Sequence[JobPods] = ()) -> Mapping[str, int]:
    """By pod UID, of those members that have an index."""
    found: dict[str, tuple[Block, int]] = {}
    widest = max((job.at_start for job in jobs), default=0)
    for member in members:
        placed = _index(member.pod)
        if placed is not None:
            found[member.uid] = placed
            widest = max(widest, placed[1] + 1, _declared(member.pod))
    blocks = {block for block, _ in found.values()}
    least = min((number for number, _ in blocks), default=0)
    by_name = {name: place for place, name in enumerate(sorted(name for _, name in blocks if name))}
    return {
        uid: (by_name[name] if name else number - least) * widest + index
        for uid, ((number, name), index) in found.items()
    }


def subgroup(rank: int | None, size: int | None, named: str | None) -> str | None:
    """The name of a member's subgroup: what its pod says, else by its rank; None where neither is known."""
    if named is not None:
        return named
    return None if rank is None or size is None else str(rank // size)


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


def _declared(pod: core.Pod) -> int:
    """How many pods a group of its LeaderWorkerSet has."""
    return _number(pod, names.LWS_SIZE) or 0
