"""The gangs of a snapshot: pending ones with their pods and claims, running ones with what they hold, and holds on either.

Frozen values, made by the controller from pods, Gang objects and claims; no behaviour beyond small views.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlead.api.bounds import NO_BOUNDS, Bounds
from fairlead.api.models import Models
from fairlead.engine.types.pods import PodNeeds
from fairlead.engine.types.values import DeviceRef, Fact, Named, PodRef
from fairlead.kube import resource


class Hold(Fact, frozen=True, kw_only=True):
    """`since` is RFC 3339, as written; "" where a text is not known."""

    by: str = ""
    since: str = ""
    reason: str = ""
    evict: bool = False  # what runs goes, too

    def __str__(self) -> str:
        """`by alice since 2026-11-24T08:00:00Z: the rack is being moved`, or what of it is known."""
        by = f" by {self.by}" if self.by else ""
        since = f" since {self.since}" if self.since else ""
        return f"on hold{by}{since}{f': {self.reason}' if self.reason else ''}"


class ClaimRequest(Fact, frozen=True, kw_only=True):
    """A claim of a gang: to be allocated, or already allocated (then its devices and nodes are fixed).

    `key` names the claim inside the snapshot and the plan; the claim's UID where it exists, else anything unique such as
    "<pod uid>/<entry name>" (so a template claim that does not exist yet can be planned for).
    """

    key: str
    namespace: str
    name: str
    spec: resource.ResourceClaimSpec
    allocation: resource.AllocationResult | None = None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class PendingMember(Fact, frozen=True, kw_only=True):
    """A pod to place. `claims` are keys of its gang's claims in the order of the pod's spec; members may share them.

    Neighbouring ranks exchange most, so they come close together. `subgroup`: its name, where the gang has subgroups.
    `worker_group`: which part of its workload it is of; each chooses its model by itself.
    """

    pod: PodRef
    needs: PodNeeds  # PodNeeds.of(pod)
    claims: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}  # by which terms of other pods select it
    rank: int | None = None
    subgroup: str = ""
    worker_group: str = ""


class PlacedMember(Fact, frozen=True, kw_only=True):
    """A released member: what it holds decides for those that join. `claims` in the order of the pod's spec."""

    claims: tuple[ClaimRequest, ...]
    subgroup: str = ""
    worker_group: str = ""


class RefusedNode(Fact, frozen=True, kw_only=True):
    """kube-scheduler refused a pod of the gang that was pinned there: not chosen for it until then, unix seconds."""

    node: str
    until: float
    why: str = ""  # what kube-scheduler said


class GangRequest(Named, Fact, frozen=True, kw_only=True):
    """A gang with members that wait at the gate. All of `members` are placed, or none.

    `placed_nodes` has one entry per member that was released before (an elastic gang growing, or a member replaced); they
    count towards `size` and towards topology. `kept` are devices that are held for it while it is moved. `avoid` are nodes on which this gang failed before; they come last. `refused` are
    nodes that are not chosen at all for now.
    """

    namespace: str
    name: str
    uid: str  # of the Gang object, else the smallest pod UID: the last word in every order
    size: int  # least members that must run together
    members: tuple[PendingMember, ...] = ()
    claims: tuple[ClaimRequest, ...] = ()
    queue: str | None = None  # as named by annotation or label; None: by the namespace selectors of the queues
    namespace_labels: Mapping[str, str] = {}
    priority: int = 0
    created: float = 0.0  # unix seconds; age orders equals, so a requeued gang keeps its first time
    topology: str | None = None  # the annotation's text, as `api.topology.levels` reads it
    subgroup_topology: str | None = None  # likewise, of each subgroup by itself
    align: str | None = None  # the annotation's text, as `api.align` reads it
    models: Models | None = None  # its devices come from one model, or from any; None: as its queue says
    placed_nodes: tuple[str, ...] = ()
    placed_subgroups: tuple[tuple[str, str], ...] = ()  # subgroup and node of released members that are of one
    placed_claims: tuple[
        tuple[str, ClaimRequest], ...
    ] = ()  # what released members hold, by worker group: of each kind of claim a few, which tell the model
    placed_members: tuple[PlacedMember, ...] = ()  # released members of an aligned gang
    kept: tuple[DeviceRef, ...] = ()  # it takes these and no others, if they and their nodes still do
    avoid: tuple[str, ...] = ()
    refused: tuple[RefusedNode, ...] = ()  # as of now: the snapshot has none that are over
    preempts: bool = True  # False: nothing is evicted for it (a pod's `preemptionPolicy: Never`)
    replaces: bool = False  # a member of a gang that runs short: decided before all others, on what is held for it
    preemptor: bool = False  # gangs were evicted for it: until it is admitted, their devices are held for it
    quota_charge: tuple[
        tuple[str, int], ...
    ] = ()  # what its admission adds to ResourceQuotas, by resource; () in a namespace without
    run_s: float | None = None  # longest it can run, where activeDeadlineSeconds bounds that: lets it backfill
    ends_by: float | None = (
        None  # unix seconds: its workload ends it then, though it waits (a Job's activeDeadlineSeconds)
    )
    endless: bool = False  # it runs until somebody ends it: a service, whose pods are made again whenever they end
    predecessors: tuple[str, ...] = ()  # ids of gangs that a rollout ends only once this one runs
    hold: Hold | None = None  # its own; that of its queue is the queue's
    nodes_asked_since: float | None = None  # unix seconds: the decisions since then had it in `Plan.demand`

    @property
    def joins(self) -> bool:
        """Whether its members join those of the gang that were released before: the gang itself does not wait."""
        return bool(self.placed_nodes)

    @property
    def whole(self) -> bool:
        """Whether all the pods of its size exist."""
        return bool(self.members) and len(self.members) + len(self.placed_nodes) >= self.size


