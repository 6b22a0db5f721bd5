"""Queue: a share of the cluster for one team, in a tree, per flavor.

Exists so that a platform engineer writes once what each team is owed and what it may use. Says nothing
of how shares are divided (the controller's) or whether the parent exists (the webhook's).
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from fairlead.api.base import CONDITIONS, Condition, LabelSelector, ObjectName, Part, Quantity, Resource
from fairlead.api.gang import Duration

FLAVORS_MAX = 16
"""Bounded by the apiserver's cost estimate for the rule on each entry: 10,000,000 / 314,572 (int-or-string) = 31."""


class QueueFlavor(Part):
    """What a queue is owed and may use of one flavor, in the flavor's measure."""

    flavor: ObjectName
    """Name of the Flavor."""
    deserved: Quantity = 0
    """Guaranteed: lent to others while unused, reclaimed when needed."""
    limit: Quantity | None = None
    """Never more than this; absent means no limit."""
    borrowing_limit: Quantity | None = None
    """Most that the queue may use beyond deserved; absent means no bound of its own."""
    lending_limit: Quantity | None = None
    """Most of deserved that others may use while this queue does not; absent means all of it."""
    weight: float = Field(default=1, ge=0, le=1_000_000)
    """Part of what is left when every queue has what it deserves."""

    @model_validator(mode="after")
    def _limit_covers_deserved(self) -> Self:
        if isinstance(self.limit, int) and isinstance(self.deserved, int) and self.limit < self.deserved:
            raise ValueError(f"limit {self.limit} is below deserved {self.deserved}: raise limit or lower deserved")
        return self


class DisruptionBudget(Part):
    """How much a queue can be disturbed."""

    evictions: int = Field(ge=0, le=1000)
    """Most gangs that are evicted for others within the window."""
    window: Duration = "1h"
    """Length of the window, such as 1h."""


class QueueSpec(Part):
    """What the platform engineer wants for this queue."""

    parent: ObjectName | None = None
    """Name of the queue above; absent means a root."""
    namespace_selector: LabelSelector | None = None
    """Namespaces whose pods may use this queue, and do when they name none; absent means any pod that names it."""
    flavors: list[QueueFlavor] = Field(
        default_factory=list,
        max_length=FLAVORS_MAX,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["flavor"]},
    )
    """Quota per flavor; a flavor that is not listed has deserved 0, no limit, weight 1."""
    priority: int = Field(default=0, ge=-1_000_000, le=1_000_000)
    """Higher is served first from what is left over; never above another's deserved share."""
    strategy: Literal["pack", "spread"] = "pack"
    """Whether gangs are put close together (whole nodes stay free) or apart."""
    ordering: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"
    """Whether a gang that fits may pass an older one that does not."""
    preemption: Literal["LowerPriority", "Never"] = "LowerPriority"
    """Whether a gang of this queue may evict gangs of lower priority in the same queue."""
    min_runtime: Duration | None = None
    """Gangs are not evicted before they have run this long; absent means what the queue above says, at last not at all."""
    disruption_budget: DisruptionBudget | None = None
    """Most gangs of this queue that may be evicted for others within a while; absent means no bound."""

    @model_validator(mode="after")
    def _flavors_once(self) -> Self:
        seen: set[str] = set()
        for index, entry in enumerate(self.flavors):
            if entry.flavor in seen:
                raise ValueError(f"flavors[{index}].flavor: {entry.flavor!r} is listed twice: merge the two entries")
            seen.add(entry.flavor)
        return self


class QueueUsage(Part):
    """Where a queue stands in one flavor, in the flavor's measure."""

    flavor: str = Field(max_length=253)
    """Name of the Flavor."""
    allocated: Quantity = 0
    """In use by running gangs, descendants included."""
    demand: Quantity = 0
    """In use and asked for by waiting gangs."""
    fair_share: Quantity = 0
    """What the queue may hold now without being reclaimed from."""
    past_usage: float | None = Field(default=None, ge=0)
    """Use decayed with the half-life; read back after a restart."""


class QueueStatus(Part):
    """What the controller found; nobody else writes it."""

    observed_generation: int | None = None
    """The metadata.generation that this was computed for."""
    waiting: int = Field(default=0, ge=0)
    """Gangs that wait."""
    running: int = Field(default=0, ge=0)
    """Gangs that hold devices."""
    usage: list[QueueUsage] = Field(
        default_factory=list,
        max_length=FLAVORS_MAX,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["flavor"]},
    )
    """Per flavor."""
    evictions: list[str] = Field(default_factory=list, max_length=1000)
    """When gangs of this queue were evicted for others within the disruption budget's window, RFC 3339."""
    usage_time: str | None = Field(default=None, max_length=40)
    """When pastUsage was last brought up to date, RFC 3339."""
    conditions: list[Condition] = Field(default_factory=list, max_length=16, json_schema_extra=CONDITIONS)
    """Ready, and what else there is to say."""


class Queue(Resource):
    """A share of the cluster for one team: what it deserves, what it may use, and in which order it is served."""

    kind: Literal["Queue"] = "Queue"
    spec: QueueSpec = Field(default_factory=QueueSpec)
    """What the platform engineer wants for this queue."""
    status: QueueStatus | None = None
    """What the controller found; nobody else writes it."""

    @model_validator(mode="after")
    def _not_its_own_parent(self) -> Self:
        if self.spec.parent is not None and self.spec.parent == self.name:
            raise ValueError(f"spec.parent: {self.name!r} is the queue itself: name another queue, or none")
        return self
