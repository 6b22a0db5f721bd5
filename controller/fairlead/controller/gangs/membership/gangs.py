"""A gang, and which gang a pod belongs to.

Everything here is a function of pods and claims. Pods without a gang annotation are gangs of one, named after the pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fairlead.api import foreign, names
from fairlead.api.intent import Intent, read_intent
from fairlead.api.models import Models
from fairlead.controller.gangs.membership.decisions import Decision
from fairlead.controller.gangs.membership.jobs import JobPods, members_done, ranks
from fairlead.controller.gangs.membership.members import GangProblem, Member, Stage
from fairlead.kube import core, resource, timestamps

GangId = tuple[str, str]  # namespace, name


@dataclass(frozen=True, slots=True)
class SharedDecision:
    """Another queue system that decides on the gang's pods, or lays claim to them; `text` says which of them the namespace is of."""

    system: str
    text: str


@dataclass(frozen=True, kw_only=True)  # without slots: properties are computed once, there are dozens of readers
class Gang:
    """One gang as the cluster shows it. `members` are sorted, and include finished and terminating ones."""

    id: GangId
    size: int
    members: tuple[Member, ...]
    queue: str | None = None
    topology: str | None = None
    models: Models | None = None  # as its pods say; None: as the policies of its namespace or its queue do
    align: str | None = None
    subgroup_size: int | None = None
    subgroup_topology: str | None = None
    subgroups: Mapping[str, str] = field(default_factory=dict)  # of members, by UID
    min_runtime_s: float | None = None
    checkpoint_grace_s: float | None = None
    movable: bool | None = None  # as its pods say; None: as its queue does
    checkpointed: float | None = None  # unix seconds: until then the work of all its released members is saved
    problems: tuple[GangProblem, ...] = ()
    solo: bool = False  # a pod without gang annotation
    jobs: tuple[JobPods, ...] = ()  # that make its pods
    foreign_queue: bool = False  # `queue` comes from another system's label or object
    notes: tuple[str, ...] = ()  # annotations that cannot be read and count as absent
    unmanaged: tuple[Member, ...] = ()  # gated pods without a managed claim; not members, to be ungated
    stated_priority: int | None = None  # of its PodGroup, or by Kueue's label, in place of the pods'
    group_preempts: bool = True  # False: its PodGroup says `preemptionPolicy: Never`
    shared_with: SharedDecision | None = None
    decisions: tuple[Decision, ...] = ()  # evictions of it, as the status of its Gang has them

    @property
    def namespace(self) -> str:
        return self.id[0]

    @property
    def name(self) -> str:
        return self.id[1]

    def at(self, *stages: Stage) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.stage in stages)

    @cached_property
    def plain(self) -> bool:
        """Whether it is a gang of one whose claims the webhook named: its pod alone shows all that there is to know of it."""
        return self.solo and all(
            names.CLAIM_SOURCES in member.pod.metadata.annotations
            and all(claim.source is not None for claim in member.claims)
            for member in self.members
        )

    @cached_property
    def ranks(self) -> Mapping[str, int]:
        """The ranks of members, by UID."""
        return {} if self.solo else ranks(self.members, self.jobs)

    @cached_property
    def gated(self) -> tuple[Member, ...]:
        return self.at(Stage.GATED)

    @cached_property
    def released(self) -> tuple[Member, ...]:
        return self.at(Stage.RELEASED)

    @cached_property
    def running(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.runs)

    @cached_property
    def done(self) -> int:
        """Members of `size` that have succeeded in this run, or that their Job does not make any more.

        A succeeded pod without a known Job belongs to this run when it has the owner of a living member, or, where pods have
        no owner, when it ended after the youngest living member was created.
        """
        by_job = members_done(self.size, self.jobs)
        living = (*self.running, *self.gated)
        known = {job.uid for job in self.jobs}
        owners = {member.owner for member in living} - known
        youngest = max((created_s(member.pod) for member in living), default=float("inf"))
        others = sum(
            member.owner in owners and bool(member.owner or ended_s(member.pod) >= youngest)
            for member in self.at(Stage.SUCCEEDED)
        )
        return min(self.size, by_job + others)

    @property
    def lost(self) -> int:
        """The part of `done` that are indexes of its Jobs which have failed for good."""
        return min(self.done, sum(job.lost for job in self.jobs if not job.failed))

    @property
    def failed_job(self) -> JobPods | None:
        """A Job without whose pods the gang cannot be whole, and which failed: not one of an earlier run under this name."""
        if sum(job.at_start for job in self.jobs if not job.failed) >= self.size:
            return None
        return next((job for job in self.jobs if job.failed), None)

    @property
    def together(self) -> int:
        """How many members have to run together from now on."""
        return self.size - self.done

    @cached_property
    def placed(self) -> int:
        """Members that count towards `size`: those running, and those that are done."""
        return len(self.running) + self.done

    @property
    def started(self) -> bool:
        """Whether it runs: then a member that waits joins or replaces others, and is placed by itself."""
        return bool(self.running)

    @property
    def present(self) -> int:
        return self.placed + len(self.gated)

    @cached_property
    def created(self) -> float:
        """Unix seconds of the oldest member."""
        return min((created_s(member.pod) for member in self.members), default=0.0)

    @property
    def priority(self) -> int:
        if self.stated_priority is not None:
            return self.stated_priority
        return max((member.pod.spec.priority or 0 for member in self.members), default=0)

    @property
    def preempts(self) -> bool:
        """Whether other gangs may be evicted for it: neither its PodGroup nor a pod of it says `preemptionPolicy: Never`."""
        return self.group_preempts and all(member.pod.spec.preemption_policy != "Never" for member in self.members)


