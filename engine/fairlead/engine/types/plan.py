"""What a decision answers: gangs to release, to keep waiting and to evict, and the use of every queue and flavor.

Frozen values; the controller carries them out. What a plan has one of per pod is a Struct: made ten times as fast as a frozen
dataclass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

import msgspec

from fairlead.engine.types.gangs import RunningGang, RunningMember
from fairlead.engine.types.reasons import Reason
from fairlead.engine.types.settings import Problem
from fairlead.engine.types.values import Amount, DeviceRef, Named, PodRef
from fairlead.kube import resource

EvictionKind = Literal["Reclaim", "Preempt", "Replace", "Idle", "Move", "Hold"]


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    pod: PodRef
    node: str


class ClaimAllocation(msgspec.Struct, frozen=True, kw_only=True):
    """A claim to write: its allocation, and the pods of this admission to put into `reservedFor`.

    `already_allocated` claims keep what they have; only the reservations are to be added.
    """

    key: str
    namespace: str
    name: str
    allocation: resource.AllocationResult
    reserved_for: tuple[PodRef, ...]
    already_allocated: bool = False

    @property
    def devices(self) -> list[DeviceRef]:
        return [DeviceRef(each.driver, each.pool, each.device) for each in self.allocation.devices.results]


class Admission(Named, msgspec.Struct, frozen=True, kw_only=True):
    """A gang to release: every member has a node, every claim an allocation. Carry it out whole or undo it."""

    namespace: str
    name: str
    uid: str
    queue: str  # "" is the implicit queue of a cluster without Queue objects
    assignments: tuple[Assignment, ...]
    claims: tuple[ClaimAllocation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting(Named):
    """A gang that keeps waiting. `position` counts from 1 in the order in which gangs were considered, admitted ones included; `place`
    counts those that keep waiting in its queue, and is None where only more members of a gang that runs do.

    `asks`: the least that it would be charged, by flavor in its measure; {} where its claims could not be read, or members are
    missing. `ends_by`: as of its request. They are no part of the answer: two that differ in them alone are equal.
    """

    namespace: str
    name: str
    uid: str
    queue: str | None
    position: int
    reason: Reason
    place: int | None = 1
    ends_by: float | None = field(default=None, compare=False)
    asks: Mapping[str, Amount] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction(Named):
    """Members to evict so that another gang can run, or because their devices are broken, or idle, or their node goes, or a
    hold says so.

    With Move the gang has another place, which is free now: to be held from now on, until its new pods are there.

    `whole` says that the gang stops; else only these members of its surplus go (or are replaced). Pods in order. The
    controller gives notice for a checkpoint first where the gang asks for that, evicts by the eviction API, and keeps the gang's age for
    its new pods.
    """

    kind: EvictionKind
    namespace: str
    name: str
    uid: str
    queue: str
    pods: tuple[PodRef, ...]
    whole: bool
    reason: Reason
    beneficiary: str = (
        ""  # id of the gang for which it is evicted; "" with Replace, Idle and Hold, and where a node goes
    )
    checkpoint_grace_s: float = 0.0
    refusable_s: float | None = (
        None  # how long PodDisruptionBudgets may refuse it when its time has come; None: for good
    )
    place: Admission | None = None  # with Move: nodes and devices for its pods, by those that run now
    gpu_seconds: float = 0.0  # with Move: what it costs, see `reclaim.protection`

    @classmethod
    def of(
        cls,
        gang: RunningGang,
        members: Iterable[RunningMember],
        kind: EvictionKind,
        reason: Reason,
        *,
        queue: str,
        whole: bool = True,
        checkpoint_grace_s: float,
    ) -> Self:
        """The eviction of these members for no other gang."""
        return cls(
            kind=kind,
            namespace=gang.namespace,
            name=gang.name,
            uid=gang.uid,
            queue=queue,
            pods=tuple(member.pod for member in members),
            whole=whole,
            reason=reason,
            checkpoint_grace_s=checkpoint_grace_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDemand(Named):
    """A waiting gang that its queue may run, and that lacks devices of flavors for which nodes can be asked for.

    Asked: nodes are to be asked for. Rests: they were, for as long as the flavor's patience lasts, and are again at `until`.
    AtMax: they are not, for the flavor has as much as its `max` allows. `amounts` are in the flavors' measures. Unix seconds.
    """

    namespace: str
    name: str
    uid: str
    queue: str
    mode: Literal["Visible", "ProvisioningRequest", "Placeholder"]
    flavor: str  # the one that says how they are asked for
    amounts: tuple[tuple[str, Amount], ...]
    state: Literal["Asked", "Rests", "AtMax"]
    since: float | None = None  # when nodes were first asked for; None with AtMax, where they never were
    until: float | None = None  # Asked: so long; Rests: until then not
    evicts_from: float | None = None  # nothing is evicted for it before; None: evictions do not wait
    message: str = ""  # of AtMax and Rests: why


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation(Named):
    """Nodes on which nothing starts that would delay a blocked gang. Computed by every decision.

    `assignments`: which of its pods is to have room on which node. It is no part of the answer: two that differ in it alone are
    equal.
    """

    namespace: str
    name: str
    uid: str
    queue: str
    nodes: tuple[str, ...]  # sorted
    kind: Literal["Blocked", "Preemptor"]
    ready_by: float | None = (
        None  # unix seconds: when all gangs that it waits for end by their own deadlines; None: not known
    )
    assignments: tuple[Assignment, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorUse:
    """One queue in one flavor, in the flavor's measure, the queues below it included."""

    flavor: str
    used: Amount
    demand: Amount  # used, and what the waiting gangs request
    fair_share: Amount
    deserved: Amount = 0
    limit: Amount | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorTotal:
    """What the cluster has of a flavor, in its measure, partitions of a whole not counted beside it."""

    flavor: str
    devices: int  # published devices that the selector takes
    total: Amount
    allocated: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueUse:
    """What a queue uses once the plan is carried out, for Queue status. Queues in name order."""

    name: str
    flavors: tuple[FlavorUse, ...]  # sorted by flavor; those with quota here or with use
    waiting: int  # gangs of this queue itself; one that runs and waits for more members is not among them
    admitted: int  # gangs of this queue itself, running and newly admitted
    gpus: Amount = 0  # whole GPUs held, the queues below included; counted only where a queue has a budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do now. `admissions` and `evictions` are in order of decision; `waiting` in order of position.

    A gang for which others are evicted is in `waiting` too: it is admitted by a later decision, when they are gone.
    """

    admissions: tuple[Admission, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    queues: tuple[QueueUse, ...] = ()
    flavors: tuple[FlavorTotal, ...] = ()
    demand: tuple[NodeDemand, ...] = ()  # in order of decision
    due: float | None = None  # unix seconds: when time alone may change the answer; None: never
    problems: tuple[Problem, ...] = ()  # cycles, unknown parents, selectors that don't compile or select nothing
    failures: tuple[tuple[str, str], ...] = ()  # ids of gangs that cannot be computed, and what was raised
    # UIDs of gangs that have had their turn: for the next snapshot, see `plan.turns`.
    searched: tuple[str, ...] = ()
