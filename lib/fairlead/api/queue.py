"""Queue: the quota of one team, per flavor, in a tree of queues.

A platform engineer writes what is guaranteed to each team (`deserved`) and what it may use (`limit`, `borrowingLimit`).
How fair shares follow from that is the engine's to compute; whether the parent exists is the webhook's to check.
"""

from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from fairlead.api.base import CONDITIONS, Condition, CustomResource, LabelSelector, ObjectName, Part, Quantity
from fairlead.api.bounds import Bounds, read_bounds
from fairlead.api.budget import Budget, Idle, TimeZone
from fairlead.api.durations import duration_s
from fairlead.api.gang import Duration, Hold
from fairlead.api.members import Members
from fairlead.api.models import Models
from fairlead.api.recurrence import CRON_LENGTH_MAX, Recurrence, checked_cron

FLAVORS_MAX = 16
"""Bounded by the apiserver's cost estimate for the rule on each entry: 10,000,000 / 314,572 (int-or-string) = 31."""
SCHEDULE_MAX = 16
SCHEDULE_LEAST_S = 60.0
"""Cron counts in minutes."""

Cron = Annotated[
    str, AfterValidator(checked_cron), Field(json_schema_extra={"minLength": 9, "maxLength": CRON_LENGTH_MAX})
]


class QueueFlavor(Part):
    """What is guaranteed to a queue of one flavor and what it may use, in the flavor's measure."""

    flavor: ObjectName
    """Name of the Flavor."""
    deserved: Quantity = 0
    """Guaranteed share: other queues may use it while it is unused, and it is reclaimed when this queue needs it."""
    limit: Quantity | None = None
    """Most that the queue may use; absent means no limit."""
    borrowing_limit: Quantity | None = None
    """Most that the queue may use beyond deserved; absent means no limit of its own."""
    lending_limit: Quantity | None = None
    """Most of deserved that others may use while this queue does not; absent means all of it."""
    weight: float = Field(default=1, ge=0, le=1_000_000)
    """Weight of this queue where the surplus, what no queue needs of its deserved share, is divided."""

    @model_validator(mode="after")
    def _limit_covers_deserved(self) -> Self:
        if isinstance(self.limit, int) and isinstance(self.deserved, int) and self.limit < self.deserved:
            raise ValueError(f"limit {self.limit} is below deserved {self.deserved}: raise limit or lower deserved")
        return self


class ScheduledFlavor(Part):
    """What replaces fields of the quota of one flavor; fields that are absent stay as they are."""

    flavor: ObjectName
    """Name of the Flavor."""
    deserved: Quantity | None = None
    """Guaranteed share."""
    limit: Quantity | None = None
    """Most that the queue may use. For no limit, write more than the cluster has."""
    borrowing_limit: Quantity | None = None
    """Most that the queue may use beyond deserved."""
    lending_limit: Quantity | None = None
    """Most of deserved that others may use while this queue does not."""
    weight: float | None = Field(default=None, ge=0, le=1_000_000)
    """Weight of this queue where the surplus is divided."""

    @model_validator(mode="after")
    def _replaces_something(self) -> Self:
        if not self.replaced():
            raise ValueError(
                f"replaces nothing of flavor {self.flavor!r}: write one of {', '.join(sorted(_REPLACED.values()))}, or remove it"
            )
        return self

    def replaced(self) -> dict[str, int | str | float]:
        """The fields that it replaces, by name in QueueFlavor."""
        return {name: value for name in _REPLACED if (value := getattr(self, name)) is not None}


_REPLACED = {name: field.alias or name for name, field in ScheduledFlavor.model_fields.items() if name != "flavor"}


