"""What the ledger holds, and what it is made of. Frozen values; all times are unix microseconds, so that sums are exact.

A unit is a physical device: a whole GPU with all of its partitions, or a device without counters. The ledger has intervals of a unit's
time, each in one bucket, and by which claim it was held; at each instant the shares of a unit's intervals add up to `WHOLE_PPM`.
An `Observation` is what the leader sees of devices and claims, as the account takes it.
Example: a GPU of which a 3g.40gb slice is held has two intervals at once, one `used` of 428,571 ppm and one `free` of 571,429.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, NamedTuple, get_args

from fairlead.history.ledger.pod_entries import PodEnded, PodInterval, PodSeen

Bucket = Literal["used", "idle", "starting", "nominated", "fragmented", "free", "drained", "broken", "unknown"]
BUCKETS: Final[tuple[Bucket, ...]] = get_args(Bucket)
# Held by a claim; the other buckets have no allocation.
HELD: Final[frozenset[Bucket]] = frozenset({"used", "idle", "starting"})
WHOLE_PPM: Final = 1_000_000


class Unit(NamedTuple):
    """A physical device. `name`: of the device that is all of it; of its counter set, where none such is published."""

    driver: str
    pool: str
    name: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """How much of a unit, and of which flavor: `amount` in the flavor's measure, for prices; `share_ppm` of the unit, for time.

    `flavor` "": no Flavor takes the device.
    """

    share_ppm: int
    flavor: str = ""
    amount: Fraction = Fraction(0)
    capacity_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """A claim while it is allocated. One claim that is allocated twice has two: they differ in `allocated_us`."""

    claim_uid: str
    namespace: str
    claim: str
    allocated_us: int
    gang: str = ""
    queue: str = ""  # "": of no queue
    user: str = ""  # "": not known
    labels: tuple[tuple[str, str], ...] = ()  # those chosen by the owner of the cluster, sorted by name


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """What the driver's samples say of an interval of a claim.

    `sampled_us` of it are covered by samples, of which `busy_us` were busy (the sum of utilization × time). None: not reported.
    """

    sampled_us: int = 0
    busy_us: int = 0
    memory_peak_bytes: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """`end_us` None: it goes on. `device`: the device that is held, which may be a partition of the unit; "" where none is.

    `ended_by` says why the claim came free, in words of `ENDS`, on its last interval. `lost`: the work of this time was lost to an eviction.
    """

    unit: Unit
    node: str
    bucket: Bucket
    measure: Measure
    start_us: int
    end_us: int | None = None
    device: str = ""
    allocation: Allocation | None = None
    sampled: Sampled = Sampled()
    ended_by: str = ""
    lost: bool = False

    def ended(self, end_us: int, ended_by: str = "") -> Interval:
        return dataclasses.replace(self, end_us=end_us, ended_by=ended_by)


End = Literal["Completed", "Failed", "Evicted", "Deleted", "NodeGone", "Unknown"]
ENDS: Final[tuple[End, ...]] = get_args(End)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A time in which nothing was seen, and why: for the owner of the cluster to read."""

    start_us: int
    end_us: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A gang that was admitted: how long it had waited in its queue."""

    queue: str
    namespace: str
    gang: str
    queued_us: int
    admitted_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was decided about a gang, as its event told: `what` is the event's reason. `warning`: something went wrong."""

    namespace: str
    gang: str
    at_us: int
    what: str
    text: str
    warning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one commit writes, all of it or nothing. Numbers are those of intervals: each is opened once, and written again as it changes.

    `as_of_us`: until when the ledger is known. `lost`: claims (UID and `allocated_us`) whose intervals, the ended ones too, are lost to an eviction.
    """

    as_of_us: int
    intervals: tuple[tuple[int, Interval], ...] = ()
    lost: tuple[tuple[str, int], ...] = ()
    gaps: tuple[Gap, ...] = ()
    waits: tuple[Wait, ...] = ()
    decisions: tuple[Decision, ...] = ()
    pods: tuple[PodInterval, ...] = ()
    lease_transitions: int | None = None  # how often the lease had changed hands when the term of its writer began

    def of_lease(self, transitions: int) -> Batch:
        return dataclasses.replace(self, lease_transitions=transitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a store holds when a term begins. `as_of_us` None: nothing yet. `open`: intervals without an end, by number."""

    as_of_us: int | None
    next_number: int
    open: dict[int, Interval]
    lease_transitions: int | None = None  # of the last batch
    pods: tuple[PodInterval, ...] = ()  # without an end


