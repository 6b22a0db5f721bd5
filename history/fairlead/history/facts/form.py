"""The format, version 1: what a decision starts from, as JSON with the API's spelling (camelCase), under names of its own.

`Facts` is a whole state or a change of one: each table by key, with null for what is gone. What equals its default is left out.
Amounts of flavors are texts, whole or as a fraction ("3", "1/7"); resources of nodes and pods are in thousandths; times are
unix seconds; parts of Kubernetes objects are as resource.k8s.io/v1 and core/v1 have them.
A field that is added later has a default; one that changes its meaning makes version 2.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from fairlead.api.models import Models
from fairlead.engine.types.neighbours import Neighbours
from fairlead.kube import core, resource
from fairlead.kube.objects import LabelSelector

VERSION = 1


class Item(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """The base of all."""


class Pod(Item, frozen=True, kw_only=True):
    namespace: str
    name: str
    uid: str


class Needs(Item, frozen=True, kw_only=True):
    """What a pod needs of a node besides devices."""

    requests: tuple[tuple[str, int], ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: core.NodeSelector | None = None
    preferred: tuple[core.PreferredSchedulingTerm, ...] = ()
    tolerations: tuple[core.Toleration, ...] = ()
    ports: tuple[tuple[str, str, int], ...] = ()
    volumes: tuple[core.NodeSelector, ...] = ()
    neighbours: Neighbours | None = None


class Notice(Item, frozen=True, kw_only=True):
    """That a node goes soon. `by`: unix seconds."""

    source: str
    what: str
    by: float | None = None


class Node(Item, frozen=True, kw_only=True):
    labels: dict[str, str] = {}
    taints: tuple[core.Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    notice: Notice | None = None
    allocatable: dict[str, int] = {}


class CountedPod(Item, frozen=True, kw_only=True):
    """A pod that takes room on a node."""

    node: str
    needs: Needs
    namespace: str = ""  # with `labels`, by what terms of other pods select it
    labels: dict[str, str] = {}
    leaving: bool = False


class AllocatedDevice(Item, frozen=True, kw_only=True):
    driver: str
    pool: str
    device: str
    admin: bool = False
    whole: bool = True
    consumed: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[resource.DeviceToleration, ...] = ()


class AllocatedClaim(Item, frozen=True, kw_only=True):
    namespace: str
    name: str
    devices: tuple[AllocatedDevice, ...] = ()


# -- gangs ---------------------------------------------------------------------------------------------------------


class Claim(Item, frozen=True, kw_only=True):
    key: str
    namespace: str
    name: str
    spec: resource.ResourceClaimSpec
    allocation: resource.AllocationResult | None = None


class Member(Item, frozen=True, kw_only=True):
    pod: Pod
    needs: Needs
    claims: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    rank: int | None = None
    subgroup: str = ""
    worker_group: str = ""


class Device(Item, frozen=True, kw_only=True):
    driver: str
    pool: str
    device: str


class RefusedNode(Item, frozen=True, kw_only=True):
    node: str
    until: float
    why: str = ""


class Hold(Item, frozen=True, kw_only=True):
    """Of a gang or queue: nothing of it is admitted."""

    by: str = ""
    since: str = ""
    reason: str = ""
    evict: bool = False


class Gang(Item, frozen=True, kw_only=True):
    """A gang that waits."""

    namespace: str
    name: str
    uid: str
    size: int
    members: tuple[Member, ...] = ()
    claims: tuple[Claim, ...] = ()
    queue: str | None = None
    namespace_labels: dict[str, str] = {}
    priority: int = 0
    created: float = 0.0
    topology: str | None = None
    subgroup_topology: str | None = None
    models: Models | None = None
    placed_nodes: tuple[str, ...] = ()
    placed_subgroups: tuple[tuple[str, str], ...] = ()
    placed_claims: tuple[tuple[str, Claim], ...] = ()
    kept: tuple[Device, ...] = ()
    avoid: tuple[str, ...] = ()
    refused: tuple[RefusedNode, ...] = ()
    preempts: bool = True
    replaces: bool = False
    preemptor: bool = False
    quota_charge: tuple[tuple[str, int], ...] = ()
    run_s: float | None = None
    ends_by: float | None = None
    endless: bool = False
    predecessors: tuple[str, ...] = ()
    hold: Hold | None = None
    nodes_asked_since: float | None = None


class RunningMember(Item, frozen=True, kw_only=True):
    pod: Pod
    node: str
    claims: tuple[str, ...] = ()
    started: float = 0.0
    leaving: bool = False
    done: bool = False
    leaving_since: float | None = None
    evicted_at: float | None = None
    guarded_by: tuple[str, ...] = ()


class Bound(Item, frozen=True, kw_only=True):
    seconds: float
    source: str


class Bounds(Item, frozen=True, kw_only=True):
    min_runtime: Bound | None = None
    checkpoint_grace: Bound | None = None
    termination_grace: Bound | None = None


class IdleSpan(Item, frozen=True, kw_only=True):
    since: float
    known_until: float
    noticed: float | None = None


class RunningGang(Item, frozen=True, kw_only=True):
    namespace: str
    name: str
    uid: str
    queue: str | None = None
    claims: tuple[str, ...] = ()
    namespace_labels: dict[str, str] = {}
    priority: int = 0
    created: float = 0.0
    started: float = 0.0
    size: int = 1
    members: tuple[RunningMember, ...] = ()
    min_runtime_s: float | None = None
    checkpoint_grace_s: float | None = None
    ends_by: float | None = None
    endless: bool = False
    bounds: Bounds = Bounds()
    idle: IdleSpan | None = None
    movable: bool | None = None
    relocation: Gang | None = None
    checkpointed: float | None = None
    restart_s: float | None = None
    hold: Hold | None = None


# -- what the cluster's owners set -----------------------------------------------------------------------------------


class FlavorQuota(Item, frozen=True, kw_only=True):
    flavor: str
    deserved: str = "0"
    limit: str | None = None
    weight: float = 1.0
    borrowing_limit: str | None = None
    lending_limit: str | None = None


class IdlePolicy(Item, frozen=True, kw_only=True):
    for_s: float
    grace_s: float
    then: Literal["nothing", "warn", "suspendBorrowing", "evict"]
    below_percent: int | None = None
    devices: Literal["All", "Any"] = "All"


class SpendingBudget(Item, frozen=True, kw_only=True):
    """Of a queue: GPU-hours of the period of now."""

    on_exhausted: Literal["warn", "noBorrow", "stop"]
    limit: str
    spent: str | None = None
    renews_at: float
    exhausts_at: float | None = None


class Queue(Item, frozen=True, kw_only=True):
    uid: str = ""
    parent: str | None = None
    quotas: tuple[FlavorQuota, ...] = ()
    priority: int = 0
    strategy: Literal["pack", "spread"] = "pack"
    ordering: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"
    namespace_selector: LabelSelector | None = None
    preemption: Literal["LowerPriority", "Never"] = "LowerPriority"
    min_runtime_s: float | None = None
    evictions_left: int | None = None
    bounds: Bounds = Bounds()
    respects_budgets: bool | None = None
    past_usage: dict[str, float] = {}
    quotas_change_at: float | None = None
    budget: SpendingBudget | None = None
    idle: IdlePolicy | None = None
    models: Models | None = None
    movable: bool | None = None
    hold: Hold | None = None


class NodeTemplate(Item, frozen=True, kw_only=True):
    devices: int
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[core.Taint, ...] = ()
    allocatable: tuple[tuple[str, int], ...] = ()


class Autoscaling(Item, frozen=True, kw_only=True):
    mode: Literal["Visible", "ProvisioningRequest", "Placeholder"]
    max: str | None = None
    patience_s: float
    wait_s: float
    device_classes: tuple[str, ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    templates: tuple[NodeTemplate, ...] = ()


class Flavor(Item, frozen=True, kw_only=True):
    device_selector: str
    measure: Literal["Devices", "Share", "Capacity"] = "Devices"
    capacity_name: str | None = None
    autoscaling: Autoscaling | None = None


class Budget(Item, frozen=True, kw_only=True):
    """A PodDisruptionBudget."""

    namespace: str
    name: str
    allowed: int


class Quota(Item, frozen=True, kw_only=True):
    """One limit of a ResourceQuota."""

    namespace: str
    name: str
    resource: str
    limit: int
    used: int


class Demand(Item, frozen=True, kw_only=True):
    """A kind of pod of the usual mix."""

    spec: resource.ResourceClaimSpec
    needs: Needs
    count: int


class Mix(Item, frozen=True, kw_only=True):
    """Of the usual mix, what is known beside the demands of `Facts.workload`; as `engine.types.workload.Workload`."""

    rare: tuple[Demand, ...] = ()
    pods: int = 0
    once: int = 0
    cpu: int = 0


class Settings(Item, frozen=True, kw_only=True):
    usage_weight: float = 1.0
    reserve_after_s: float = 600.0
    search_steps: int = 200_000
    namespace_steps: int | None = None
    searched: tuple[str, ...] = ()  # UIDs of gangs, sorted


class Facts(Item, frozen=True, kw_only=True):
    """A state, or a change of one. `order`: the keys of a table whose order is not that of its keys, sorted."""

    slices: dict[str, resource.ResourceSliceSpec | None] = {}  # by name
    taint_rules: dict[str, resource.DeviceTaintRuleSpec | None] = {}  # by name
    classes: dict[str, resource.DeviceClassSpec | None] = {}  # by name
    claims: dict[str, AllocatedClaim | None] = {}  # by UID
    nodes: dict[str, Node | None] = {}  # by name
    pods: dict[str, CountedPod | None] = {}  # by UID
    gangs: dict[str, Gang | None] = {}  # by namespace/name
    running: dict[str, RunningGang | None] = {}  # by namespace/name
    queues: dict[str, Queue | None] = {}  # by name
    flavors: dict[str, Flavor | None] = {}  # by name
    budgets: dict[str, Budget | None] = {}  # by namespace/name
    quotas: dict[str, Quota | None] = {}  # by namespace/name/resource
    order: dict[str, tuple[str, ...] | None] = {}  # by table; null: sorted again
    workload: tuple[Demand, ...] | msgspec.UnsetType | None = msgspec.UNSET
    mix: Mix = Mix()  # beside `workload`, when that is set
    settings: Settings | None = None  # in a change: null where they are as before


EMPTY = Facts()
