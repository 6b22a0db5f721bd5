"""Why a gang waits, as facts: one structure that events, Gang status, `explain` and the web page all print.

Values only: the decision fills them in.
Keeps: every Reason has a code, a sentence that names what is missing, and what would change it; `str()` is for people,
the fields are for programs. Counts are of devices or nodes of the snapshot that was decided on.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fairlead.api.resource_units import GPU_HOURS
from fairlead.kube import timestamps


class Code(StrEnum):
    """Why a gang waits or is evicted: one CamelCase word that fits a condition's `reason`."""

    GATHERING = "Gathering"  # fewer members exist than the gang's size, or a template of their claims is to come
    NO_MORE_PODS = "NoMorePods"  # the same, and what makes its pods has ended: it never waits for them
    INVALID = "InvalidRequest"  # the claim can't be understood: unknown class, broken CEL, bad policy
    UNKNOWN_QUEUE = "UnknownQueue"
    QUEUE_NOT_FOR_NAMESPACE = "QueueNotForNamespace"
    QUEUE_NOT_LEAF = "QueueNotLeaf"
    CLAIM_BEING_ALLOCATED = "ClaimBeingAllocated"  # another gang of this plan allocates a claim that it shares
    OVER_LIMIT = "OverQueueLimit"
    BUDGET_EXHAUSTED = "BudgetExhausted"  # of its queue, or of one above: nothing starts, or nothing beyond deserved
    OVER_QUOTA = "ExceedsResourceQuota"  # the apiserver would refuse some of its claims: a quota of its namespace
    ON_HOLD = "OnHold"  # it, its queue, or one above: not admitted, or evicted, until a user resumes it
    BEHIND_HEAD = "BehindQueueHead"  # StrictFIFO: an earlier gang of the queue waits
    NEVER_FITS = "NeverFits"  # not even on this cluster with nothing running
    NO_DEVICES = "DevicesInUse"  # would fit on the empty cluster, does not fit now
    OVER_SHARE = "OverFairShare"  # the same, and its queue may not reclaim: it would hold more than its fair share
    PROTECTED = "VictimsProtected"  # the same, and its victims are protected: by min-runtime, a budget, …
    MAKING_ROOM = "MakingRoom"  # others are being evicted for it
    COMING_FREE = "DevicesComingFree"  # fits once terminating pods, or containers of pods deleted by force, are gone
    OWN_PREDECESSOR = "WaitsForOwnPredecessor"  # what it lacks is held by pods that its rollout ends only once it runs
    AWAITING_NODES = "AwaitingNodes"  # DevicesInUse or NeverFits, and nodes are asked for
    HELD = "DevicesHeld"  # would fit, but the free devices are held for a gang before it
    NO_NODE = "NoSuitableNode"  # there are such devices, and no node with them, of any kind, would ever take the pod
    NODES_FULL = "NodesFull"  # the devices are free, on nodes whose cpu, memory or other resources are in use
    NODES_AWAY = "NodesUnavailable"  # the devices are free, on nodes that are cordoned, not ready or about to go
    NEIGHBOURS = (
        "PodConstraints"  # devices would do, but affinity, anti-affinity or spread keeps its pods off those nodes
    )
    NODES_REFUSED = (
        "NodesRefused"  # kube-scheduler refused its pods on nodes that would do; they are not chosen for a while
    )
    VOLUME = "VolumeNotReady"  # a PersistentVolumeClaim is missing, or is not bound and does not wait for its first pod
    SELECTOR_ERROR = "SelectorError"  # a CEL expression failed on devices that might have matched
    POOL_INCOMPLETE = "PoolIncomplete"  # `All` must wait until the driver has published its pool whole
    SEARCH_ENDED = "SearchBudgetExhausted"  # not proven impossible: the search ran out of steps
    RECLAIMED = "Reclaimed"  # evicted: its devices are reclaimed for another queue
    PREEMPTED = "Preempted"  # evicted: a gang of higher priority in its queue needs the devices
    NOT_REPLACED = "NotReplaced"  # evicted: it was short of members for too long
    IDLE = "DevicesIdle"  # evicted: its devices were idle for longer than its queue allows
    MOVED = "Moved"  # evicted: it is to run in another place, which is held for it
    BROKEN = "DeviceBroken"  # evicted: a device has a NoExecute taint that it does not tolerate


