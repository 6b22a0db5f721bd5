"""What the controller's core is told and what it answers: frozen values, no behaviour beyond small views.

Exists so that the rim (watches, writes) and the core (allocation, placement, queues) meet in one place. The rim builds a
`Snapshot`, calls `fairlead.engine.plan.decide.decide(snapshot, now)` and carries out the `Plan`.
Holds no policy. `Snapshot.inventory` and `Snapshot.nodes` are tables that the rim keeps up to date between decisions;
`decide` reads them, never changes them, and must not run while they change.
What a plan has one of per pod is a Struct: made ten times as fast as a frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from fairlead.engine.types.reasons import Reason

if TYPE_CHECKING:
    from fairlead.engine.types.pod_needs import PodNeeds
    from fairlead.kube import resource
    from fairlead.kube.objects import LabelSelector

# An exact amount in a flavor's measure: devices, bytes, shares of a GPU.
Amount = int | Fraction


class DeviceRef(msgspec.Struct, frozen=True, order=True, gc=False):
    """A device's full name. Its order is the inventory's order of pools; names of devices come last."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class PodRef(msgspec.Struct, frozen=True, order=True, gc=False):
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


# --------------------------------------------------------------------------------------------------- what is asked


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """A claim of a gang: to be allocated, or already allocated (then its devices and nodes are taken as given).

    `key` names the claim inside the snapshot and the plan; the claim's UID where it exists, else anything unique such as
    "<pod uid>/<entry name>" (a template claim that nobody has made yet can be planned for).
    """

    key: str
    namespace: str
    name: str
    spec: resource.ResourceClaimSpec
    allocation: resource.AllocationResult | None = None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A pod to place. `claims` are keys of its gang's claims in the order of the pod's spec; members may share them."""

    pod: PodRef
    needs: PodNeeds  # PodNeeds.of(pod)
    claims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GangRequest:
    """A gang with members that wait at the gate. All of `members` are placed, or none.

    `placed_nodes` has one entry per member that was released before (an elastic gang growing, or a member replaced); they
    count towards `size` and towards topology. `avoid` are nodes on which this gang failed before; they come last, not never.
    """

    namespace: str
    name: str
    uid: str  # of the Gang object, else the smallest pod UID: the last word in every order
    size: int  # least members that must run together
    members: tuple[Member, ...]
    claims: tuple[ClaimRequest, ...] = ()
    queue: str | None = None  # as asked by annotation or label; None: by the namespace selectors of the queues
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    created: float = 0.0  # unix seconds; age orders equals, so a requeued gang keeps its first time
    topology: str | None = None  # the annotation's text: "required:<node label>" or "preferred:<node label>"
    placed_nodes: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    preemptor: bool = False  # gangs were evicted for it: until it lands, what they give back is held for it
    run_s: float | None = None  # longest it can run, where activeDeadlineSeconds promises that: lets it backfill

    @property
    def id(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def whole(self) -> bool:
        """Whether all the pods that it needs are there."""
        return bool(self.members) and len(self.members) + len(self.placed_nodes) >= self.size


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningMember:
    """A released pod of a running gang: what one eviction gives back. `claims` are UIDs; members may share them."""

    pod: PodRef
    node: str
    claims: tuple[str, ...] = ()
    started: float = 0.0  # unix seconds: when its devices were given
    leaving: bool = False  # being evicted, or deleted: gives back without being asked
    guarded_by: tuple[str, ...] = ()  # PodDisruptionBudgets that select it: names in its namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningGang:
    """A gang that holds devices: what its queue is charged for. `claims` are UIDs that the inventory knows.

    `members` are the pods that could be evicted; none where the rim does not know them (such a gang is never a victim).
    """

    namespace: str
    name: str
    uid: str
    queue: str | None
    claims: tuple[str, ...]
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    created: float = 0.0
    started: float = 0.0  # unix seconds
    size: int = 1  # least members that must run together; what runs beyond it is elastic surplus
    members: tuple[RunningMember, ...] = ()
    min_runtime_s: float | None = None  # of its own annotation; None: its queue's
    checkpoint_grace_s: float | None = None  # told to stop so long before it is evicted
    ends_by: float | None = None  # unix seconds, where activeDeadlineSeconds promises an end

    @property
    def id(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionBudget:
    """A PodDisruptionBudget: how many of the pods it selects may go now (`status.disruptionsAllowed`)."""

    namespace: str
    name: str
    allowed: int


# ------------------------------------------------------------------------------------------------ queues and flavors


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorQuota:
    flavor: str
    deserved: Amount = 0
    limit: Amount | None = None  # None: no limit
    weight: float = 1.0
    borrowing_limit: Amount | None = None  # most beyond deserved; None: no bound of its own
    lending_limit: Amount | None = None  # most of deserved that others may use meanwhile; None: all


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """A Queue object. `namespace_selector` None takes only gangs that name the queue; an empty one takes any namespace.

    `past_usage` is what Queue status remembers of each flavor, brought up to date by the rim: the part of the
    cluster that the queue held on average, decayed with the half-life. `evictions_left` None: no disruption budget.
    """

    name: str
    uid: str = ""
    parent: str | None = None
    quotas: tuple[FlavorQuota, ...] = ()
    priority: int = 0
    strategy: Literal["pack", "spread"] = "pack"
    ordering: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"
    namespace_selector: LabelSelector | None = None
    preemption: Literal["LowerPriority", "Never"] = "LowerPriority"  # of its own gangs, for its own gangs
    min_runtime_s: float | None = None  # its gangs are no victims before; None: as the queue above says, at last 0
    evictions_left: int | None = None
    past_usage: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorSpec:
    """A kind of resource: which devices (CEL) and how much of it a device is."""

    name: str
    device_selector: str
    measure: Literal["Devices", "Share", "Capacity"] = "Devices"
    capacity_name: str | None = None  # with measure Capacity


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Problem:
    """What is wrong with a Queue or Flavor object, for its Ready condition."""

    kind: Literal["Queue", "Flavor"]
    name: str
    reason: str  # one CamelCase word
    message: str  # field, value, next step

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.message}"


# ------------------------------------------------------------------------------------------------------- in and out


class DeviceResult(msgspec.Struct, frozen=True, kw_only=True):
    """One device of an allocation. `request` is "name" or "name/sub"."""

    request: str
    device: DeviceRef
    admin_access: bool = False
    share_id: str | None = None
    consumed_capacity: tuple[tuple[str, str], ...] = ()  # name, canonical quantity; sorted
    tolerations: tuple[Any, ...] = ()  # resource.DeviceToleration, copied from the request
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceConfig:
    source: Literal["FromClass", "FromClaim"]
    requests: tuple[str, ...]
    driver: str
    parameters: Any  # JSON, as the user wrote it


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """A claim's answer. `node_selector` is a core/v1 NodeSelector as JSON; None means usable on every node."""

    results: tuple[DeviceResult, ...]
    config: tuple[DeviceConfig, ...] = ()
    node_selector: Mapping[str, Any] | None = None

    def to_json(self, *, timestamp: str | None = None) -> dict[str, Any]:
        """`status.allocation` as the API wants it; the rim adds the time at which it writes (RFC 3339, whole seconds)."""
        from fairlead.engine.types.allocation_json import allocation_json

        return allocation_json(self, timestamp)


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
    allocation: Allocation
    reserved_for: tuple[PodRef, ...]
    already_allocated: bool = False


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """A gang to release: every member has a node, every claim an allocation. Carry it out whole or undo it."""

    namespace: str
    name: str
    uid: str
    queue: str  # "" is the implicit queue of a cluster without Queue objects
    assignments: tuple[Assignment, ...]
    claims: tuple[ClaimAllocation, ...]

    @property
    def id(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A gang that stays. `position` counts from 1 in the order in which gangs were considered, admitted ones included."""

    namespace: str
    name: str
    uid: str
    queue: str | None
    position: int
    reason: Reason

    @property
    def id(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """Members to evict so that another gang can run, or because their devices are broken.

    `whole` says that the gang stops; else only these members of its surplus go (or are replaced). Pods in order. The rim asks
    for a checkpoint first where the gang wants that, evicts by the eviction API, and keeps the gang's age for its new pods.
    """

    kind: Literal["Reclaim", "Preempt", "Replace"]
    namespace: str
    name: str
    uid: str
    queue: str
    pods: tuple[PodRef, ...]
    whole: bool
    reason: Reason
    beneficiary: str = ""  # id of the gang for which it goes; "" with Replace
    checkpoint_grace_s: float = 0.0

    @property
    def id(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Nodes on which nothing starts that a blocked gang would wait for longer. Worked out anew by every decision."""

    namespace: str
    name: str
    uid: str
    queue: str
    nodes: tuple[str, ...]  # sorted
    kind: Literal["Blocked", "Preemptor"]
    ready_by: float | None = None  # unix seconds: when all that it waits for has promised to end; None: not known

    @property
    def id(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorUse:
    """One queue in one flavor, in the flavor's measure, the queues below it included."""

    flavor: str
    used: Amount
    demand: Amount  # used, and what the waiting gangs ask for
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
    """What a queue holds once the plan is carried out, for Queue status. Queues in name order."""

    name: str
    flavors: tuple[FlavorUse, ...]  # sorted by flavor; those with quota here or with use
    waiting: int  # gangs of this queue itself
    admitted: int  # gangs of this queue itself, running and newly admitted


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
    due: float | None = None  # unix seconds: when time alone may change the answer; None: never
    problems: tuple[Problem, ...] = ()  # cycles, unknown parents, selectors that don't compile or select nothing