def gang_spec(gang: Gang) -> dict[str, Any]:
    """The spec of its Gang object: what the members' annotations ask for."""
    stated = {
        "queue": gang.queue,
        "topology": gang.topology,
        "models": gang.models,
        "align": gang.align,
        "subgroupSize": gang.subgroup_size,
        "subgroupTopology": gang.subgroup_topology,
    }
    spec: dict[str, Any] = {"size": gang.size, **{name: value for name, value in stated.items() if value}}
    runtime = gang.members[0].pod.metadata.annotations.get(names.MIN_RUNTIME)
    if runtime and gang.min_runtime_s is not None:
        spec["minRuntime"] = runtime
    return spec


def created_s(of: core.Pod | resource.ResourceClaim) -> float:
    stamp = of.metadata.creation_timestamp
    return timestamps.parse(stamp) if stamp else 0.0


def starts_s(pod: core.Pod) -> Iterator[float]:
    """Unix seconds at which those of its containers began that have begun."""
    for status in pod.status.container_statuses:
        begun = status.state.running or status.state.terminated
        if begun is not None and (at := timestamps.parsed(begun.started_at)) is not None:
            yield at


def ended_s(pod: core.Pod) -> float:
    """Unix seconds of the last container's end; 0 where the status has none."""
    ends = [
        timestamps.parse(status.state.terminated.finished_at)
        for status in pod.status.container_statuses
        if status.state.terminated is not None and status.state.terminated.finished_at
    ]
    return max(ends, default=0.0)


def gang_id(pod: core.Pod) -> GangId:
    """By annotation, else the pod's own name."""
    return pod.metadata.namespace, named_gang(pod) or pod.metadata.name


def named_gang(pod: core.Pod) -> str | None:
    """The gang that the pod names, in our annotations or another system's; None when it names none."""
    group = pod.spec.scheduling_group
    return foreign.gang_name(pod.metadata.annotations, pod.metadata.labels, group.pod_group_name if group else None)


def intent(pod: core.Pod) -> Intent:
    """Raises IntentError, but not for durations: where they cannot be read, the queue's count."""
    group = pod.spec.scheduling_group
    name = group.pod_group_name if group else None
    return read_intent(pod.metadata.annotations, pod.metadata.labels, name, lenient=True)