NEVER_STARTS = frozenset(
    {
        Code.INVALID,
        Code.UNKNOWN_QUEUE,
        Code.QUEUE_NOT_FOR_NAMESPACE,
        Code.QUEUE_NOT_LEAF,
        Code.NO_MORE_PODS,
        Code.OWN_PREDECESSOR,
    }
)
"""With these no time makes a gang start: what is written is wrong, or nothing is to come."""


class Rejection(StrEnum):
    """What removed a device from a request's candidates, in the order in which the filters apply."""

    POOL = "pool incomplete or invalid"
    CLASS = "class selector"
    SELECTOR = "request selector"
    SELECTOR_ERROR = "selector error"
    TAINT = "untolerated taint"
    CAPACITY = "too little capacity"
    NODE = "on unsuitable nodes"
    IN_USE = "in use"
    RELEASING = "being released by their nodes"
    HELD = "held for another gang"
    COUNTERS = "parent's counters used up"
    SHARED_FULL = "shared capacity used up"
    NOT_MADE = "made only for a claim that takes it, and not there for admin access"


_MAY_SERVE = frozenset(
    {
        Rejection.IN_USE,
        Rejection.RELEASING,
        Rejection.HELD,
        Rejection.COUNTERS,
        Rejection.SHARED_FULL,
        Rejection.SELECTOR_ERROR,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestShortage:
    """One request of one claim: how the cluster's devices fell away, filter by filter."""

    claim: str  # namespace/name
    request: str  # "name" or "name/sub"
    wanted: int  # devices per claim; for `All` the least it accepts
    per_node_best: int  # most that one node has left for it
    devices: int  # devices known to the inventory
    removed: tuple[tuple[Rejection, int], ...]  # devices removed by each filter, in filter order, zeros left out
    nodes: int = 0  # nodes on which at least one device of this request is free
    detail: str = ""  # the first selector error, the first untolerated taint, …
    alternatives: int = 1  # that its request has (`firstAvailable`)
    of: str = ""  # "DeviceClass x (driver y)", where the pod's requests are for devices of several drivers

    @property
    def free(self) -> int:
        """Devices that nothing keeps from it."""
        return self.devices - sum(count for _, count in self.removed)

    @property
    def serving(self) -> int:
        """Devices that serve it or, where a selector failed, may: free or not."""
        return self.devices - sum(count for why, count in self.removed if why not in _MAY_SERVE)

    def __str__(self) -> str:
        fell = ", ".join(f"{count} ({why.value})" for why, count in self.removed)
        wanted = f"{self.wanted} of {self.of}" if self.of else self.wanted
        text = f"request {self.request} of claim {self.claim} wants {wanted}: of {self.devices} devices"
        text += f" these do not serve: {fell}" if fell else " all would serve"
        text += f"; the best node has {self.per_node_best} left" if self.nodes else "; none is left"
        return f"{text} ({self.detail})" if self.detail else text


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShortage:
    """How many nodes one non-device need removed, with an example."""

    need: str  # "cpu", "memory", "untolerated taint dedicated", "node selector pool=a", "unschedulable", "host port", "pods", …
    nodes: int
    example: str = ""  # "node-3: 500m of cpu left, 2 wanted"

    def __str__(self) -> str:
        return f"{self.nodes} node{'s' if self.nodes != 1 else ''}: {self.need}" + (
            f" ({self.example})" if self.example else ""
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelShortage:
    """What the domains of one level of the gang's topology take now: of the gang's members, or (`subgroups`) of its subgroups.

    `wanted` and `most` are members, of which one domain takes `most`; with `subgroups` these are subgroups of `of_each`
    members, and `most` is what all domains take together.
    """

    level: str
    required: bool
    wanted: int
    most: int
    domains: int
    best: str = ""  # the domain with most room; with `subgroups` those that have some
    subgroups: bool = False
    of_each: int = 0

    @property
    def short(self) -> int:
        """By how much: members or subgroups for which there is no room."""
        return max(0, self.wanted - self.most)

    def __str__(self) -> str:
        how = "required" if self.required else "preferred"
        if not self.domains:
            return f"level {self.level} ({how}): no node has this label, nor devices such an attribute"
        over = f"of {self.domains} domain{'s' if self.domains != 1 else ''}"
        if self.subgroups:
            room = f" ({self.best})" if self.best else ""
            asked = f"{self.wanted} subgroups of {self.of_each}, each in one {over}: room for {self.most}{room}"
            return f"level {self.level} ({how} of each subgroup): {asked}{self._missing()}"
        taken = f"the best, {self.best}, has room for {self.most}" if self.most else "none has room for any"
        return f"level {self.level} ({how}): {self.wanted} members in one {over}: {taken}{self._missing()}"

    def _missing(self) -> str:
        return f", {self.short} short" if self.short else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A running gang with devices that this one could use."""

    gang: str  # namespace/name, or "" for claims outside any known gang
    queue: str
    devices: int

    def __str__(self) -> str:
        return f"{self.gang or 'claims outside any gang'}{f' (queue {self.queue})' if self.queue else ''} holds {self.devices}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitBlock:
    """The limit that would be exceeded, in the flavor's measure."""

    queue: str
    flavor: str
    used: str
    asked: str
    limit: str
    whole: bool = False  # as much is asked for as the limit never allows, whatever else is used
    changes_at: float | None = None  # unix seconds: the queue's schedule changes its quotas then

    def __str__(self) -> str:
        return f"queue {self.queue}: flavor {self.flavor}: {self.used} used + {self.asked} asked > limit {self.limit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetBlock:
    """The budget that is exhausted. `renews_at`: unix seconds."""

    queue: str
    spent: str
    limit: str
    renews_at: float
    unit: str = GPU_HOURS

    @property
    def field(self) -> str:
        """Of spec.budget: what is raised."""
        return "gpuHours" if self.unit == GPU_HOURS else "hours"

    def __str__(self) -> str:
        return f"{self.spent} of {self.limit} {self.unit} are spent; it renews at {timestamps.seconds(self.renews_at)}"


class PreemptionBlock(StrEnum):
    """Why running gangs are not evicted for a waiting one."""

    SHARE = "would hold more than its fair share with this gang"
    WITHIN_SHARE = "holds no more than its fair share"
    DESERVED = "is within what it deserves, or would be left with less"
    OTHER_FLAVOR = "holds nothing of the flavors that are asked for"
    PRIORITY = "same or higher priority"
    POLICY = "does not preempt its own gangs"
    MIN_RUNTIME = "within min-runtime"
    BUDGET = "PodDisruptionBudget has nothing left"
    DISRUPTIONS = "its queue's disruption budget is used up"
    UNKNOWN = "its pods are not known"
    PLACE = "their devices would not make a place"
    STEPS = "the search for victims ran out of steps"
    NEVER = "its pods say preemptionPolicy: Never"
    LEAVING = "others evicted for it have not gone yet"
    NODES = "nodes are asked for, and nothing is evicted for it"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionBlocker:
    """Why a queue's running gangs are not evicted for this one, and when that changes by itself."""

    block: PreemptionBlock
    queue: str  # of the running gangs; with SHARE, POLICY and NEVER the queue of the waiting gang
    gangs: int = 0
    devices: int = 0
    example: str = ""  # a gang, or a budget
    until: float | None = None  # unix seconds: the first of them may be evicted then
    detail: str = ""  # the numbers
    delays_until: float | None = None  # unix seconds: with BUDGET, from when on it does not count any more

    @property
    def explained(self) -> str:
        """With the end of what budgets delay."""
        if self.delays_until is None:
            return str(self)
        return f"{self}; that delays what queues deserve until {timestamps.seconds(self.delays_until)} and no longer"

    def __str__(self) -> str:
        if self.block is PreemptionBlock.NEVER:
            return self.block.value
        text = f"{f'queue {self.queue}' if self.queue else 'running gangs'}: {self.block.value}"
        if self.until is not None:
            text += f" until {timestamps.seconds(self.until)}"
        if self.detail:
            text += f": {self.detail}"
        return f"{text} ({self._gangs()})" if self.gangs or self.example else text

    def _gangs(self) -> str:
        if not self.gangs:
            return self.example
        held = f"{self.devices} device{'s' if self.devices != 1 else ''}"
        if self.gangs == 1:
            return f"gang {self.example} with {held}" if self.example else f"1 gang with {held}"
        return f"{self.gangs} gangs with {held}" + (f", such as {self.example}" if self.example else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class NearMiss:
    """The best that could be done: how many members fit, and where it stopped."""

    members_placed: int
    members_wanted: int
    node: str = ""  # the node that came closest for the first member that did not fit
    lacking: str = ""  # "2 of 4 devices for request gpu"

    @property
    def informative(self) -> bool:
        """Whether it adds to the message, which says already that none of one member fits."""
        return self.members_wanted > 1 or bool(self.lacking)

    def __str__(self) -> str:
        text = f"{self.members_placed} of {self.members_wanted} members would fit now"
        if self.lacking:
            text += f"; closest for the next one: {self.node}: {self.lacking}" if self.node else f"; {self.lacking}"
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why one gang waits. `message` is one sentence; the rest is evidence, most informative first."""

    code: Code
    message: str
    advice: str = ""  # what would change it
    could_ever_fit: bool | None = (
        None  # in this cluster and its queues with nothing running; None: not examined, or not proven
    )
    behind: str = ""  # the gang before it in a strict line, where that can never start either
    due: float | None = None  # unix seconds: it does not start before, as what is evicted for it goes then
    requests: tuple[RequestShortage, ...] = ()
    nodes: tuple[NodeShortage, ...] = ()
    near_miss: NearMiss | None = None
    holders: tuple[Holder, ...] = ()
    limit: LimitBlock | None = None
    budget: BudgetBlock | None = None
    levels: tuple[LevelShortage, ...] = ()  # of the gang's topology, outermost first; in `str()` where decisive
    blockers: tuple[PreemptionBlocker, ...] = ()  # shares that stand in the way, and what protects running gangs

    @property
    def never(self) -> bool:
        """Whether it cannot start as cluster, queues and workload are, however long it waits: nothing may give a time of its start."""
        return self.could_ever_fit is False or bool(self.behind) or self.code in NEVER_STARTS

    def __str__(self) -> str:
        parts = [_sentence(self.message)]
        if self.limit is not None and str(self.limit) not in self.message:
            parts.append(str(self.limit))
        if self.near_miss is not None and self.near_miss.informative:
            parts.append(str(self.near_miss))
        parts.extend(_sentence(str(request)) for request in self.requests)
        if self.nodes:
            parts.append("Nodes ruled out: " + ", ".join(str(node) for node in self.nodes))
        if self.holders:
            shown = ", ".join(str(holder) for holder in self.holders[:3])
            more = len(self.holders) - 3
            parts.append(shown + (f" and {more} more" if more > 0 else ""))
        if self.blockers:
            parts.append("Nothing is evicted for it: " + "; ".join(str(blocker) for blocker in self.blockers[:4]))
        if self.advice:
            parts.append(_sentence(self.advice))
        return ". ".join(part.rstrip(".") for part in parts) + "."


def _sentence(text: str) -> str:
    """With a capital, unless it begins with a name."""
    first = text.partition(" ")[0]
    return text if "/" in first or ":" in first else text[:1].upper() + text[1:]
