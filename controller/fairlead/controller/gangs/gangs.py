"""A gang, and which gang a pod belongs to.

Everything here is a function of pods and claims. Pods without a gang annotation are gangs of one, named after the pod.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.api import foreign
from fairlead.api.intent import Intent, read_intent
from fairlead.controller.gangs.members import GangProblem, Member, Stage
from fairlead.kube import core, timestamps

GangId = tuple[str, str]  # namespace, name


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """One gang as the cluster shows it. `members` are sorted, and include finished and terminating ones."""

    id: GangId
    size: int
    members: tuple[Member, ...]
    queue: str | None = None
    topology: str | None = None
    min_runtime_s: float | None = None
    checkpoint_grace_s: float | None = None
    problems: tuple[GangProblem, ...] = ()
    solo: bool = False  # a pod without gang annotation
    foreign_queue: bool = False  # `queue` comes from another system's label or object
    unmanaged: tuple[Member, ...] = ()  # gated pods without a managed claim; not members, to be ungated

    @property
    def namespace(self) -> str:
        return self.id[0]

    @property
    def name(self) -> str:
        return self.id[1]

    def at(self, *stages: Stage) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.stage in stages)

    @property
    def gated(self) -> tuple[Member, ...]:
        return self.at(Stage.GATED)

    @property
    def released(self) -> tuple[Member, ...]:
        return self.at(Stage.RELEASED)

    @property
    def placed(self) -> int:
        """Released members that count towards `size`: those running, and those that succeeded in the same run.

        A succeeded pod belongs to the same run when it has the owner of a living member, or, where pods have no owner,
        when it ended after the youngest living member was created.
        """
        running = [member for member in self.released if not member.terminating]
        living = (*running, *self.gated)
        owners = {member.owner for member in living}
        youngest = max((created_s(member.pod) for member in living), default=float("inf"))
        done = [
            member
            for member in self.at(Stage.SUCCEEDED)
            if member.owner in owners and (member.owner or ended_s(member.pod) >= youngest)
        ]
        return len(running) + len(done)

    @property
    def present(self) -> int:
        return self.placed + len(self.gated)

    @property
    def created(self) -> float:
        """Unix seconds of the oldest member."""
        return min((created_s(member.pod) for member in self.members), default=0.0)

    @property
    def priority(self) -> int:
        return max((member.pod.spec.priority or 0 for member in self.members), default=0)

    @property
    def preempts(self) -> bool:
        """Whether other gangs may be evicted for it: no pod of it says `preemptionPolicy: Never`."""
        return all(member.pod.spec.preemption_policy != "Never" for member in self.members)


def created_s(pod: core.Pod) -> float:
    stamp = pod.metadata.creation_timestamp
    return timestamps.parse(stamp) if stamp else 0.0


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
    """Raises IntentError."""
    group = pod.spec.scheduling_group
    return read_intent(pod.metadata.annotations, pod.metadata.labels, group.pod_group_name if group else None)