class ScheduleEntry(Part):
    """Quota that is in force at certain times."""

    name: ObjectName
    """Name of the entry, which `fairlead queues` shows while it is in force."""
    start: Cron
    """When it comes into force: a cron expression of five fields, such as `0 20 * * 1-5`, in timeZone."""
    for_: Duration = Field(alias="for")
    """For how long it is in force, such as 11h: elapsed time, also where clocks change meanwhile."""
    time_zone: TimeZone = "UTC"
    """IANA name of the time zone of start, such as Europe/Berlin."""
    flavors: list[ScheduledFlavor] = Field(
        min_length=1,
        max_length=FLAVORS_MAX,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["flavor"]},
    )
    """What replaces the quota of these flavors meanwhile."""

    @model_validator(mode="after")
    def _lasts_and_names_once(self) -> Self:
        if duration_s(self.for_) < SCHEDULE_LEAST_S:
            raise ValueError(f"for {self.for_} is less than a minute, the least that start can say: write 1m or more")
        seen: set[str] = set()
        for index, entry in enumerate(self.flavors):
            if entry.flavor in seen:
                raise ValueError(f"flavors[{index}].flavor: {entry.flavor!r} is listed twice: merge the two entries")
            seen.add(entry.flavor)
        return self

    @property
    def recurrence(self) -> Recurrence:
        return Recurrence(self.start, duration_s(self.for_), self.time_zone)


class DisruptionBudget(Part):
    """How often gangs of a queue may be evicted."""

    evictions: int = Field(ge=0, le=1000)
    """Most gangs that are evicted for other gangs within the window."""
    window: Duration = "1h"
    """Length of the window, such as 1h."""