class RunningMember(Fact, frozen=True, kw_only=True):
    """A released pod of a running gang: what one eviction frees. `claims` are UIDs; members may share them."""

    pod: PodRef
    node: str
    claims: tuple[str, ...] = ()
    started: float = 0.0  # unix seconds: when its claims were allocated
    leaving: bool = False  # being evicted or deleted, or finished: its devices come free without an eviction
    done: bool = False  # has succeeded: needs its devices no more
    leaving_since: float | None = None  # unix seconds: its deletion; None: not deleted yet, or not known
    evicted_at: float | None = (
        None  # unix seconds: its eviction is set for then; None: for no time, or it is deleted already
    )
    guarded_by: tuple[str, ...] = ()  # PodDisruptionBudgets that select it: names in its namespace


class IdleSpan(Fact, frozen=True, kw_only=True):
    """All devices of a gang are idle. Unix seconds."""

    since: float  # of the one that was busy last
    known_until: float  # samples are too old then, and it counts as idle no more
    noticed: float | None = None  # when the gang was told; None: not yet


class RunningGang(Named, Fact, frozen=True, kw_only=True):
    """A gang that holds devices and is charged to its queue. `claims` are UIDs in the inventory.

    `members` are the pods that could be evicted; empty where the controller has not seen them (such a gang is never a victim).
    """

    namespace: str
    name: str
    uid: str
    queue: str | None = None
    claims: tuple[str, ...] = ()
    namespace_labels: Mapping[str, str] = {}
    priority: int = 0
    created: float = 0.0
    started: float = 0.0  # unix seconds
    size: int = 1  # least members that must run together; what runs beyond it is elastic surplus
    members: tuple[RunningMember, ...] = ()
    min_runtime_s: float | None = None  # of its own annotation; None: its queue's
    checkpoint_grace_s: float | None = None  # notice before it is evicted, to write a checkpoint
    ends_by: float | None = None  # unix seconds, where activeDeadlineSeconds sets an end
    endless: bool = False  # as `GangRequest.endless`
    bounds: Bounds = NO_BOUNDS  # of its namespace; those of its queue are the queue's
    idle: IdleSpan | None = None  # None: busy, not known, or exempt
    movable: bool | None = None  # of its own annotation; None: as its queue says
    relocation: GangRequest | None = None  # what its pods would ask for if they were made again; None: it stays
    checkpointed: float | None = None  # unix seconds: what all its members have done until then is saved
    restart_s: float | None = None  # from its admission until it runs, as earlier runs took; None: not known
    hold: Hold | None = None  # its own; that of its queue is the queue's
    pods: tuple[str, ...] = ()  # UIDs of pods that hold what it is charged for, and are not among `members`


class RunningSequence(tuple[RunningGang, ...]):  # noqa: SLOT001 - a tuple has no slots for more
    """Running gangs in the order of their ids, with what became of the sequence before.

    So a reader that has the one before need not compare thousands of gangs to find the few that came and went. `version` is
    like no other; `since` is that of the sequence before, None where there is none.
    """

    version: object
    since: object
    gone: tuple[RunningGang, ...]  # were in the one before, and are not in this one
    new: tuple[RunningGang, ...]

    @classmethod
    def after(
        cls,
        before: RunningSequence | None,
        gangs: Iterable[RunningGang],
        *,
        gone: Iterable[RunningGang] = (),
        new: Iterable[RunningGang] = (),
    ) -> RunningSequence:
        sequence = cls(gangs)
        sequence.version, sequence.since = object(), None if before is None else before.version
        sequence.gone, sequence.new = tuple(gone), tuple(new)
        return sequence
