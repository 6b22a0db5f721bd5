"""What the cluster's owners set: queues with their quotas, flavors, disruption budgets; and what is wrong with a setting.

Frozen values, made by the controller from Queue, Flavor and PodDisruptionBudget objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fairlead.api.bounds import NO_BOUNDS, Bounds
from fairlead.api.models import Models
from fairlead.api.resource_units import GPU_HOURS
from fairlead.engine.types.gangs import Hold
from fairlead.engine.types.values import Amount, Fact
from fairlead.kube import core
from fairlead.kube.objects import LabelSelector


class FlavorQuota(Fact, frozen=True, kw_only=True):
    flavor: str
    deserved: Amount = 0
    limit: Amount | None = None  # None: no limit
    weight: float = 1.0
    borrowing_limit: Amount | None = None  # most beyond deserved; None: no bound of its own
    lending_limit: Amount | None = None  # most of deserved that others may use meanwhile; None: all


class BudgetState(Fact, frozen=True, kw_only=True):
    """What a queue, with those below it, may spend in the period of now, and what it has spent. In GPU-hours, or in hours of a flavor.

    `spent` is as of some moment before the decision; `exhausts_at` is when it reaches `limit` if the queue goes on holding what it
    holds. None: not known, and then the budget is not exhausted. Times in unix seconds.
    """

    on_exhausted: Literal["warn", "noBorrow", "stop"]
    limit: Amount
    spent: Amount | None = None
    renews_at: float
    exhausts_at: float | None = None
    unit: str = GPU_HOURS  # of limit and spent

    def exhausted(self, now: float) -> bool:
        """The period after this one begins with nothing spent: nothing else is known of it."""
        if self.spent is None or now >= self.renews_at:
            return False
        return self.spent >= self.limit or (self.exhausts_at is not None and now >= self.exhausts_at)

    def changes_at(self, now: float) -> float | None:
        """When what it forbids changes by time alone; None where it forbids nothing, or only that is not known."""
        if self.on_exhausted == "warn" or self.spent is None or now >= self.renews_at:
            return None
        if self.exhausted(now):
            return self.renews_at
        return self.exhausts_at if self.exhausts_at is not None and self.exhausts_at < self.renews_at else None


class IdlePolicy(Fact, frozen=True, kw_only=True):
    """What happens to a gang that has been idle for `for_s`, `grace_s` after it was told.

    `below_percent` is the utilisation by which the gang's `IdleSpan` was read; None: the driver's own threshold. `devices`: whether
    all of a gang's devices have to be idle, or one is enough.
    """

    for_s: float
    grace_s: float
    then: Literal["nothing", "warn", "suspendBorrowing", "evict"]
    below_percent: int | None = None
    devices: Literal["All", "Any"] = "All"


class QueueSpec(Fact, frozen=True, kw_only=True):
    """A Queue object. `namespace_selector` None takes only gangs that name the queue; an empty one takes any namespace.

    `past_usage` is what Queue status remembers of each flavor, brought up to date by the controller: the part of the
    cluster that the queue held on average, decayed with the half-life. `evictions_left` None: no disruption budget.
    """

    name: str = ""  # in a recording the key of its table says it
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
    bounds: Bounds = NO_BOUNDS  # of its gangs and of those of the queues below it
    respects_budgets: bool | None = None  # PodDisruptionBudgets prevent reclaim; None: as the queue above, at last not
    past_usage: Mapping[str, float] = {}
    quotas_change_at: float | None = None  # unix seconds: a schedule replaces `quotas` then, which are those of now
    idle: IdlePolicy | None = (
        None  # of its gangs and those of the queues below it; None: as the queue above, at last none
    )
    budget: BudgetState | None = None  # None: it may spend without bound
    movable: bool | None = None  # its gangs, where they do not say so themselves; None: as the queue above, at last not
    models: Models | None = (
        None  # of its gangs, where they do not say so themselves; None: as the queue above, at last same
    )
    hold: Hold | None = None  # nothing of it, or of the queues below it, is admitted


class NodeTemplate(Fact, frozen=True, kw_only=True):
    """How an autoscaler makes nodes with devices of a flavor. `allocatable` in thousandths; of other resources there is enough."""

    devices: int
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[core.Taint, ...] = ()
    allocatable: tuple[tuple[str, int], ...] = ()


class Autoscaling(Fact, frozen=True, kw_only=True):
    """Nodes with devices of a flavor can be asked for. `max`: of running gangs and demand together, in its measure; None: unbounded."""

    mode: Literal["Visible", "ProvisioningRequest", "Placeholder"]
    max: Amount | None = None
    patience_s: float = 1800.0  # how long nodes are asked for, for one gang, and how long then not
    wait_s: float = 600.0  # from when they are first asked for: nothing is evicted for the gang before
    device_classes: tuple[str, ...] = ()  # requests of these count as the flavor while it has no device
    node_selector: tuple[tuple[str, str], ...] = ()  # labels that are asked for besides those of the pods
    templates: tuple[NodeTemplate, ...] = ()  # nodes as they would be made, of which there may be none


class FlavorSpec(Fact, frozen=True, kw_only=True):
    """A kind of resource: which devices (CEL) and how much of it a device is; or what the pods of gangs request (measure Resource)."""

    name: str = ""  # in a recording the key of its table says it
    device_selector: str  # "" with measure Resource
    measure: Literal["Devices", "Share", "Capacity", "Resource"] = "Devices"
    capacity_name: str | None = None  # with measure Capacity
    autoscaling: Autoscaling | None = None  # None: its nodes are those that there are
    resource_name: str | None = None  # with measure Resource, and
    node_selector: tuple[tuple[str, str], ...] = ()  # labels of the nodes whose pods count; (): of all


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Problem:
    """What is wrong with a Queue or Flavor object, for its Ready condition."""

    kind: Literal["Queue", "Flavor"]
    name: str
    reason: str  # one CamelCase word
    message: str  # field, value, next step

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.message}"


class DisruptionBudget(Fact, frozen=True, kw_only=True):
    """A PodDisruptionBudget: how many of the pods it selects may go now (`status.disruptionsAllowed`)."""

    namespace: str
    name: str
    allowed: int


class NamespaceQuota(Fact, frozen=True, kw_only=True):
    """One limit of a ResourceQuota: of `limit` (its `hard`) so much is in use, by what exists and what is being created.

    `resource` is the name in the quota, such as `gpu.fairlead.dev.deviceclass.resource.k8s.io/devices`.
    """

    namespace: str
    name: str
    resource: str
    limit: int
    used: int