class QueueSpec(Part):
    """Quota and rules of this queue."""

    parent: ObjectName | None = None
    """Name of the queue above; absent means a root."""
    namespace_selector: LabelSelector | None = None
    """Namespaces whose pods may use this queue, and do if they name none; absent means any pod that names it."""
    flavors: list[QueueFlavor] = Field(
        default_factory=list,
        max_length=FLAVORS_MAX,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["flavor"]},
    )
    """Quota per flavor; a flavor that is not listed has deserved 0, no limit, weight 1."""
    schedule: list[ScheduleEntry] = Field(
        default_factory=list,
        max_length=SCHEDULE_MAX,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    """Quotas of certain times of the day or week. Of entries in force together the later one in the list wins, field by field."""
    priority: int = Field(default=0, ge=-1_000_000, le=1_000_000)
    """Queues of higher priority get the surplus first; deserved shares do not depend on it."""
    strategy: Literal["pack", "spread"] = "pack"
    """pack: place gangs close together, so that whole nodes stay free. spread: place them apart."""
    models: Models | None = None
    """same: the devices of a gang come from one GPU product (of MIG devices: one profile on one). any: models may mix. For gangs without fairlead.dev/models; absent means as in the parent, in a root same."""
    members: Members | None = None
    """all: pods of a gang's owner that ask for no device wait and start with the others. devices: they start at once. For gangs without fairlead.dev/members; absent means as in the parent, in a root devices."""
    ordering: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"
    """Whether a gang that fits may be admitted before an older one that does not (BestEffortFIFO)."""
    preemption: Literal["LowerPriority", "Never"] = "LowerPriority"
    """Whether a gang of this queue may evict gangs of lower priority in the same queue."""
    min_runtime: Duration | None = None
    """Gangs are not evicted before they have run this long; absent means as in the parent, in a root none."""
    max_min_runtime: Duration | None = None
    """Most that min-runtime counts for gangs of this queue and of those below; absent means as in the parent, in a root 1h."""
    max_checkpoint_grace: Duration | None = None
    """Most notice before an eviction: that checkpoint-grace gets, or a PodDisruptionBudget while it refuses the reclaim of what others deserve; absent means as in the parent, in a root 10m."""
    max_termination_grace: Duration | None = None
    """Most time an evicted pod gets to end, and others wait for one that is leaving; absent means as in the parent, in a root 10m."""
    lost_node_timeout: Duration | None = None
    """How long a gang with members on a node that does not answer keeps the devices of its other members, where these are fewer than it needs; then it is evicted whole. Absent means as in the parent, in a root without end."""
    max_priority: int | None = Field(default=None, ge=0, le=2_000_001_000)
    """Highest priority of pods of this queue and of those below; gangs count with no more; absent means as in the parent, in a root any."""
    pod_disruption_budgets: Literal["Bounded", "Respected"] | None = None
    """Bounded: a PodDisruptionBudget delays the reclaim of what other queues deserve by maxCheckpointGrace at most, then its pods are deleted. Respected: it prevents that. Absent means as in the parent, in a root Bounded."""
    disruption_budget: DisruptionBudget | None = None
    """Most gangs of this queue that may be evicted for other gangs within a window; absent means no limit."""
    budget: Budget | None = None
    """GPU-hours, or hours of a resource of pods, that this queue and those below it may spend in a day, week or month; absent means no bound."""
    idle: Idle | None = None
    """What happens to gangs whose devices are idle; absent means as in the parent, in a root nothing."""
    movable: bool | None = None
    """Whether gangs that do not say so themselves may be moved, with a place held for them, so that another fits; absent means as in the parent, in a root false."""
    hold: Hold | None = None
    """Nothing of this queue, or of those below it, is admitted until this is removed (`fairlead hold queue`)."""
    wait_target: Duration | None = None
    """The wait that the queue's owner promises: 95 of 100 gangs wait no longer, such as 10m. Reported, never enforced."""

    @model_validator(mode="after")
    def _flavors_once(self) -> Self:
        seen: set[str] = set()
        for index, entry in enumerate(self.flavors):
            if entry.flavor in seen:
                raise ValueError(f"flavors[{index}].flavor: {entry.flavor!r} is listed twice: merge the two entries")
            seen.add(entry.flavor)
        return self

    @model_validator(mode="after")
    def _schedule_is_in_order(self) -> Self:
        names: set[str] = set()
        flavors = {entry.flavor for entry in self.flavors}
        own = {entry.flavor: entry for entry in self.flavors}
        for index, entry in enumerate(self.schedule):
            if entry.name in names:
                raise ValueError(f"schedule[{index}].name: {entry.name!r} is the name of two entries: rename one")
            names.add(entry.name)
            for number, change in enumerate(entry.flavors):
                flavors.add(change.flavor)
                quota = with_change(own.get(change.flavor, QueueFlavor(flavor=change.flavor)), change)
                if isinstance(quota.limit, int) and isinstance(quota.deserved, int) and quota.limit < quota.deserved:
                    raise ValueError(
                        f"schedule[{index}].flavors[{number}]: while {entry.name} is in force limit {quota.limit} is below "
                        f"deserved {quota.deserved}: give both, or raise limit"
                    )
        if len(flavors) > FLAVORS_MAX:
            raise ValueError(
                f"schedule: with the flavors of its entries the queue has {len(flavors)}, more than {FLAVORS_MAX}: use fewer"
            )
        return self

    @model_validator(mode="after")
    def _wait_target_can_be_met(self) -> Self:
        if self.wait_target is not None and not duration_s(self.wait_target):
            raise ValueError(f"waitTarget {self.wait_target} is no time at all: write one that can be met, such as 10m")
        return self

    @model_validator(mode="after")
    def _min_runtime_within_its_bound(self) -> Self:
        own, most = self.min_runtime, self.max_min_runtime
        if own is not None and most is not None and duration_s(own) > duration_s(most):
            raise ValueError(
                f"minRuntime {own} is beyond maxMinRuntime {most}: raise maxMinRuntime or lower minRuntime"
            )
        return self


def with_change(quota: QueueFlavor, change: ScheduledFlavor) -> QueueFlavor:
    """The quota with what an entry of the schedule replaces. Its limit may be below deserved."""
    return quota.model_copy(update=change.replaced())


class QueueUsage(Part):
    """Usage of one flavor, in the flavor's measure."""

    flavor: str = Field(max_length=253)
    """Name of the Flavor."""
    allocated: Quantity = 0
    """Allocated to running gangs, those of descendants included."""
    demand: Quantity = 0
    """Allocated, and requested by pending gangs."""
    fair_share: Quantity = 0
    """What the queue may use now; gangs beyond it can be reclaimed."""
    past_usage: float | None = Field(default=None, ge=0)
    """Past usage, decayed with the half-life; the controller reads it after a restart."""


class EntryInForce(Part):
    """An entry of the schedule that is in force."""

    name: str = Field(max_length=253)
    """Name of the entry."""
    until: str | None = Field(default=None, max_length=40)
    """When it ends, RFC 3339; absent where it starts again before it ends, so many times that its end is not known."""


class ScheduledQuota(Part):
    """Quota of one flavor as it is now."""

    flavor: str = Field(max_length=253)
    """Name of the Flavor."""
    deserved: Quantity = 0
    """Guaranteed share."""
    limit: Quantity | None = None
    """Most that the queue may use."""


class QueueSchedule(Part):
    """What of spec.schedule is in force."""

    in_force: list[EntryInForce] = Field(
        default_factory=list,
        max_length=SCHEDULE_MAX,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    """Entries in force, in the order of spec.schedule; none: quotas are those of spec.flavors."""
    next_change: str | None = Field(default=None, max_length=40)
    """When an entry comes into force or ends next, RFC 3339."""
    quotas: list[ScheduledQuota] = Field(
        default_factory=list,
        max_length=FLAVORS_MAX,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["flavor"]},
    )
    """Quotas by which gangs are admitted now."""


class QueueBudget(Part):
    """What of spec.budget is spent in the period of now."""

    gpu_hours: str | None = Field(default=None, max_length=40)
    """GPU-hours of the period; absent where spec.budget is of a flavor."""
    flavor: str | None = Field(default=None, max_length=253)
    """The Flavor of which spec.budget is; absent where it is of GPU-hours."""
    hours: str | None = Field(default=None, max_length=40)
    """With flavor: hours of the period."""
    unit: str | None = Field(default=None, max_length=330)
    """With flavor: what the hours are of, such as cpu-hours or GiB-hours."""
    spent: str | None = Field(default=None, max_length=40)
    """Hours that were spent; absent while that is not known, so that nothing is stopped."""
    percent: int | None = Field(default=None, ge=0)
    """What was spent, in percent of the budget."""
    renews_at: str = Field(max_length=40)
    """When the next period begins, RFC 3339."""


class QueueStatus(Part):
    """Observed state. Written by the controller only."""

    observed_generation: int | None = None
    """The metadata.generation that this was computed for."""
    waiting: int = Field(default=0, ge=0)
    """Pending gangs."""
    running: int = Field(default=0, ge=0)
    """Gangs with devices."""
    usage: list[QueueUsage] = Field(
        default_factory=list,
        max_length=FLAVORS_MAX,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["flavor"]},
    )
    """Per flavor."""
    schedule: QueueSchedule | None = None
    """What of spec.schedule is in force; absent without a schedule."""
    budget: QueueBudget | None = None
    """What of spec.budget is spent; absent without a budget."""
    evictions: list[str] = Field(default_factory=list, max_length=1000)
    """When gangs of this queue were evicted for other gangs within the disruption budget's window, RFC 3339."""
    usage_time: str | None = Field(default=None, max_length=40)
    """When pastUsage was last updated, RFC 3339."""
    conditions: list[Condition] = Field(default_factory=list, max_length=16, json_schema_extra=CONDITIONS)
    """Ready, and others with details."""


class Queue(CustomResource):
    """The quota of one team: what is guaranteed to it, what it may use, and in which order its gangs are admitted."""

    kind: Literal["Queue"] = "Queue"
    spec: QueueSpec = Field(default_factory=QueueSpec)
    """Quota and rules of this queue."""
    status: QueueStatus | None = None
    """Observed state. Written by the controller only."""

    @cached_property
    def bounds(self) -> Bounds:
        """What its spec sets at most."""
        return read_bounds(self.spec, f"{self.kind} {self.name}")

    @model_validator(mode="after")
    def _not_its_own_parent(self) -> Self:
        if self.spec.parent is not None and self.spec.parent == self.name:
            raise ValueError(f"spec.parent: {self.name!r} is the queue itself: name another queue, or none")
        return self