# What sums are made by: fields of an allocation, of a measure, of an interval, or a label as "label=<name>". Keys are texts: of a
# unit `str(unit)`, of a day its date in UTC such as 2026-11-01, and "" where an interval has no such field or no allocation.
GROUPS: Final = ("queue", "namespace", "user", "gang", "flavor", "node", "unit", "bucket", "day", "claim", "device")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """Time of intervals that are alike, cut to a window. `keys`: the values of what was asked for, in its order.

    `time_us`: unweighted; a unit's time is `time_us * measure.share_ppm / WHOLE_PPM`.
    """

    keys: tuple[str, ...]
    bucket: Bucket
    lost: bool
    measure: Measure
    time_us: int
    sampled_us: int = 0
    busy_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One device of one claim within a window: its time by bucket, and what the driver's samples say of it."""

    allocation: Allocation
    unit: Unit
    node: str
    device: str
    measure: Measure  # the last one, where it changed
    times_us: tuple[tuple[Bucket, int], ...]  # in the order of BUCKETS, those that it had
    sampled: Sampled
    ended_by: str
    lost: bool


class Span(NamedTuple):
    """One device of one claim while it was held, cut to a window. One that a claim held in states one after the other has one span.

    `amount` is in the measure of the flavor. `goes_on`: it was still held at the end of the window, and `ended_by` is "".
    """

    namespace: str
    queue: str
    gang: str
    claim: str
    allocated_us: int
    node: str
    flavor: str
    amount: Fraction
    share_ppm: int
    start_us: int
    end_us: int
    goes_on: bool
    ended_by: str
    lost: bool
    device: str = ""


class Stretch(NamedTuple):
    """A time in which a device of a gang was in one bucket, cut to a window. `sampled_us` of it are covered by samples, `busy_us` of these busy."""

    node: str
    device: str
    bucket: Bucket
    start_us: int
    end_us: int
    sampled_us: int
    busy_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitDay:
    """One unit on one day (UTC) within a window: `weighed` is share × time by bucket, in ppm × µs, in the order of BUCKETS.

    `present_us`: from the unit's first to its last moment of the day. The sum of `weighed` is `WHOLE_PPM * present_us`.
    """

    unit: Unit
    node: str
    day_us: int
    present_us: int
    weighed: tuple[tuple[Bucket, int], ...]


# Of time that no claim holds, and of it that in which nothing could be given.
Vacancy = Literal["nominated", "fragmented", "free", "drained", "broken"]
Unavailable = Literal["drained", "broken"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitSeen:
    """A unit that is published, and what its unheld part is good for. `whole`: all of it."""

    unit: Unit
    node: str
    whole: Measure
    vacancy: Vacancy


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSeen:
    """The driver's last sample of a device: whether it is idle, since when, and how busy it was. None: not reported."""

    idle: bool
    since_us: int
    sampled_us: int
    busy_percent: int | None = None
    memory_peak_bytes: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSeen:
    """A device that a claim holds."""

    unit: Unit
    device: str
    measure: Measure
    usage: UsageSeen | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSeen:
    """An allocated claim. `started_us`: when the first container of its pods ran; `finished_us`: when the last one had ended."""

    allocation: Allocation
    parts: tuple[PartSeen, ...]
    started_us: int | None = None
    finished_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimEnded:
    """A claim whose allocation is gone. `lost`: its work was lost to an eviction."""

    claim_uid: str
    at_us: int
    ended_by: End
    lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What changed until `now_us`; the first one of a term has everything that is there."""

    now_us: int
    units: tuple[UnitSeen, ...] = ()
    gone: tuple[Unit, ...] = ()
    claims: tuple[ClaimSeen, ...] = ()
    ended: tuple[ClaimEnded, ...] = ()
    waits: tuple[Wait, ...] = ()
    decisions: tuple[Decision, ...] = ()
    pods: tuple[PodSeen, ...] = ()
    pods_ended: tuple[PodEnded, ...] = ()
